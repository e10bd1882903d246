INSERT INTO house
SELECT 1 + n % current_setting('bench.postcodes')::integer, n, n % 200, n % 101, n % 5, n % 3, n % 7, n % 2, n % 2, n % 2, n % 2, n % 4
FROM generate_series({first}, {last}) AS n

INSERT INTO sales
SELECT n % 101, n % 53, n % 499, n % 200, n % 2
FROM generate_series({first}, {last}) AS n

-- One table with columns to group by: few large groups, many small ones, and some in between, with and without
-- an index, and by Zipf's law.
--
--   SET bench.rows = 200000;

CREATE TABLE big AS
SELECT n AS id, (n * 7919::bigint % 1000)::integer AS g, (n * 7919::bigint % 1000)::integer AS indexed, (n % (1 + rows / 30000))::integer AS large,
       n / 5 AS small, power(1000, (hashint4extended(n, 1) & 1048575) / 1048576.0)::integer AS zipf,
       (hashint4extended(n, 2) & 65535)::integer AS v, (hashint4extended(n, 3) & 65535) / 7.0::float8 AS f,
       'text ' || (hashint4extended(n, 4) & 63) AS t
FROM (SELECT current_setting('bench.rows')::integer) AS r (rows), generate_series(1, rows) AS n;
ALTER TABLE big ADD PRIMARY KEY (id);
CREATE INDEX ON big (indexed);

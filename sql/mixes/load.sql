-- Two relations, r(a, b) and s(b, c), which are joined by b. A value of b is the more frequent the smaller it is.
--
--   SET bench.rows = 10000;       rows of both together, about

CREATE TABLE r AS
SELECT DISTINCT n * 7919 % 1009 AS a,
       power(current_setting('bench.rows')::float8 / 8, n * 104729 % 10007 / 10007.0)::integer AS b
FROM generate_series(1, current_setting('bench.rows')::bigint / 2) AS n;
CREATE TABLE s AS
SELECT DISTINCT power(current_setting('bench.rows')::float8 / 8, n * 103 % 10009 / 10009.0)::integer AS b,
       n * 7907 % 1013 AS c
FROM generate_series(1, current_setting('bench.rows')::bigint / 2) AS n;
ALTER TABLE r ADD PRIMARY KEY (a, b);
ALTER TABLE s ADD PRIMARY KEY (b, c);
CREATE INDEX ON r (b);

-- Three tables that meet in one column, ten rows of each for a value: a q-hierarchical query.
--
--   SET bench.rows = 100000;      rows of each table
--   SET bench.seed = 1;

CREATE TABLE r AS
SELECT n AS id, n / 10 AS a, (hashint4extended(n, current_setting('bench.seed')::bigint) & 1023)::integer AS x
FROM generate_series(0, current_setting('bench.rows')::integer - 1) AS n;
CREATE TABLE s AS SELECT id, a, x % 97 AS y FROM r;
CREATE TABLE t AS SELECT id, a, x % 89 AS z FROM r;
ALTER TABLE r ADD PRIMARY KEY (id);
ALTER TABLE s ADD PRIMARY KEY (id);
ALTER TABLE t ADD PRIMARY KEY (id);
CREATE INDEX ON r (a);
CREATE INDEX ON s (a);
CREATE INDEX ON t (a);

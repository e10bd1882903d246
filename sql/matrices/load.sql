-- Three square matrices, of which the second is empty.
--
--   SET bench.size = 256;
--   SET bench.seed = 1;

CREATE TABLE a1 (i integer, j integer, p integer NOT NULL, PRIMARY KEY (i, j));
CREATE TABLE a2 (j integer, k integer, p integer NOT NULL, PRIMARY KEY (j, k));
CREATE TABLE a3 (k integer, l integer, p integer NOT NULL, PRIMARY KEY (k, l));
CREATE TABLE u (n integer, x integer);
CREATE TABLE v (n integer, x integer);
INSERT INTO a1
SELECT x, y, 1 + (hashint4extended(x * 10000 + y, current_setting('bench.seed')::bigint) & 7)::integer
FROM generate_series(1, current_setting('bench.size')::integer) AS x,
     generate_series(1, current_setting('bench.size')::integer) AS y;
INSERT INTO a3 SELECT j, i, p FROM a1;
CREATE INDEX ON a1 (j);
CREATE INDEX ON a2 (k);

-- Three relations whose rows make triangles: r(a, b), s(b, c), t(c, a).
--
--   SET bench.rows = 100000;      rows of all three together, about
--   SET bench.zipf = 0;           1: values by Zipf's law; 0: what costs most
--   SET bench.seed = 1;
--
-- What costs most: in each relation half of the rows are a block, each of its values with each. The
-- others are stars. Values 1 and 2 of b and a have a quarter of the rows of s and t, with the same
-- values of c; so a row (2, 1) of r closes as many triangles, and likewise for s and t.

CREATE TABLE pairs AS
WITH sizes AS MATERIALIZED (
    SELECT current_setting('bench.rows')::bigint / 3 AS rows, current_setting('bench.zipf') = '1' AS zipf,
           current_setting('bench.seed')::bigint AS seed
)
SELECT relation, x, y FROM sizes, generate_series(0, 2) AS relation
CROSS JOIN LATERAL (
    SELECT 10000000 + i AS x, 10000000 + j AS y
    FROM generate_series(1, sqrt(rows / 2)::integer) AS i, generate_series(1, sqrt(rows / 2)::integer) AS j
    WHERE NOT zipf
  UNION ALL
    SELECT 1, 20000000 + i FROM generate_series(1, rows / 4) AS i WHERE NOT zipf
  UNION ALL
    SELECT 20000000 + i, 2 FROM generate_series(1, rows / 4) AS i WHERE NOT zipf
  UNION ALL
    SELECT DISTINCT power(rows, (hashint8extended(3 * n + relation, seed) & 1048575) / 1048576.0)::bigint,
           power(rows, (hashint8extended(3 * n + relation, seed + 1) & 1048575) / 1048576.0)::bigint
    FROM generate_series(1, rows) AS n WHERE zipf
) AS pair;
CREATE TABLE r AS SELECT x AS a, y AS b FROM pairs WHERE relation = 0;
CREATE TABLE s AS SELECT x AS b, y AS c FROM pairs WHERE relation = 1;
CREATE TABLE t AS SELECT x AS c, y AS a FROM pairs WHERE relation = 2;
DROP TABLE pairs;
ALTER TABLE r ADD PRIMARY KEY (a, b);
ALTER TABLE s ADD PRIMARY KEY (b, c);
ALTER TABLE t ADD PRIMARY KEY (c, a);
CREATE INDEX ON r (b, a);
CREATE INDEX ON s (c, b);
CREATE INDEX ON t (a, c);

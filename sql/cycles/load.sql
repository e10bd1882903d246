-- Three relations whose rows make triangles, r(a, b), s(b, c), t(c, a), as something costs most at some ε.
--
--   SET bench.rows = 100000;      rows of all three together, about
--   SET bench.epsilon = 500;      ε in thousandths
--   SET bench.kind = 0;           what is to cost most: 0 the rows stored for what is not listed, and
--                                 the time from row to row; 1 a change of a row; 2 the rows that are listed
--
-- 0: Blocks. In each all values of a and c meet all of b: few of a and c, as many as N^ε and N^(1-ε) allow,
--    and of b somewhat more than N^ε. So a is heavy in r, b light in r and s, c heavy in s. The join of r
--    and s is as large as can be, and so are the values of c, and the pairs (a, c), that a row has.
-- 1: Stars. The row (1, 2) of r meets in t as many heavy values of c as there can be, and in s as many rows
--    as a light value may well have; another value of b there is heavy.
-- 2: One block, of each value with each: as many triangles as so many rows can have. Three quarters of the
--    rows are beside it, so that they still fit on a disk.

CREATE TABLE made AS
WITH sizes AS MATERIALIZED (
    SELECT rows, kind, power(2 * rows, epsilon) AS threshold, ceil(1.2 * power(2 * rows, epsilon))::bigint AS many
    FROM (SELECT current_setting('bench.rows')::bigint AS rows, current_setting('bench.kind')::integer AS kind,
                 current_setting('bench.epsilon')::float8 / 1000 AS epsilon) AS given
), blocks AS (
    SELECT many, few, greatest(1, rows * 2 / 5 / (few * many)) AS blocks
    FROM (SELECT rows, many, greatest(1, least(0.8 * threshold, 0.4 * rows / many))::bigint AS few
          FROM sizes WHERE kind = 0) AS sides
), stars AS (
    SELECT many, greatest(1, 0.6 * threshold)::bigint AS light, greatest(1, rows * 4 / 5 / many) AS heavy
    FROM sizes WHERE kind = 1
), square AS (
    SELECT sqrt(rows / 12)::bigint AS side, rows / 4 AS others FROM sizes WHERE kind = 2
)
SELECT relation, 1000000 + block * few + i AS a, 2000000 + block * many + j AS b
FROM blocks, generate_series(0, 1) AS relation, generate_series(0, blocks - 1) AS block,
     generate_series(0, few - 1) AS i, generate_series(0, many - 1) AS j
UNION ALL
SELECT 2, 1000000 + block * few + i, 1000000 + block * few + j
FROM blocks, generate_series(0, blocks - 1) AS block, generate_series(0, few - 1) AS i, generate_series(0, few - 1) AS j
UNION ALL
SELECT 2, 1, 3000000 + i FROM stars, generate_series(1, heavy) AS i
UNION ALL
SELECT 2, 4000000 + i * many + j, 3000000 + i FROM stars, generate_series(1, heavy) AS i, generate_series(2, many) AS j
UNION ALL
SELECT 1, 5000000 + j, 2 FROM stars, generate_series(1, light) AS j
UNION ALL
SELECT 1, 5000000 + j, 3 FROM stars, generate_series(1, many) AS j
UNION ALL
SELECT 0, 1, 6000000 + j FROM stars, generate_series(1, many) AS j
UNION ALL
SELECT relation, 8000000 + i, 8000000 + i FROM square, generate_series(0, 2) AS relation, generate_series(1, others) AS i
UNION ALL
SELECT relation, i, j
FROM square, generate_series(0, 2) AS relation, generate_series(1, side) AS i, generate_series(1, side) AS j;
CREATE TABLE r AS SELECT a, b FROM made WHERE relation = 0;
CREATE TABLE s AS SELECT b, a AS c FROM made WHERE relation = 1;
CREATE TABLE t AS SELECT b AS c, a FROM made WHERE relation = 2;
DROP TABLE made;
ALTER TABLE r ADD PRIMARY KEY (a, b);
ALTER TABLE s ADD PRIMARY KEY (b, c);
ALTER TABLE t ADD PRIMARY KEY (c, a);

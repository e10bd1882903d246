-- Three relations whose rows make triangles, r(a, b), s(b, c), t(c, a), as something costs most at some ε.
--
--   SET bench.rows = 100000;      rows of all three together, about
--   SET bench.epsilon = 500;      ε in thousandths
--   SET bench.kind = 0;           what is to cost most: 0 the rows stored for what is not listed, and
--                                 the time from row to row; 1 a change of a row; 2 the rows that are listed;
--                                 3 the rows stored for a count
--
-- 0: Blocks. In each all values of a and c meet all of b: few of a and c, as many as N^ε and N^(1-ε) allow,
--    and of b somewhat more than N^ε. So a is heavy in r, b light in r and s, c heavy in s. The join of r
--    and s is as large as can be, and so are the values of c, and the pairs (a, c), that a row has.
-- 1: Stars. In each relation, the values 3000001, 3000002, ... of the first column are heavy, and have a row with 8 and
--    one with 12. The values 2 and 12 are light and have many rows. So a row (3000001, 2) of a relation meets these rows
--    in the next relation, and a row (8, -1) meets all heavy values in the previous one. Other rows are alone. They are
--    most of the rows: PostgreSQL would read a smaller part as a whole rather than look up many rows in it. For the same
--    reason a change meets fewer than 100 rows when N is 10000.
-- 2: One block, of each value with each: as many triangles as so many rows can have. Three quarters of the
--    rows are beside it, so that they still fit on a disk.
-- 3: Few values of a, which are heavy, in each block meet many of b, which are light and have values of c of their own:
--    the join of r and s has most pairs (a, c).

CREATE TABLE made AS
WITH sizes AS MATERIALIZED (
    SELECT rows, kind, epsilon, power(2 * rows, epsilon) AS threshold, ceil(1.2 * power(2 * rows, epsilon))::bigint AS many
    FROM (SELECT current_setting('bench.rows')::bigint AS rows, current_setting('bench.kind')::integer AS kind,
                 current_setting('bench.epsilon')::float8 / 1000 AS epsilon) AS given
), blocks AS (
    SELECT many, few, greatest(1, rows * 2 / 5 / (few * many)) AS blocks
    FROM (SELECT rows, many, greatest(1, least(0.8 * threshold, 0.4 * rows / many))::bigint AS few
          FROM sizes WHERE kind = 0) AS sides
), stars AS (
    SELECT many, greatest(1, threshold * CASE WHEN epsilon > 0.5 THEN 0.05 ELSE 0.6 END)::bigint AS light, rows / 10 AS others,
           greatest(1, round(rows * CASE WHEN epsilon < 0.5 THEN 0.12 ELSE 0.22 END / many))::bigint AS heavy
    FROM (SELECT rows, kind, epsilon, threshold, ceil(1.05 * threshold)::bigint AS many FROM sizes) AS sizes WHERE kind = 1
), own AS (
    SELECT many, few, greatest(1, rows * 2 / 5 / (few * many)) AS blocks
    FROM (SELECT rows, many, greatest(1, least(0.8 * threshold, 0.4 * rows / many))::bigint AS few
          FROM sizes WHERE kind = 3) AS sides
), square AS (
    SELECT sqrt(rows / 12)::bigint AS side, rows / 4 AS others FROM sizes WHERE kind = 2
)
SELECT 0 AS relation, 1000000 + block * few + i AS x, 2000000 + block * many + j AS y
FROM blocks, generate_series(0, blocks - 1) AS block, generate_series(0, few - 1) AS i, generate_series(0, many - 1) AS j
UNION ALL
SELECT 1, 2000000 + block * many + j, 1000000 + block * few + i
FROM blocks, generate_series(0, blocks - 1) AS block, generate_series(0, few - 1) AS i, generate_series(0, many - 1) AS j
UNION ALL
SELECT 2, 1000000 + block * few + i, 1000000 + block * few + j
FROM blocks, generate_series(0, blocks - 1) AS block, generate_series(0, few - 1) AS i, generate_series(0, few - 1) AS j
UNION ALL
SELECT relation, x, y
FROM stars, generate_series(0, 2) AS relation
CROSS JOIN LATERAL (
    SELECT 3000000 + i AS x, 4000000 + i * many + j AS y FROM generate_series(1, heavy) AS i, generate_series(1, many) AS j
  UNION ALL
    SELECT 3000000 + i, partner FROM generate_series(1, heavy) AS i, unnest(ARRAY[8, 12]) AS partner
  UNION ALL
    SELECT middle, 6000000 + j FROM unnest(ARRAY[2, 12]) AS middle, generate_series(1, light) AS j
  UNION ALL
    SELECT 9000000 + i, 9500000 + i FROM generate_series(1, others) AS i
) AS star
UNION ALL
SELECT 0, 1000000 + block * few + i, 2000000 + block * many + j
FROM own, generate_series(0, blocks - 1) AS block, generate_series(0, few - 1) AS i, generate_series(0, many - 1) AS j
UNION ALL
SELECT 1, 2000000 + b, 4000000 + b * few + i
FROM own, generate_series(0, blocks * many - 1) AS b, generate_series(0, few - 1) AS i
UNION ALL
SELECT relation, 8000000 + i, 8000000 + i FROM square, generate_series(0, 2) AS relation, generate_series(1, others) AS i
UNION ALL
SELECT relation, i, j
FROM square, generate_series(0, 2) AS relation, generate_series(1, side) AS i, generate_series(1, side) AS j;
CREATE TABLE r AS SELECT x AS a, y AS b FROM made WHERE relation = 0;
CREATE TABLE s AS SELECT x AS b, y AS c FROM made WHERE relation = 1;
CREATE TABLE t AS SELECT x AS c, y AS a FROM made WHERE relation = 2;
DROP TABLE made;
ALTER TABLE r ADD PRIMARY KEY (a, b);
ALTER TABLE s ADD PRIMARY KEY (b, c);
ALTER TABLE t ADD PRIMARY KEY (c, a);

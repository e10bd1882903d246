-- Four relations of which each lacks one of four columns, r(a, b, c), s(b, c, d), t(c, d, a), u(d, a, b), as
-- something costs most at some ε.
--
--   SET bench.rows = 100000;      rows of all four together, about
--   SET bench.epsilon = 500;      ε in thousandths
--   SET bench.kind = 0;           what is to cost most: 0 the rows stored, 1 a change of a row
--
-- 0: Some values of b and of c, which are heavy, and for each of many light values of d as many values of a
--    of its own: the join of s, t and u has all of them. (What four relations join to is not enough for the
--    stored rows to be as many as their bound at every ε.)
-- 1: The row (9, 2, 3) of r meets in s as many rows as a light value may well have, and (1, 12, 8) meets in u many heavy
--    values of d. Other rows are alone. They are most of the rows: PostgreSQL would read a smaller part as a whole rather than
--    look up many rows in it. For the same reason a change meets fewer than 100 rows when N is 10000.

CREATE TABLE made AS
WITH sizes AS MATERIALIZED (
    SELECT rows, kind, epsilon, power(2 * rows, epsilon) AS threshold, ceil(1.2 * power(2 * rows, epsilon))::bigint AS many
    FROM (SELECT current_setting('bench.rows')::bigint AS rows, current_setting('bench.kind')::integer AS kind,
                 current_setting('bench.epsilon')::float8 / 1000 AS epsilon) AS given
), block AS (
    SELECT side, rows * 3 / 10 / (side * side) AS others
    FROM (SELECT rows, greatest(1, round(least(sqrt(0.5 * threshold), 0.3 * rows / many)))::bigint AS side
          FROM sizes WHERE kind = 0) AS sides
), stars AS (
    SELECT many, greatest(1, threshold * CASE WHEN epsilon > 0.5 THEN 0.05 ELSE 0.6 END)::bigint AS light,
           greatest(1, round(rows * CASE WHEN epsilon < 0.5 THEN 0.12 ELSE 0.22 END / many))::bigint AS heavy,
           rows / 8 AS others
    FROM sizes WHERE kind = 1
)
SELECT 1 AS relation, 10 + i AS x, 10 + j AS y, 1000000 + d AS z
FROM block, generate_series(1, side) AS i, generate_series(1, side) AS j, generate_series(1, others) AS d
UNION ALL
SELECT 2, 10 + i, 1000000 + d, 2000000 + d * side + j
FROM block, generate_series(1, side) AS i, generate_series(1, side) AS j, generate_series(1, others) AS d
UNION ALL
SELECT 3, 1000000 + d, 2000000 + d * side + j, 10 + i
FROM block, generate_series(1, side) AS i, generate_series(1, side) AS j, generate_series(1, others) AS d
UNION ALL
SELECT 0, 2000000 + d * side + j, 10 + i, 10 + i
FROM block, generate_series(1, side) AS i, generate_series(1, side) AS j, generate_series(1, others / side) AS d
UNION ALL
SELECT 1, 2, 3, 3000000 + d FROM stars, generate_series(1, light) AS d
UNION ALL
SELECT 2, 3, 4000000 + d, 1 FROM stars, generate_series(1, heavy) AS d
UNION ALL
SELECT 2, 3, 5000000 + d, d FROM stars, generate_series(1, many) AS d
UNION ALL
SELECT 3, 4000000 + d, 1, b FROM stars, generate_series(1, heavy) AS d, unnest(ARRAY[2, 12]) AS b
UNION ALL
SELECT 3, 4000000 + d, 6000000 + i, 9 FROM stars, generate_series(1, heavy) AS d, generate_series(1, many) AS i
UNION ALL
SELECT relation, -10 - i, -10 - i, -10 - i FROM stars, generate_series(0, 3) AS relation, generate_series(1, others) AS i;
CREATE TABLE r AS SELECT x AS a, y AS b, z AS c FROM made WHERE relation = 0;
CREATE TABLE s AS SELECT x AS b, y AS c, z AS d FROM made WHERE relation = 1;
CREATE TABLE t AS SELECT x AS c, y AS d, z AS a FROM made WHERE relation = 2;
CREATE TABLE u AS SELECT x AS d, y AS a, z AS b FROM made WHERE relation = 3;
DROP TABLE made;
ALTER TABLE r ADD PRIMARY KEY (a, b, c);
ALTER TABLE s ADD PRIMARY KEY (b, c, d);
ALTER TABLE t ADD PRIMARY KEY (c, d, a);
ALTER TABLE u ADD PRIMARY KEY (d, a, b);

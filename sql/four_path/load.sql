-- Four relations in a row, r(a), s(a, b), t(b, c) and u(c), as something costs most at some ε.
--
--   SET bench.rows = 100000;      rows of s and t together, about
--   SET bench.epsilon = 500;      ε in thousandths
--   SET bench.kind = 0;           what is to cost most: 0 the rows stored, 1 a change of a row
--
-- 0: Blocks. In each all values of a meet all of b, and each of b has as many values of c of its own. There
--    are few of a, as many as keep b light and a heavy; so for each c the join of s and t has all of a.
-- 1: Stars. In s, 1 and 4 to 7 have a row with each heavy value of b, and 2 as many rows as a light value may well
--    have, with light values of b. 3 is heavy, and its b = 3 is light and has many c. Other rows are alone. They are
--    most of the rows: PostgreSQL would read a smaller part as a whole rather than look up many rows in it. For the
--    same reason a change meets fewer than 100 rows when N is 10000.

CREATE TABLE made AS
WITH sizes AS MATERIALIZED (
    SELECT rows, kind, epsilon, power(2 * rows, epsilon) AS threshold, ceil(1.2 * power(2 * rows, epsilon))::bigint AS many
    FROM (SELECT current_setting('bench.rows')::bigint AS rows, current_setting('bench.kind')::integer AS kind,
                 current_setting('bench.epsilon')::float8 / 1000 AS epsilon) AS given
), blocks AS (
    SELECT many, few, greatest(1, rows / 2 / (few * many)) AS blocks
    FROM (SELECT rows, many, greatest(1, least(0.4 * threshold, 0.3 * rows / many))::bigint AS few
          FROM sizes WHERE kind = 0) AS sides
), stars AS (
    SELECT many, greatest(1, threshold * CASE WHEN epsilon > 0.5 THEN 0.05 ELSE 0.6 END)::bigint AS light,
           greatest(1, round(rows * CASE WHEN epsilon > 0.5 THEN 0.22 ELSE 0.12 END / many))::bigint AS heavy, rows * 2 / 5 AS others
    FROM sizes WHERE kind = 1
)
SELECT true AS first, 1000000 + block * few + i AS one, 2000000 + block * many + j AS other
FROM blocks, generate_series(0, blocks - 1) AS block, generate_series(0, few - 1) AS i, generate_series(0, many - 1) AS j
UNION ALL
SELECT false, 2000000 + b, 4000000 + b * few + i
FROM blocks, generate_series(0, blocks * many - 1) AS b, generate_series(0, few - 1) AS i
UNION ALL
SELECT true, a, 3000000 + b FROM stars, generate_series(1, heavy) AS b, unnest(ARRAY[1, 4, 5, 6, 7]) AS a
UNION ALL
SELECT false, 3000000 + b, 4000000 + b * many + i FROM stars, generate_series(1, heavy) AS b, generate_series(1, many) AS i
UNION ALL
SELECT true, 2, 5000000 + b FROM stars, generate_series(1, light) AS b
UNION ALL
SELECT false, 5000000 + b, 6000000 + b FROM stars, generate_series(1, light) AS b
UNION ALL
SELECT true, 3, 7000000 + b FROM stars, generate_series(1, many) AS b
UNION ALL
SELECT false, 3, 8000000 + c FROM stars, generate_series(1, light) AS c
UNION ALL
SELECT first, CASE WHEN first THEN -1 ELSE -2 END * (10 + i), CASE WHEN first THEN -1 ELSE -3 END * (10 + i)
FROM stars, generate_series(1, others) AS i, unnest(ARRAY[true, false]) AS first;
CREATE TABLE s AS SELECT one AS a, other AS b FROM made WHERE first;
CREATE TABLE t AS SELECT one AS b, other AS c FROM made WHERE NOT first;
CREATE TABLE r AS SELECT DISTINCT a FROM s WHERE a > 2;
CREATE TABLE u AS SELECT DISTINCT c FROM t WHERE c > 0;
DROP TABLE made;
ALTER TABLE r ADD PRIMARY KEY (a);
ALTER TABLE s ADD PRIMARY KEY (a, b);
ALTER TABLE t ADD PRIMARY KEY (b, c);
ALTER TABLE u ADD PRIMARY KEY (c);
CREATE INDEX ON s (b);
CREATE INDEX ON t (c);

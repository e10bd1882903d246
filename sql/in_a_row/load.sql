-- Three relations in a row, r(a), s(a, b) and t(b), as a change of a row costs most at some ε.
--
--   SET bench.rows = 100000;      rows of s, about
--   SET bench.epsilon = 500;      ε in thousandths
--
-- There are heavy values of a, as many as a constant share of all rows allows, each with a row whose b is 1. 2 is a
-- light value of a with many rows. Other rows are alone. They are most of the rows: PostgreSQL would read a smaller part
-- as a whole rather than look up many rows in it. For the same reason a change meets fewer than 100 rows when N is 10000.

CREATE TABLE s AS
WITH sizes AS MATERIALIZED (
    SELECT rows, epsilon, power(2 * rows, epsilon) AS threshold, ceil(1.2 * power(2 * rows, epsilon))::bigint AS many
    FROM (SELECT current_setting('bench.rows')::bigint AS rows,
                 current_setting('bench.epsilon')::float8 / 1000 AS epsilon) AS given
), stars AS (
    SELECT many, greatest(1, threshold * CASE WHEN epsilon > 0.5 THEN 0.05 ELSE 0.6 END)::bigint AS light,
           greatest(1, round(rows * CASE WHEN epsilon > 0.5 THEN 0.22 ELSE 0.12 END / many))::bigint AS heavy, rows * 4 / 5 AS others FROM sizes
)
SELECT 1000000 + a AS a, 2000000 + a * many + i AS b
FROM stars, generate_series(1, heavy) AS a, generate_series(1, many) AS i
UNION ALL
SELECT 1000000 + a, 1 FROM stars, generate_series(1, heavy) AS a
UNION ALL
SELECT 2, 10 + b FROM stars, generate_series(1, light) AS b
UNION ALL
SELECT -10 - i, -10 - i FROM stars, generate_series(1, others) AS i;
CREATE TABLE r AS SELECT DISTINCT a FROM s WHERE a > 2;
CREATE TABLE t AS SELECT DISTINCT b FROM s WHERE b > 1;
ALTER TABLE r ADD PRIMARY KEY (a);
ALTER TABLE s ADD PRIMARY KEY (a, b);
ALTER TABLE t ADD PRIMARY KEY (b);
CREATE INDEX ON s (b);

-- Two relations that meet in b, r(a, b) and s(b, c), as something costs most at some ε.
--
--   SET bench.rows = 10000;       rows of both together, about
--   SET bench.epsilon = 500;      ε in thousandths
--   SET bench.kind = 0;           what is to cost most: 0 the rows stored, and preprocessing; 1 the time from row to row;
--                                 2 a change of a row
--
-- 0: Values of b are light, with many rows, 1000000 among them; an eighth of the rows have heavy values.
-- 1: All values of b are heavy, as many as there can be. Each row of the result has all of them.
-- 2: The light value 1000000 has many rows. 3000000 is frequent, in s alone. Other rows are alone.

CREATE TABLE made AS
WITH sizes AS MATERIALIZED (
    SELECT rows, kind, epsilon, power(rows, epsilon) AS threshold
    FROM (SELECT current_setting('bench.rows')::bigint AS rows, current_setting('bench.kind')::integer AS kind,
                 current_setting('bench.epsilon')::float8 / 1000 AS epsilon) AS given
), light AS (
    SELECT rows, many FROM (
        SELECT (rows * CASE WHEN epsilon > 0.5 THEN 0.1 WHEN epsilon < 0.5 THEN 0.4 ELSE 0.25 END)::bigint AS rows,
               greatest(1, threshold * CASE WHEN epsilon > 0.5 THEN 0.08 ELSE 0.45 END)::bigint AS many
        FROM sizes WHERE kind = 0
    ) AS light
), heavy AS (
    SELECT ceil(1.2 * threshold)::bigint AS many, rows / 8 AS rows FROM sizes WHERE kind = 0
), reading AS (
    SELECT ceil(2.2 * threshold)::bigint AS many, greatest(1, round(0.4 * rows / threshold))::bigint AS heavy
    FROM sizes WHERE kind = 1
), change AS (
    SELECT greatest(1, threshold * CASE WHEN epsilon > 0.5 THEN 0.08 ELSE 0.3 END)::bigint AS many, rows,
           greatest(rows / 8, ceil(1.4 * power(2 * rows, epsilon)))::bigint AS frequent
    FROM sizes WHERE kind = 2
)
SELECT relation, 1000000 + n / many AS b, 1000 * (n / many) + n % many AS other
FROM light, generate_series(0, 1) AS relation, generate_series(0, rows - 1) AS n
UNION ALL
SELECT relation, 2000000 + n / many, n % many
FROM heavy, generate_series(0, 1) AS relation, generate_series(0, greatest(many, rows - rows % many) - 1) AS n
UNION ALL
SELECT 0, 2000000 + h, a FROM reading, generate_series(1, heavy) AS h, generate_series(1, many) AS a
UNION ALL
SELECT 1, 2000000 + h, c FROM reading, generate_series(1, heavy) AS h, generate_series(1, 4) AS c
UNION ALL
SELECT relation, 1000000, n FROM change, generate_series(0, 1) AS relation, generate_series(1, many) AS n
UNION ALL
SELECT relation, 5000000 + n, n FROM change, generate_series(0, 1) AS relation, generate_series(1, rows * 2 / 5) AS n
UNION ALL
SELECT 1, 3000000, n FROM change, generate_series(1, frequent) AS n;
CREATE TABLE r AS SELECT other AS a, b FROM made WHERE relation = 0;
CREATE TABLE s AS SELECT b, other AS c FROM made WHERE relation = 1;
DROP TABLE made;
ALTER TABLE r ADD PRIMARY KEY (b, a);
ALTER TABLE s ADD PRIMARY KEY (b, c);

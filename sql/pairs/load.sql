-- Two relations that meet in b, r(a, b) and s(b, c), as what they cost at some ε is most.
--
--   SET bench.rows = 10000;       rows of both together, about
--   SET bench.epsilon = 500;      ε in thousandths
--
-- A quarter of the rows have values of b that are light and nearly heavy, a quarter as many heavy values
-- as there can be, in both relations. An eighth of the rows, in s alone, have one value of b.

CREATE TABLE made AS
WITH sizes AS MATERIALIZED (
    SELECT rows, power(rows, current_setting('bench.epsilon')::float8 / 1000) AS threshold
    FROM (SELECT current_setting('bench.rows')::bigint AS rows) AS given
), light AS (
    SELECT greatest(1, 0.3 * threshold)::bigint AS many, rows / 4 AS rows FROM sizes
), heavy AS (
    SELECT ceil(1.2 * threshold)::bigint AS many, rows / 4 AS rows FROM sizes
)
SELECT 1000000 + n / many AS b, 1000 * (n / many) + n % many AS other FROM light, generate_series(0, rows - 1) AS n
UNION ALL
SELECT 2000000 + n / many, n % many FROM heavy, generate_series(0, greatest(many, rows - rows % many) - 1) AS n;
CREATE TABLE r AS SELECT other AS a, b FROM made;
CREATE TABLE s AS SELECT b, other AS c FROM made;
INSERT INTO s SELECT 3000000, n FROM generate_series(1, current_setting('bench.rows')::bigint / 8) AS n;
DROP TABLE made;
ALTER TABLE r ADD PRIMARY KEY (b, a);
ALTER TABLE s ADD PRIMARY KEY (b, c);

-- Two relations, r(a, b, price) and s(b, c, fee), which are joined by b.
--
--   SET bench.rows = 10000;       rows of both together, about
--
-- The value b = -1 has a quarter of the rows of each, so that the join has about rows^2 / 64 rows.

CREATE TABLE r AS
SELECT n AS a, CASE WHEN n % 4 = 1 THEN -1 ELSE n / 4 END AS b, n * 7919 % 1000003 AS price
FROM generate_series(0, current_setting('bench.rows')::bigint / 2 - 1) AS n;
CREATE TABLE s AS
SELECT CASE WHEN n % 4 = 1 THEN -1 ELSE n / 4 END AS b, n AS c, n * 104729 % 1000003 AS fee
FROM generate_series(0, current_setting('bench.rows')::bigint / 2 - 1) AS n;
ALTER TABLE r ADD PRIMARY KEY (a, b), ALTER price SET NOT NULL;
ALTER TABLE s ADD PRIMARY KEY (b, c), ALTER fee SET NOT NULL;
CREATE INDEX ON r (b);

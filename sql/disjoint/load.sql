-- Two relations that meet in values of b whose pairs (a, c) are disjoint.
--
--   SET bench.rows = 32000;       rows of both together
--   SET bench.heavy = 320;        values of b
--   SET bench.in_turn = 0;        1: the values of a of all b take turns, so that no two rows in order share a bucket

CREATE TABLE r AS
SELECT CASE current_setting('bench.in_turn') WHEN '1' THEN n * heavy + b ELSE b * fan + n END AS a, b
FROM (SELECT current_setting('bench.heavy')::integer AS heavy,
             current_setting('bench.rows')::integer / (2 * current_setting('bench.heavy')::integer) AS fan) AS sizes,
     generate_series(1, heavy) AS b, generate_series(0, fan - 1) AS n;
CREATE TABLE s AS SELECT b, a AS c FROM r;
ALTER TABLE r ADD PRIMARY KEY (b, a);
ALTER TABLE s ADD PRIMARY KEY (b, c);

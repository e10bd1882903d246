-- Aggregates and windows over one table.
-- quick: rows = 100000
-- whole: rows = 2000000
-- statistics: missing, off
-- update big: v = v + 1, f = f + 1, t = t || 'x'
-- view: sum and max of 1000 groups
SELECT g, sum(v) AS sum, max(v) AS max FROM big GROUP BY g
-- view: sum and max of 1000 groups, indexed
SELECT indexed, sum(v) AS sum, max(v) AS max FROM big GROUP BY indexed
-- view: sum of large groups
SELECT large, sum(v) AS sum, count(*) AS rows FROM big GROUP BY large
-- view: min of large groups, beside sum of large groups
SELECT large, min(v) AS min FROM big GROUP BY large
-- view: max of large groups, beside sum of large groups
SELECT large, max(v) AS max FROM big GROUP BY large
-- view: count distinct of large groups, beside sum of large groups
SELECT large, count(DISTINCT v) AS values FROM big GROUP BY large
-- view: avg of floats of large groups, beside sum of large groups
SELECT large, avg(f) AS mean FROM big GROUP BY large
-- view: rank in large groups, beside sum of large groups
SELECT id, rank() OVER (PARTITION BY large ORDER BY v) AS rank FROM big
-- view: row_number in large groups, beside sum of large groups
SELECT id, row_number() OVER (PARTITION BY large ORDER BY id) AS nth, v FROM big
-- view: running sum in large groups, beside sum of large groups
SELECT id, sum(v) OVER (PARTITION BY large ORDER BY id) AS running FROM big
-- view: stddev of large groups
SELECT large, stddev(v) AS deviation FROM big GROUP BY large
-- view: string_agg of large groups
SELECT large, string_agg(t, ',' ORDER BY id) AS texts FROM big GROUP BY large
-- view: median of large groups
SELECT large, percentile_disc(0.5) WITHIN GROUP (ORDER BY v) AS median FROM big GROUP BY large
-- view: sum of small groups
SELECT small, sum(v) AS sum, count(*) AS rows FROM big GROUP BY small
-- view: max of small groups
SELECT small, max(v) AS max FROM big GROUP BY small
-- view: count distinct of 1000 groups
SELECT g, count(DISTINCT v) AS values FROM big GROUP BY g
-- view: sum and max by Zipf's law
SELECT zipf, sum(v) AS sum, max(v) AS max FROM big GROUP BY zipf
-- view: lag in 1000 groups
SELECT id, lag(v) OVER (PARTITION BY g ORDER BY id) AS before FROM big
-- view: newest of 1000 groups
SELECT DISTINCT ON (g) g, id, v FROM big ORDER BY g, id DESC
-- view: largest ten
SELECT id, v FROM big ORDER BY v DESC, id LIMIT 10
-- view: first ten by row_number
SELECT id, v, nth FROM (SELECT id, v, row_number() OVER (ORDER BY v DESC, id) AS nth FROM big) AS numbered WHERE nth <= 10
-- view: first three of large groups
SELECT id, large, v, nth FROM (SELECT id, large, v, rank() OVER (PARTITION BY large ORDER BY v DESC) AS nth FROM big) AS ranked WHERE nth <= 3
-- view: newest of large groups
SELECT DISTINCT ON (large) large, id, v FROM big ORDER BY large, id DESC
-- view: rank of all
SELECT id, rank() OVER (ORDER BY v) AS rank FROM big
-- view: max of all
SELECT max(v) AS max, count(DISTINCT t) AS texts FROM big

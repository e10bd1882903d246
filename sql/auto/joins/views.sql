-- Three tables that meet in one column, which is hierarchical.
-- tables: star
-- quick: rows = 30000, seed = 1
-- whole: rows = 300000, seed = 1
-- update r: x = x + 1
-- update s: y = y + 1
-- update t: z = z + 1
-- view: hierarchical sums
SELECT r.a, sum(x * y) AS sum, count(*) AS rows FROM r JOIN s ON s.a = r.a JOIN t ON t.a = r.a GROUP BY r.a
-- view: hierarchical sum
SELECT sum(x * y * z) AS sum FROM r JOIN s ON s.a = r.a JOIN t ON t.a = r.a
-- view: hierarchical rows
SELECT r.id, s.id AS other, x, y FROM r JOIN s ON s.a = r.a
-- view: four-way join
SELECT r.id, s.id AS second, r.x, s.y, small.x AS third
FROM r JOIN s ON s.a = r.a JOIN t ON t.id = s.id JOIN r AS small ON small.id = t.id
-- view: non-equi join
SELECT r.id, s.id AS other FROM r JOIN s ON s.a = r.a AND s.y < r.x
-- view: left join
SELECT r.id, r.x, s.id AS other FROM r LEFT JOIN s ON s.a = r.a AND s.y > 90
-- view: union of joins
SELECT r.a, x AS value FROM r UNION SELECT s.a, y FROM s

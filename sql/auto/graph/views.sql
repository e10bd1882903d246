-- Triangles and paths over tables whose values have Zipf's law.
-- tables: graph
-- quick: rows = 30000, zipf = 1, seed = 1
-- whole: rows = 300000, zipf = 1, seed = 1
-- update r: b = -b
-- update s: c = -c
-- update t: a = -a
-- view: triangles counted
SELECT count(*) AS triangles FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c AND t.a = r.a
-- view: triangles of each a
SELECT r.a, count(*) AS triangles FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c AND t.a = r.a GROUP BY r.a
-- view: triangles
SELECT r.a, r.b, s.c FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c AND t.a = r.a
-- view: paths of two counted
SELECT count(*) AS paths FROM r JOIN s ON s.b = r.b
-- view: paths of three counted
SELECT count(*) AS paths FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c
-- view: paths of three of each a
SELECT r.a, count(*) AS paths FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c GROUP BY r.a
-- view: rows with a partner
SELECT r.a, r.b FROM r WHERE EXISTS (SELECT FROM s WHERE s.b = r.b AND s.c > 100)
-- view: largest partner
SELECT r.b, max(s.c) AS most, count(*) AS pairs FROM r JOIN s ON s.b = r.b GROUP BY r.b

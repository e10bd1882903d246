-- References to an outer query from every clause of a subquery.
-- tables
CREATE TABLE o (id int PRIMARY KEY, a int, b int);
CREATE TABLE i (id int PRIMARY KEY, a int, c int);
INSERT INTO o VALUES (1, 1, 1), (2, 2, NULL), (3, NULL, 3), (4, 1, 0);
INSERT INTO i VALUES (1, 1, 5), (2, 1, 6), (3, 2, NULL), (4, NULL, 4), (5, 3, 1);
-- change
INSERT INTO i VALUES (6, 2, 9), (7, 1, 5);
UPDATE o SET b = 2 WHERE id = 2;
-- change
DELETE FROM i WHERE id IN (1, 7);
INSERT INTO o VALUES (5, 3, 2), (6, NULL, NULL);
-- change
UPDATE i SET a = 1, c = c + 1;
UPDATE o SET a = 1 WHERE a IS NULL;
-- change
DELETE FROM i;
-- views
-- each q: SELECT max(c + o.a) FROM i WHERE i.a = o.a | SELECT count(*) FROM i WHERE i.a = o.a HAVING count(*) > o.b | SELECT sum(c) FROM i GROUP BY i.a, o.a HAVING i.a = o.a | SELECT c FROM i ORDER BY abs(c - o.a), id LIMIT 1 | SELECT c FROM i ORDER BY id LIMIT 1 OFFSET greatest(o.a, 0) | SELECT id FROM i ORDER BY c NULLS LAST, id LIMIT coalesce((o.a > 1)::int, 0) | SELECT count(*) FILTER (WHERE c > o.b) FROM i | SELECT count(DISTINCT i.a + o.b) FROM i | SELECT length(string_agg(c::text, o.a::text ORDER BY id)) FROM i WHERE i.a >= o.a | SELECT max(r) FROM (SELECT rank() OVER (PARTITION BY i.a = o.a ORDER BY c) AS r FROM i) w | SELECT max(s) FROM (SELECT sum(c * o.a) OVER (ORDER BY id) AS s FROM i) w | SELECT count(*) FROM i LEFT JOIN i j ON j.a = o.a AND j.c = i.c | SELECT count(*) FROM (SELECT DISTINCT a, o.b FROM i) d | SELECT count(*) FROM (SELECT a FROM i WHERE c > o.b UNION ALL SELECT o.a) u | SELECT count(*) FROM (SELECT a FROM i EXCEPT SELECT o.a) u | SELECT sum(x) FROM i, LATERAL (SELECT i.c + o.a AS x) s | SELECT sum(g) FROM i, generate_series(o.a, i.c) AS g | SELECT CASE WHEN EXISTS (SELECT FROM i WHERE i.a = o.a AND EXISTS (SELECT FROM i j WHERE j.c > i.c AND j.id > o.id)) THEN 1 END | SELECT count(*) FROM i WHERE (i.a, o.b) IN (SELECT j.a, j.c - 5 FROM i j) | WITH w AS (SELECT c FROM i WHERE i.a = o.a) SELECT sum(x.c + y.c) FROM w x CROSS JOIN w y | SELECT v.x FROM (VALUES (1, 10), (2, 20)) AS v (k, x) WHERE v.k = o.a | SELECT array_length(ARRAY(SELECT c FROM i WHERE i.a = o.a), 1) | SELECT grouping(i.a) + max(i.c) - o.a FROM i GROUP BY ROLLUP (i.a) ORDER BY 1 NULLS LAST LIMIT 1 | SELECT min(c) FROM i WHERE i.a BETWEEN o.a AND o.b
SELECT id, ({q}) AS v FROM o;
SELECT id FROM o WHERE ({q}) > 1;
SELECT b, sum(({q})) AS s FROM o GROUP BY b;
SELECT o.id, p.id AS pid FROM o LEFT JOIN o p ON p.a = o.a AND ({q}) IS NOT NULL;
SELECT o.id, s.v FROM o LEFT JOIN LATERAL (SELECT ({q}) AS v) s ON s.v > 0;
SELECT ({q}) IS NULL AS none, count(*) AS n FROM o GROUP BY 1 HAVING count(*) > 0;
SELECT o.id, rank() OVER (ORDER BY ({q}) NULLS FIRST) AS r FROM o;

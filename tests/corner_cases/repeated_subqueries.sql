-- Subqueries that stand in GROUP BY and again in another clause.
-- tables
CREATE TABLE t (id int PRIMARY KEY, x int, g int);
CREATE TABLE e (id int PRIMARY KEY, y int, z int);
INSERT INTO t VALUES (1, 1, 1), (2, 2, 1), (3, 3, 2), (4, NULL, 2), (5, 1, 3);
INSERT INTO e VALUES (1, 1, 10), (2, 2, 20), (3, 2, NULL), (4, NULL, 5);
-- change
INSERT INTO t VALUES (6, 2, 5), (7, 9, 9);
UPDATE t SET x = x + 1 WHERE id IN (1, 4);
DELETE FROM t WHERE id = 3;
-- change
INSERT INTO e VALUES (10, 9, 1), (11, 4, 4), (12, 3, 20);
DELETE FROM e WHERE id = 1;
UPDATE e SET z = 7 WHERE id = 2;
-- change
DELETE FROM e;
-- views
-- each k: EXISTS (SELECT FROM e WHERE y = t.x) | t.x IN (SELECT y FROM e WHERE z > t.g) | (SELECT max(z) FROM e WHERE y = t.x) | coalesce((SELECT max(z) FROM e WHERE y = t.x), -1) | CASE WHEN EXISTS (SELECT FROM e WHERE y = t.x) THEN 'a' ELSE 'b' END | t.x > ALL (SELECT y FROM e WHERE z > t.g) | (NOT t.x = ANY (SELECT y FROM e)) | (SELECT z FROM e WHERE y = t.x ORDER BY e.id LIMIT 1) | (SELECT q.n FROM (SELECT y, count(*) AS n FROM e GROUP BY y) q WHERE q.y = t.x) | (WITH w AS (SELECT z FROM e WHERE y = t.x) SELECT min(z) FROM w) | (SELECT y FROM e WHERE y = t.x UNION SELECT z FROM e WHERE z = t.x) | (SELECT v.a FROM (VALUES (t.x + 1, 1)) v (a, b)) | (SELECT sum(s) FROM generate_series(1, t.x) s) | (SELECT count(*) FROM e WHERE EXISTS (SELECT FROM t u WHERE u.x = e.y AND u.g = t.g)) | t.g + (SELECT count(*) FROM e) | (t.x, t.g) IN (SELECT y, z / 10 FROM e)
SELECT {k} AS k, count(*) AS n FROM t GROUP BY 1;
SELECT count(*) AS n, max(id) AS m FROM t GROUP BY {k} HAVING {k} IS NOT NULL;
SELECT {k} AS k, g, count(*) AS n, grouping({k}) AS b FROM t GROUP BY ROLLUP (({k}), g);
SELECT DISTINCT ON ({k}) id, x, {k} AS k FROM t ORDER BY {k}, id;
SELECT g, array_agg(DISTINCT {k} ORDER BY {k}) AS ks FROM t GROUP BY g;
SELECT {k} AS k, rank() OVER (ORDER BY {k}) AS r, count(*) AS n FROM t GROUP BY {k}, g;
SELECT {k} AS k, count(*) FILTER (WHERE {k} IS NULL) AS nulls, count({k}) AS n FROM t GROUP BY {k} ORDER BY {k};
SELECT g, count(DISTINCT {k}) AS n FROM t GROUP BY g HAVING count(DISTINCT {k}) > 0;
SELECT {k} AS k FROM t INTERSECT SELECT {k} FROM t WHERE id > 2;
SELECT q.id, (SELECT count(*) FROM t WHERE t.g = q.g GROUP BY {k} ORDER BY {k} LIMIT 1) AS n FROM t q;
SELECT t.id, t.x, {k} AS k, count(*) AS n FROM t LEFT JOIN e f ON f.y = t.x GROUP BY t.id HAVING max(f.z) IS NULL OR {k} IS NOT NULL;
SELECT g, percentile_disc((SELECT 0.5)) WITHIN GROUP (ORDER BY id) AS p FROM t GROUP BY g;

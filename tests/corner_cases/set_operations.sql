-- Set operations of bags with NULLs, nested, with orders and limits, below joins and groups.
-- tables
CREATE TABLE a (x int, y text);
CREATE TABLE b (id int PRIMARY KEY, x int, y text);
INSERT INTO a VALUES (1, 'p'), (1, 'p'), (2, NULL), (NULL, NULL), (NULL, NULL), (3, 'q');
INSERT INTO b VALUES (1, 1, 'p'), (2, NULL, NULL), (3, 3, 'r'), (4, 3, 'q');
-- change
INSERT INTO a VALUES (1, 'p'), (4, 's'), (NULL, 'p');
DELETE FROM b WHERE id = 4;
-- change
UPDATE b SET x = 1, y = 'p' WHERE id = 2;
DELETE FROM a WHERE x IS NULL;
-- change
DELETE FROM a;
INSERT INTO b VALUES (7, NULL, NULL), (8, NULL, NULL);
-- views
-- each op: UNION | UNION ALL | INTERSECT | INTERSECT ALL | EXCEPT | EXCEPT ALL
SELECT x, y FROM a {op} SELECT x, y FROM b;
SELECT x, y FROM b {op} SELECT x, y FROM a;
SELECT x FROM a {op} SELECT x FROM b {op} SELECT id FROM b;
(SELECT x FROM a {op} SELECT x FROM b) UNION ALL SELECT id FROM b;
SELECT id FROM b {op} (SELECT x FROM a EXCEPT SELECT x FROM b);
SELECT x, count(*) AS n FROM (SELECT x, y FROM a {op} SELECT x, y FROM b) q GROUP BY x;
SELECT b.id, q.y FROM b JOIN (SELECT x, y FROM a {op} SELECT x, y FROM b) q ON q.x = b.x;
SELECT id FROM b WHERE x IN (SELECT x FROM a {op} SELECT id FROM b);
SELECT id, (SELECT count(*) FROM (SELECT y FROM a WHERE a.x = b.x {op} SELECT b.y) q) AS n FROM b;
SELECT x FROM a {op} SELECT x FROM b ORDER BY x NULLS FIRST LIMIT 3;
SELECT x::numeric AS v FROM a {op} SELECT id FROM b;
SELECT NULL AS v, x FROM a {op} SELECT y, x FROM b;
SELECT (x, y)::text AS r FROM a {op} SELECT (x, y)::text FROM b;
SELECT DISTINCT x FROM (SELECT x, y FROM a {op} SELECT x, y FROM b) q WHERE y IS NULL OR y > 'p';
SELECT x, rank() OVER (ORDER BY x) AS r FROM (SELECT x FROM a {op} SELECT x FROM b) q;
WITH w AS (SELECT x, y FROM a {op} SELECT x, y FROM b) SELECT p.x, q.y FROM w p JOIN w q ON q.x = p.x;
SELECT max(x) AS m, count(*) AS n FROM a {op} SELECT min(x), count(*) FROM b;
SELECT x, y FROM a {op} VALUES (1, 'p'), (1, 'p'), (NULL, NULL);

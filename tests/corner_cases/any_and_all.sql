-- ANY and ALL of arrays and of subqueries, with empty ones and NULLs.
-- tables
CREATE TABLE t (id int PRIMARY KEY, a int, xs int[], ws text[]);
CREATE TABLE s (id int PRIMARY KEY, a int, y int);
INSERT INTO t VALUES (1, 1, '{1,2}', '{a}'), (2, 2, '{}', NULL), (3, NULL, '{NULL,3}', '{a,b}'), (4, 3, NULL, '{}'), (5, 3, '{3,3,NULL}', '{NULL}');
INSERT INTO s VALUES (1, 1, 1), (2, 1, NULL), (3, 3, 2);
-- change
UPDATE t SET xs = xs || 2 WHERE id IN (2, 3);
INSERT INTO s VALUES (4, 2, 2), (5, NULL, 3);
-- change
UPDATE t SET a = a + 1 WHERE a > 1;
DELETE FROM s WHERE y IS NULL;
INSERT INTO t VALUES (6, 0, '{0}', '{z}');
-- change
DELETE FROM s;
UPDATE t SET xs = NULL WHERE id = 1;
-- views
-- each op: = | <> | < | <= | > | >=
-- each some: ANY | ALL
SELECT id, a {op} {some} (xs) AS v FROM t;
SELECT id FROM t WHERE a {op} {some} (xs);
SELECT id FROM t WHERE NOT (a {op} {some} (xs));
SELECT id, a {op} {some} (SELECT y FROM s) AS v FROM t;
SELECT id FROM t WHERE a {op} {some} (SELECT y FROM s WHERE s.a = t.a);
SELECT id, a {op} {some} (ARRAY(SELECT y FROM s WHERE s.a = t.a)) AS v FROM t;
SELECT a {op} {some} (xs) AS v, count(*) AS n FROM t GROUP BY 1;
SELECT count(*) FILTER (WHERE a {op} {some} (SELECT y FROM s WHERE s.id > t.id)) AS n FROM t;
SELECT t.id, s.id AS sid FROM t LEFT JOIN s ON s.y {op} {some} (t.xs);
SELECT s.a, count(*) AS n FROM s GROUP BY s.a HAVING max(s.y) {op} {some} (SELECT a FROM t);
-- each set: '{}'::int[] | NULL::int[] | ARRAY[1, NULL] | ARRAY[a, 2] | xs | xs || a | array_remove(xs, NULL)
SELECT id FROM t WHERE a = ANY ({set});
SELECT id FROM t WHERE a <> ALL ({set});
SELECT id, a IN (SELECT unnest({set})) AS v FROM t;
SELECT id, coalesce(cardinality({set}), -1) AS n, ({set})[1] AS first FROM t;
SELECT id, u FROM t, unnest({set}) AS u;
SELECT id, (SELECT sum(u) FROM unnest({set}) AS u) AS s FROM t;
SELECT count(*) AS n, max(a) AS m FROM t GROUP BY {set} ORDER BY {set};
-- each like: LIKE | ~~* | ~ | <> | >
SELECT id FROM t WHERE 'a' {like} ANY (ws);
SELECT id, 'ab' {like} ALL (ws) AS v FROM t;

-- NULLs in rows: comparisons of rows, IS NULL of rows, IN and NOT IN with rows.
-- tables
CREATE TABLE p (id int PRIMARY KEY, a int, b text, c numeric);
CREATE TABLE q (id int PRIMARY KEY, a int, b text, c numeric);
INSERT INTO p VALUES (1, 1, 'x', 1), (2, 1, NULL, 2), (3, NULL, 'x', 3), (4, NULL, NULL, NULL), (5, 2, 'y', NULL);
INSERT INTO q VALUES (1, 1, 'x', 1), (2, NULL, 'x', NULL), (3, 2, 'z', 5);
-- change
INSERT INTO q VALUES (4, NULL, NULL, NULL), (5, 1, 'x', 9);
UPDATE p SET b = 'x' WHERE id = 2;
-- change
DELETE FROM q WHERE a IS NULL;
UPDATE p SET a = NULL, c = 5 WHERE id = 5;
INSERT INTO p VALUES (6, 2, 'z', 5), (7, NULL, 'z', 5);
-- change
DELETE FROM q;
INSERT INTO p VALUES (8, NULL, NULL, NULL);
-- views
-- each op: = | <> | < | <= | > | >= | IS DISTINCT FROM | IS NOT DISTINCT FROM
SELECT id, (a, b) {op} (1, 'x') AS v FROM p;
SELECT id FROM p WHERE ROW(a, b, c) {op} ROW(1, 'x', 2);
SELECT p.id, q.id AS other FROM p JOIN q ON (p.a, p.b) {op} (q.a, q.b);
SELECT p.id, q.id AS other FROM p LEFT JOIN q ON ROW(p.a, p.c) {op} ROW(q.a, q.c);
SELECT (a, b) {op} (c::int, 'x') AS v, count(*) AS n FROM p GROUP BY 1;
-- each test: IS NULL | IS NOT NULL | IS NULL IS TRUE | IS NOT NULL IS NOT TRUE
SELECT id, ROW(a, b) {test} AS v FROM p;
SELECT id FROM p WHERE NOT ROW(a, b, c) {test};
SELECT p.id, ROW(q.a, q.b) {test} AS v FROM p LEFT JOIN q ON q.a = p.a;
SELECT count(*) FILTER (WHERE (a, b) {test}) AS n FROM p;
SELECT id, (SELECT ROW(q.a, q.b) {test} FROM q WHERE q.id = p.id) AS v FROM p;
-- each in: IN | NOT IN
SELECT id, (a, b) {in} (SELECT a, b FROM q) AS v FROM p;
SELECT id FROM p WHERE (a, b) {in} (SELECT a, b FROM q);
SELECT id FROM p WHERE a {in} (SELECT a FROM q);
SELECT id FROM p WHERE (a, b) {in} (SELECT q.a, q.b FROM q WHERE q.c > p.c);
SELECT id, (a, b) {in} ((1, 'x'), (2, NULL), (NULL, 'x')) AS v FROM p;
SELECT id FROM p WHERE (a, b) {in} (VALUES (1, 'x'), (NULL, 'y'));
SELECT id, (a, NULL::text) {in} (SELECT a, b FROM q) AS v FROM p;
SELECT id, NULL::int {in} (SELECT a FROM q WHERE q.id > p.id) AS v FROM p;
SELECT count(*) FILTER (WHERE (a, c) {in} (SELECT a, c FROM q)) AS n, count(*) AS every FROM p;
SELECT CASE WHEN a {in} (SELECT a FROM q WHERE b = p.b) THEN 'in' ELSE coalesce(b, 'null') END AS v, count(*) AS n FROM p GROUP BY 1;
SELECT id FROM p WHERE (a {in} (SELECT a FROM q)) IS UNKNOWN;
SELECT id FROM p WHERE NOT ((a, b) {in} (SELECT a, b FROM q)) OR c IS NULL;
SELECT id FROM p WHERE coalesce(a, -1) {in} (SELECT coalesce(a, -1) FROM q);
-- each row: (a, b) | (b, a, c) | ROW(a) | ROW(a + 1, b || 'x')
SELECT {row}::text AS r FROM p;
SELECT count(DISTINCT {row}) AS n FROM p;
SELECT id FROM p WHERE {row} = {row};
SELECT id FROM p WHERE {row} IS NOT DISTINCT FROM {row};
SELECT id, {row} IS NULL AS none, {row} IS NOT NULL AS every, NOT ({row} IS NULL) AS some FROM p;
SELECT max(id) AS m FROM p GROUP BY {row} HAVING count(*) >= 1;
-- each by: a, b | (a, b) | ROW(a, b) | a IS NULL, b | coalesce(a, 0), coalesce(b, '')
SELECT count(*) AS n, sum(c) AS s FROM p GROUP BY {by};
SELECT id, count(*) OVER (PARTITION BY {by}) AS n FROM p;
SELECT DISTINCT s.n FROM (SELECT count(*) AS n FROM p GROUP BY {by}) s;

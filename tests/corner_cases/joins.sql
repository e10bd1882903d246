-- Joins: USING and NATURAL with NULLs, FULL JOIN, joins inside joins, WITH ORDINALITY, LATERAL.
-- tables
CREATE TABLE l (id int PRIMARY KEY, k int, v text);
CREATE TABLE r (id int PRIMARY KEY, k bigint, v text);
CREATE TABLE m (k int, n int);
INSERT INTO l VALUES (1, 1, 'a'), (2, 1, 'b'), (3, NULL, 'c'), (4, 2, NULL);
INSERT INTO r VALUES (1, 1, 'a'), (2, 2, NULL), (5, NULL, 'c'), (6, 3, 'z');
INSERT INTO m VALUES (1, 1), (1, 1), (2, NULL), (NULL, 2);
-- change
INSERT INTO l VALUES (5, 3, 'z'), (6, NULL, NULL);
UPDATE r SET k = 1 WHERE id = 6;
INSERT INTO m VALUES (1, 1), (3, 3);
-- change
DELETE FROM r WHERE k = 1;
UPDATE l SET k = NULL WHERE id = 2;
DELETE FROM m WHERE n = 1;
-- change
DELETE FROM l;
INSERT INTO l VALUES (1, NULL, 'c'), (2, 2, NULL);
-- views
-- each join: JOIN | LEFT JOIN | RIGHT JOIN | FULL JOIN
SELECT id, l.k AS lk, r.v AS rv FROM l {join} r USING (id);
SELECT id, k, l.v AS lv, r.v AS rv FROM l {join} r USING (id, k);
SELECT k, count(*) AS n, min(l.v) AS lv FROM l {join} r USING (k) GROUP BY k;
SELECT * FROM l NATURAL {join} r;
SELECT j.a, j.b FROM (l {join} r USING (k)) AS j (a, b);
SELECT k, l.k AS lk, r.k AS rk FROM l {join} r USING (k);
SELECT k, n, v FROM m {join} l USING (k);
SELECT l.id, r.id AS rid FROM l {join} r ON l.k = r.k AND l.v = r.v;
SELECT l.id, r.id AS rid, m.n FROM l {join} r USING (k) {join} m USING (k);
SELECT l.id, q.n FROM l {join} (SELECT k, count(*) AS n FROM m GROUP BY k) q USING (k);
SELECT k FROM l {join} r USING (k) WHERE k IS NULL OR k > 1;
SELECT l.id FROM l {join} r USING (k) EXCEPT SELECT id FROM r;
SELECT DISTINCT k, coalesce(l.v, r.v) AS v FROM l {join} r USING (k);
SELECT l.id, j.rid FROM l {join} (SELECT r.id AS rid, m.k FROM r {join} m ON m.k = r.k) j ON j.k = l.k;
SELECT l.id, x.n FROM l {join} (VALUES (1, 'one'), (NULL, 'none'), (2, 'two')) AS x (k, n) ON x.k = l.k;
SELECT count(*) AS n, count(l.id) AS ls, count(r.id) AS rs FROM l {join} r ON l.k = r.k;
SELECT l.id, r.id AS rid, rank() OVER (ORDER BY l.id NULLS FIRST, r.id) AS n FROM l {join} r USING (k);
SELECT r.id, (SELECT count(*) FROM l {join} m USING (k) WHERE l.id < r.id OR m.n > r.k) AS n FROM r;
SELECT id FROM r WHERE EXISTS (SELECT FROM l {join} m ON m.k = l.k WHERE coalesce(l.k, m.k) = r.k);
-- each side: JOIN | LEFT JOIN
SELECT l.id, o.x, o.nth FROM l {side} LATERAL unnest(ARRAY[l.k, l.id]) WITH ORDINALITY AS o (x, nth) ON o.x > 1;
SELECT l.id, o.* FROM l {side} LATERAL ROWS FROM (generate_series(1, l.k), unnest(ARRAY[l.v])) WITH ORDINALITY AS o (a, b, c) ON true;
SELECT l.id, o.n FROM l {side} LATERAL (SELECT sum(r.k) AS n FROM r WHERE r.id > l.id) o ON o.n IS NOT NULL;
SELECT l.id, o.id AS rid FROM l {side} LATERAL (SELECT r.id FROM r WHERE r.k = l.k ORDER BY r.id DESC LIMIT 1) o ON true;
SELECT l.id, o.k FROM l {side} LATERAL (SELECT l.k UNION SELECT m.k FROM m WHERE m.n = l.id) o ON o.k IS NOT NULL;
SELECT l.id, a.x, b.y FROM l {side} LATERAL (SELECT l.k + 1 AS x) a ON true {side} LATERAL (SELECT a.x * 2 AS y WHERE a.x > 2) b ON true;
SELECT o.ch, count(*) AS n, max(o.nth) AS far FROM l {side} LATERAL regexp_split_to_table(l.v || '-x', '-') WITH ORDINALITY AS o (ch, nth) ON true GROUP BY o.ch;
-- each exists: EXISTS | NOT EXISTS
SELECT id FROM l WHERE {exists} (SELECT FROM r WHERE r.k = l.k AND r.v = l.v);
SELECT id FROM l WHERE {exists} (SELECT FROM m WHERE m.k = l.k HAVING count(*) > 1);
SELECT id FROM l WHERE {exists} (SELECT FROM m WHERE m.k = l.k GROUP BY m.n HAVING count(*) > 1);
SELECT id FROM l WHERE {exists} (SELECT FROM r JOIN m USING (k) WHERE r.id > l.id OR m.n = l.k);
SELECT k FROM m WHERE {exists} (SELECT 1 FROM l WHERE l.k = m.k INTERSECT SELECT m.n FROM r WHERE r.k = m.k);
SELECT id, {exists} (SELECT FROM m WHERE m.k = l.k OFFSET 1) AS several FROM l;

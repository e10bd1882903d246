-- Aggregates: FILTER, DISTINCT, ORDER BY and WITHIN GROUP in all combinations, with NULLs and empty groups.
-- tables
CREATE TABLE t (id int PRIMARY KEY, g int, a int, b numeric, w text);
CREATE TABLE s (id int PRIMARY KEY, g int, y int);
INSERT INTO t VALUES (1, 1, 1, 1.5, 'x'), (2, 1, NULL, 2, 'y'), (3, 1, 1, NULL, 'x'), (4, 2, 3, 3, NULL), (5, 2, 4, 3, 'z'), (6, NULL, NULL, NULL, NULL);
INSERT INTO s VALUES (1, 1, 1), (2, 2, 2), (3, 2, NULL);
-- change
INSERT INTO t VALUES (7, 3, 7, 7, 'q'), (8, 1, 2, 0, 'y'), (9, NULL, 1, 1, 'n');
UPDATE t SET g = 2 WHERE id = 1;
-- change
DELETE FROM t WHERE g = 3;
UPDATE t SET a = NULL WHERE g = 2;
UPDATE s SET y = 9 WHERE id = 1;
-- change
DELETE FROM t;
INSERT INTO t VALUES (1, 5, 5, 5, 'five');
-- views
-- each agg: count(*) | count(a) | count(DISTINCT a) | sum(a) | sum(DISTINCT a) | avg(b) | avg(DISTINCT b) | min(w) | max(b) | array_agg(a ORDER BY id) | array_agg(DISTINCT a) | array_agg(DISTINCT w ORDER BY w DESC) | string_agg(w, ',' ORDER BY id DESC) | string_agg(DISTINCT w, '-' ORDER BY w) | bool_and(a > 1) | bool_or(b IS NULL) | every(w > 'x') | bit_or(a) | bit_and(DISTINCT a) | variance(a) | stddev_pop(b) | json_agg(a ORDER BY id) | jsonb_object_agg(id, w) | percentile_disc(0.5) WITHIN GROUP (ORDER BY a) | mode() WITHIN GROUP (ORDER BY w) | rank(2) WITHIN GROUP (ORDER BY a) | dense_rank('x') WITHIN GROUP (ORDER BY w DESC) | regr_count(a, b) | count((a, b)) | min(ARRAY[a, id])
SELECT g, {agg} AS v FROM t GROUP BY g;
SELECT {agg} AS v FROM t;
SELECT g, {agg} FILTER (WHERE b > 1) AS v, {agg} FILTER (WHERE false) AS none FROM t GROUP BY g;
SELECT t.g, {agg} FILTER (WHERE t.g IN (SELECT g FROM s WHERE y > 1)) AS v FROM t GROUP BY t.g;
SELECT g FROM t GROUP BY g HAVING {agg} IS NULL;
SELECT x.g, (SELECT {agg} FROM t WHERE t.g = x.g) AS v FROM s x;
SELECT x.id, q.v FROM s x LEFT JOIN LATERAL (SELECT {agg} AS v FROM t WHERE t.g >= x.g HAVING count(*) > 1) q ON true;
-- each window: sum(a) | count(DISTINCT a) | string_agg(w, ',' ORDER BY id) | max(b) FILTER (WHERE a > 0)
SELECT g, {window} AS v, rank() OVER (ORDER BY g) AS r, sum(count(*)) OVER (ORDER BY g) AS n FROM t GROUP BY g;
SELECT g, v FROM (SELECT g, {window} AS v FROM t GROUP BY g) q WHERE g > 1 OR g IS NULL;
SELECT v, count(*) AS n FROM (SELECT g, {window} AS v FROM t GROUP BY g) q GROUP BY v;

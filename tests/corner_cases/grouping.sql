-- Grouping sets and GROUPING(), over columns, expressions and NULLs that are values.
-- tables
CREATE TABLE t (id int PRIMARY KEY, a int, b text, c int);
INSERT INTO t VALUES (1, 1, 'x', 1), (2, 1, 'y', 2), (3, NULL, 'x', 3), (4, 2, NULL, 4), (5, NULL, NULL, 5);
-- change
INSERT INTO t VALUES (6, 2, 'x', 6), (7, 3, 'z', NULL);
UPDATE t SET b = NULL WHERE id = 1;
-- change
DELETE FROM t WHERE a IS NULL;
UPDATE t SET a = NULL WHERE id = 6;
-- change
TRUNCATE t;
-- change
INSERT INTO t VALUES (1, NULL, NULL, NULL);
-- views
-- each sets: ROLLUP (a, b) | CUBE (a, b) | GROUPING SETS ((a), (b)) | GROUPING SETS ((a, b), (a), ()) | GROUPING SETS ((), ()), a, b | a, ROLLUP (b) | ROLLUP (a), CUBE (b) | DISTINCT ROLLUP (a, b), ROLLUP (a) | GROUPING SETS (ROLLUP (a, b), CUBE (b)) | GROUPING SETS ((a, b), (b, a)), ()
SELECT a, b, count(*) AS n FROM t GROUP BY {sets};
SELECT a, b, grouping(a) AS ga, grouping(b) AS gb, grouping(a, b) AS g, sum(c) AS s FROM t GROUP BY {sets};
SELECT a, b, sum(c) FILTER (WHERE c > 1) AS s FROM t GROUP BY {sets} HAVING grouping(a) = 0 OR count(*) > 1;
SELECT coalesce(a, -1) AS a, b IS NULL AS none, count(DISTINCT c) AS n FROM t GROUP BY {sets};
SELECT a, b, rank() OVER (PARTITION BY grouping(a, b) ORDER BY count(*)) AS r FROM t GROUP BY {sets};
SELECT a, count(*) AS n FROM (SELECT a, b, max(c) AS m FROM t GROUP BY {sets}) q GROUP BY a;
SELECT a, b, count(*) AS n, min(c) AS m FROM t WHERE c > 1 GROUP BY {sets} HAVING min(c) IS NOT NULL;
SELECT x.a, x.n, t.id FROM (SELECT a, b, count(*) AS n FROM t GROUP BY {sets}) x JOIN t ON t.a = x.a;
-- each key: a % 2 | a IS NULL | upper(b) | coalesce(b, 'none') | a + length(b) | CASE WHEN a > 1 THEN b END
SELECT {key} AS k, count(*) AS n FROM t GROUP BY ROLLUP ({key});
SELECT {key} AS k, c % 2 AS odd, grouping({key}) AS g, count(*) AS n FROM t GROUP BY CUBE ({key}, c % 2);
SELECT {key} AS k, grouping({key}, a) AS g, sum(c) AS s FROM t GROUP BY GROUPING SETS (({key}, a), ({key}), ());
SELECT max(c) AS m FROM t GROUP BY GROUPING SETS (({key}), ()) HAVING grouping({key}) = 1 OR max(c) > 1;

-- Window frames: ROWS, RANGE and GROUPS, EXCLUDE, RANGE of intervals and numerics, NULLs first and last.
-- tables
CREATE TABLE t (id int PRIMARY KEY, g int, d date, ts timestamp, n numeric, v int);
INSERT INTO t VALUES (1, 1, '2024-01-01', '2024-01-01 10:00', 1, 10), (2, 1, '2024-01-02', '2024-01-01 10:30', 1.5, 20), (3, 1, '2024-01-02', '2024-01-01 12:00', NULL, 30), (4, 2, NULL, NULL, 2, NULL), (5, 2, '2024-02-01', '2024-01-02', 7, 50);
-- change
INSERT INTO t VALUES (6, 1, '2024-01-03', '2024-01-01 10:15', 1.2, 5), (7, 2, NULL, '2024-01-02 00:10', NULL, 7), (8, NULL, '2024-01-31', '2024-03-01', 3, 8);
-- change
UPDATE t SET d = d + 1 WHERE id < 3;
UPDATE t SET g = 2 WHERE id = 3;
DELETE FROM t WHERE id = 5;
-- change
UPDATE t SET v = NULL WHERE g = 1;
-- views
-- each exclude: EXCLUDE NO OTHERS | EXCLUDE CURRENT ROW | EXCLUDE GROUP | EXCLUDE TIES
-- each rows: ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING | ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW | ROWS BETWEEN 2 FOLLOWING AND UNBOUNDED FOLLOWING
-- each of: sum(v) | count(*) | array_agg(v ORDER BY id)
SELECT id, sum(v) OVER (PARTITION BY g ORDER BY id {rows} {exclude}) AS s FROM t;
SELECT id, count(*) OVER (ORDER BY id {rows} {exclude}) AS s, first_value(v) OVER (ORDER BY id {rows} {exclude}) AS f FROM t;
SELECT id, sum(v) FILTER (WHERE v > 5) OVER (PARTITION BY g ORDER BY id DESC {rows} {exclude}) AS s FROM t;
SELECT id, nth_value(id, 2) OVER (PARTITION BY g ORDER BY id {rows} {exclude}) AS s FROM t;
-- each range: d RANGE BETWEEN '1 day' PRECEDING AND '1 day' FOLLOWING | d RANGE BETWEEN '1 month' PRECEDING AND CURRENT ROW | ts RANGE BETWEEN '30 minutes' PRECEDING AND '1 hour' FOLLOWING | ts DESC RANGE BETWEEN '1 hour' PRECEDING AND '0' FOLLOWING | n RANGE BETWEEN 0.5 PRECEDING AND 0.5 FOLLOWING | n DESC NULLS FIRST RANGE BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING | d NULLS FIRST RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING | d GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW | n GROUPS BETWEEN CURRENT ROW AND 1 FOLLOWING | g, d RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
SELECT id, sum(v) OVER (ORDER BY {range} {exclude}) AS s FROM t;
SELECT id, count(v) OVER (PARTITION BY g ORDER BY {range} {exclude}) AS s FROM t;
SELECT id, max(v) OVER (PARTITION BY g % 2 ORDER BY {range} {exclude}) AS s, min(id) OVER (ORDER BY {range} {exclude}) AS m FROM t;
-- each by: id | d, id | n NULLS FIRST, id | ts DESC, id
SELECT id, lag(v) OVER (PARTITION BY g ORDER BY {by}) AS l, lead(v, 2, -1) OVER (ORDER BY {by}) AS m FROM t;
SELECT id, row_number() OVER (ORDER BY {by}) AS r, ntile(3) OVER (PARTITION BY g ORDER BY {by}) AS n FROM t;
SELECT id, last_value(v) OVER (PARTITION BY g ORDER BY {by} ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS l FROM t;
SELECT * FROM (SELECT id, g, row_number() OVER (PARTITION BY g ORDER BY {by}) AS r FROM t) q WHERE r <= 2;

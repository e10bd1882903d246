-- Whole rows, composite types, domains over arrays, enums, ranges, polymorphic functions.
-- tables
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE DOMAIN few AS int[] CHECK (cardinality(VALUE) < 5);
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE TYPE pair AS (x int, y text);
CREATE FUNCTION either(anyelement, anyelement) RETURNS anyelement LANGUAGE sql IMMUTABLE AS 'SELECT coalesce($1, $2)';
CREATE FUNCTION wrapped(anyelement) RETURNS anyarray LANGUAGE sql IMMUTABLE AS 'SELECT ARRAY[$1]';
CREATE FUNCTION last_of(anyarray) RETURNS anyelement LANGUAGE sql IMMUTABLE AS 'SELECT $1[cardinality($1)]';
CREATE TABLE t (id int PRIMARY KEY, p positive, f few, m mood, c pair, r int4range, j jsonb, ts timestamptz, bits bit(4), u uuid);
INSERT INTO t VALUES
(1, 1, '{1,2}', 'ok', '(1,a)', '[1,5)', '{"a": 1}', '2024-01-01 00:00+00', '0101', '00000000-0000-0000-0000-000000000001'),
(2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
(3, 3, '{}', 'sad', '(,)', 'empty', '[]', 'infinity', '0000', '00000000-0000-0000-0000-000000000003'),
(4, 3, '{NULL,4}', 'happy', '(2,)', '(,3]', 'null', '-infinity', '1111', NULL);
-- change
INSERT INTO t VALUES (5, 5, '{5}', 'ok', '(1,a)', '[4,)', '{"a": [1, {"b": null}]}', '2024-06-01 00:00+02', '0011', NULL);
UPDATE t SET p = 2, f = f || 9 WHERE id IN (1, 3);
-- change
UPDATE t SET m = 'happy', c = ROW(7, 'q'), j = '{"a": 2}' WHERE id < 3;
DELETE FROM t WHERE id = 4;
-- change
UPDATE t SET f = NULL, r = NULL, c = NULL;
-- views
-- each e: p | p + 1 | f | f[1] | array_append(f::int[], 7) | m | m > 'sad' | c | (c).x | (c).y | c IS NULL | c IS NOT NULL | (c).x IS NULL | r | lower(r) | r @> 2 | isempty(r) | j | j -> 'a' | j ->> 'a' | jsonb_typeof(j) | ts > '2024-01-01' | ts | bits | bits & '0110' | u | either(p::int, id) | wrapped(id) | last_of(f::int[]) | wrapped(m) | either(m, 'ok'::mood) | to_jsonb(t) -> 'm' | (t.c).x + id | cardinality(f) | enum_range(m, 'happy') | r * int4range(2, 4)
SELECT id, {e} AS v FROM t;
SELECT count(*) AS n, count({e}) AS known FROM t WHERE id > 1;
SELECT count({e}) FILTER (WHERE {e} IS NOT NULL) AS n, p FROM t GROUP BY p;
SELECT q.id, q.v, s.id AS sid FROM (SELECT id, ({e})::text AS v FROM t) q LEFT JOIN t s ON s.p = q.id;
SELECT id FROM t WHERE ({e}) IS NOT DISTINCT FROM ({e}) ORDER BY id;
SELECT ({e})::text AS v, count(*) AS n FROM t GROUP BY 1;
-- each g: p | f | m | r | j | ts | bits | u | c | wrapped(m) | (c).y
SELECT {g} AS v, count(*) AS n FROM t GROUP BY {g};
SELECT DISTINCT {g} AS v FROM t;
SELECT max(id) AS id FROM t GROUP BY {g} HAVING {g} IS NOT NULL;
SELECT id, count(*) OVER (PARTITION BY {g}) AS n, dense_rank() OVER (ORDER BY {g}) AS place FROM t;
SELECT DISTINCT ON ({g}) id, {g} AS v FROM t ORDER BY {g}, id;
SELECT {g} AS v FROM t UNION SELECT {g} FROM t WHERE id > 2;
SELECT {g} AS v FROM t EXCEPT ALL SELECT {g} FROM t WHERE id > 2;
SELECT a.id, b.id AS other FROM (SELECT id, {g} AS g FROM t) a JOIN (SELECT id, {g} AS g FROM t) b ON a.g = b.g AND a.id < b.id;
SELECT id FROM t WHERE {g} IN (SELECT {g} FROM t s WHERE s.id <> t.id);
SELECT id, (SELECT count(*) FROM (SELECT id AS sid, {g} AS g FROM t) s WHERE s.g = {g}) AS n FROM t;
-- each w: to_jsonb(t) | row_to_json(t)::text | t::text | jsonb_agg(t) OVER (PARTITION BY id) | count(t) OVER () | t IS NULL | (t).id | num_nulls(t)
SELECT id, {w} AS v FROM t;
SELECT s.id, q.v FROM t s LEFT JOIN (SELECT id, {w} AS v FROM t WHERE p > 1) q ON q.id = s.id + 1;

-- Three copies of the follows of a social network, in the order in which they arrive: r(a, b), s(b, c), t(c, a).
--
--   SET bench.rows = 100000;      follows, about
--   SET bench.vertices = 5000;    users
--   SET bench.seed = 1;
--
-- It imitates Twitter's graph: its degrees have heavy tails, and who follows whom is correlated. User numbers are
-- `vertices` times the cube of a uniform number, so that user 1 has a few percent of all follows and most users
-- have a few. Half of the follows stay in a community of 50 users with neighboring numbers, which closes triangles.

CREATE TABLE follows AS
SELECT n, a, b
FROM (
    SELECT DISTINCT ON (a, b) n, a, b
    FROM (SELECT current_setting('bench.vertices')::integer, current_setting('bench.seed')::bigint) AS given (vertices, seed),
         generate_series(1, current_setting('bench.rows')::integer) AS n,
         LATERAL (SELECT (hashint8extended(3 * n, seed) & 1048575) / 1048576.0 AS x,
                         (hashint8extended(3 * n + 1, seed) & 1048575) / 1048576.0 AS y,
                         hashint8extended(3 * n + 2, seed) & 1 = 1 AS local) AS u,
         LATERAL (SELECT 1 + floor(vertices * power(x, 3))::integer AS a) AS follower,
         LATERAL (SELECT CASE WHEN local THEN a - a % 50 + 1 + floor(50 * y)::integer
                              ELSE 1 + floor(vertices * power(y, 3))::integer END AS b) AS followed
    WHERE a <> b
    ORDER BY a, b, n
) AS follow;
CREATE TABLE r AS SELECT a, b FROM follows ORDER BY n;
CREATE TABLE s AS SELECT a AS b, b AS c FROM follows ORDER BY n;
CREATE TABLE t AS SELECT a AS c, b AS a FROM follows ORDER BY n;
DROP TABLE follows;
ALTER TABLE r ADD PRIMARY KEY (a, b);
ALTER TABLE s ADD PRIMARY KEY (b, c);
ALTER TABLE t ADD PRIMARY KEY (c, a);
CREATE INDEX ON r (b, a);
CREATE INDEX ON s (c, b);
CREATE INDEX ON t (a, c);

-- The number of 4-cycles over four tables.
-- strategy: skew

-- as joins
SELECT count(*) AS n FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c JOIN m ON m.src = t.a AND m.dst = r.a;

-- with commas
SELECT count(*) AS n FROM r, s, t, m WHERE r.b = s.b AND s.c = t.c AND t.a = m.src AND m.dst = r.a;

-- with USING
SELECT count(*) AS n FROM r JOIN s USING (b) JOIN (SELECT c, a AS d FROM t) AS t USING (c) JOIN m AS m (d, a) USING (d, a);

-- with halves in CTEs
WITH rs AS (SELECT r.a, s.c FROM r JOIN s ON s.b = r.b), tm AS (SELECT t.c, m.dst AS a FROM t JOIN m ON m.src = t.a) SELECT count(*) AS n FROM rs JOIN tm USING (c, a);

-- with a CTE that is stored
WITH rs AS MATERIALIZED (SELECT r.a, s.c FROM r JOIN s ON s.b = r.b) SELECT count(*) AS n FROM rs, t, m WHERE t.c = rs.c AND m.src = t.a AND m.dst = rs.a;

-- with row comparison
SELECT count(*) AS n FROM (r JOIN s ON s.b = r.b) JOIN (t JOIN m ON m.src = t.a) ON (t.c, m.dst) = (s.c, r.a);

-- with LATERAL
SELECT count(*) AS n FROM r CROSS JOIN LATERAL (SELECT s.c, t.a AS d FROM s JOIN t ON t.c = s.c WHERE s.b = r.b) AS q JOIN m ON m.src = q.d AND m.dst = r.a;

-- as a scalar subquery
SELECT (SELECT count(*) FROM r, s, t, m WHERE r.b = s.b AND s.c = t.c AND t.a = m.src AND m.dst = r.a) AS n;

-- with a table joined twice by its key
SELECT count(*) AS n FROM r JOIN s ON s.b = r.b JOIN s AS again ON again.id = s.id JOIN t ON t.c = again.c JOIN m ON m.src = t.a AND m.dst = r.a;

-- with equalities that follow from others
SELECT count(*) AS n FROM r, s, t, m WHERE r.b = s.b AND s.c = t.c AND t.a = m.src AND m.dst = r.a AND r.b IS NOT NULL AND t.c = s.c;

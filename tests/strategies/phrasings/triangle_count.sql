-- The number of triangles over three tables.
-- strategy: skew

-- as joins
SELECT count(*) AS n FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c AND t.a = r.a;

-- with commas
SELECT count(*) AS n FROM r, s, t WHERE r.b = s.b AND s.c = t.c AND t.a = r.a;

-- with USING
SELECT count(*) AS n FROM r JOIN s USING (b) JOIN t USING (c, a);

-- with a CTE used once
WITH rs AS (SELECT r.a, s.c FROM r JOIN s ON s.b = r.b) SELECT count(*) AS n FROM rs JOIN t ON t.c = rs.c AND t.a = rs.a;

-- with a CTE that is stored
WITH rs AS MATERIALIZED (SELECT r.a, s.c FROM r JOIN s ON s.b = r.b) SELECT count(*) AS n FROM rs, t WHERE t.c = rs.c AND t.a = rs.a;

-- with subqueries in FROM
SELECT count(1) AS n FROM (SELECT a, b AS k FROM r) AS p JOIN (SELECT b AS k, c FROM s) AS q ON q.k = p.k JOIN t ON (t.c, t.a) = (q.c, p.a);

-- with LATERAL
SELECT count(*) AS n FROM r CROSS JOIN LATERAL (SELECT s.c FROM s WHERE s.b = r.b) AS q JOIN t ON t.c = q.c AND t.a = r.a;

-- as a scalar subquery
SELECT (SELECT count(*) FROM r, s, t WHERE r.b = s.b AND s.c = t.c AND t.a = r.a) AS n;

-- with a table joined twice by its key
SELECT count(*) AS n FROM r JOIN r AS again ON again.id = r.id JOIN s ON s.b = again.b JOIN t ON t.c = s.c AND t.a = r.a;

-- with equalities that follow from others
SELECT count(*) AS n FROM r, s, t WHERE r.b = s.b AND s.c = t.c AND t.a = r.a AND s.b = r.b AND r.a IS NOT NULL;

-- Triangles by one of their corners.
-- strategy: skew

-- as joins
SELECT t.a, count(*) AS n FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c AND t.a = r.a GROUP BY t.a;

-- by the other name of the corner
SELECT r.a, count(*) AS n FROM r, s, t WHERE r.b = s.b AND s.c = t.c AND t.a = r.a GROUP BY r.a;

-- with USING
SELECT a, count(*) AS n FROM r JOIN s USING (b) JOIN t USING (c, a) GROUP BY a;

-- with the grouping in a CTE
WITH counted AS (SELECT t.a, count(*) AS n FROM r, s, t WHERE r.b = s.b AND s.c = t.c AND t.a = r.a GROUP BY t.a) SELECT a, n FROM counted;

-- with the triangles in a CTE
WITH found AS (SELECT t.a FROM r, s, t WHERE r.b = s.b AND s.c = t.c AND t.a = r.a) SELECT a, count(*) AS n FROM found GROUP BY 1;

-- with sum(1)
SELECT t.a, sum(1) AS n FROM r, s, t WHERE r.b = s.b AND s.c = t.c AND t.a = r.a GROUP BY t.a;

-- with a column that is never NULL
SELECT t.a, count(s.id) AS n FROM r, s, t WHERE r.b = s.b AND s.c = t.c AND t.a = r.a GROUP BY t.a;

-- with IN over a key
SELECT t.a, count(*) AS n FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c AND t.a = r.a WHERE r.id IN (SELECT o.id FROM r AS o) GROUP BY t.a;

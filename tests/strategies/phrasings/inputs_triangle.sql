-- Triangles that are asked by an edge.
-- strategy: viewtree
-- options: inputs = a, b

-- as joins
SELECT r.a, r.b, s.c, count(*) AS n FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c AND t.a = r.a GROUP BY r.a, r.b, s.c;

-- with commas
SELECT r.a, r.b, s.c, count(*) AS n FROM r, s, t WHERE s.b = r.b AND t.c = s.c AND t.a = r.a GROUP BY 1, 2, 3;

-- by the other names
SELECT t.a, s.b, t.c, count(*) AS n FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c AND t.a = r.a GROUP BY t.a, s.b, t.c;

-- with USING
SELECT a, b, c, count(*) AS n FROM r JOIN s USING (b) JOIN t USING (c, a) GROUP BY a, b, c;

-- with a CTE
WITH j AS (SELECT r.a, r.b, s.c FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c AND t.a = r.a) SELECT a, b, c, count(*) AS n FROM j GROUP BY a, b, c;

-- with a CTE for two tables
WITH rs AS (SELECT r.a, r.b, s.c FROM r JOIN s ON s.b = r.b) SELECT rs.a, rs.b, rs.c, count(*) AS n FROM rs JOIN t ON t.c = rs.c AND t.a = rs.a GROUP BY rs.a, rs.b, rs.c;

-- over a CTE of groups
WITH g AS (SELECT r.a, r.b, s.c, count(*) AS n FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c AND t.a = r.a GROUP BY r.a, r.b, s.c) SELECT a, b, c, n FROM g;

-- sorted
SELECT r.a, r.b, s.c, count(*) AS n FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c AND t.a = r.a GROUP BY r.a, r.b, s.c ORDER BY n;

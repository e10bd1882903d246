-- The corners with most triangles.
-- strategy: skew

-- as joins
SELECT t.a, count(*) AS n FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c AND t.a = r.a GROUP BY t.a ORDER BY n DESC, t.a LIMIT 3;

-- with commas
SELECT t.a, count(*) AS n FROM r, s, t WHERE s.b = r.b AND t.c = s.c AND t.a = r.a GROUP BY t.a ORDER BY 2 DESC, 1 LIMIT 3;

-- with FETCH
SELECT t.a, count(*) AS n FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c AND t.a = r.a GROUP BY t.a ORDER BY n DESC, t.a FETCH FIRST 3 ROWS ONLY;

-- over a CTE
WITH g AS (SELECT t.a, count(*) AS n FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c AND t.a = r.a GROUP BY t.a) SELECT a, n FROM g ORDER BY n DESC, a LIMIT 3;

-- over a subquery
SELECT * FROM (SELECT t.a, count(*) AS n FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c AND t.a = r.a GROUP BY t.a) AS g ORDER BY n DESC, a LIMIT 3;

-- in a subquery
SELECT * FROM (SELECT t.a, count(*) AS n FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c AND t.a = r.a GROUP BY t.a ORDER BY n DESC, t.a LIMIT 3) AS g;

-- with USING
SELECT a, count(*) AS n FROM r JOIN s USING (b) JOIN t USING (c, a) GROUP BY a ORDER BY count(*) DESC, a LIMIT 3;

-- with OFFSET 0
SELECT t.a, count(*) AS n FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c AND t.a = r.a GROUP BY t.a ORDER BY n DESC, t.a LIMIT 3 OFFSET 0;

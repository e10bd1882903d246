-- Triangles by all of their corners.
-- strategy: skew

-- as joins
SELECT r.a, s.b, t.c, count(*) AS n FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c AND t.a = r.a GROUP BY r.a, s.b, t.c;

-- with commas
SELECT r.a, s.b, t.c, count(*) AS n FROM r, s, t WHERE r.a = t.a AND r.b = s.b AND s.c = t.c GROUP BY 1, 2, 3;

-- with USING
SELECT a, b, c, count(*) AS n FROM r JOIN s USING (b) JOIN t USING (a, c) GROUP BY a, b, c;

-- with a CTE for each table
WITH p AS (SELECT a, b FROM r), q AS (SELECT b, c FROM s), o AS (SELECT c, a FROM t) SELECT p.a, q.b, o.c, count(*) AS n FROM p JOIN q ON q.b = p.b JOIN o ON o.c = q.c AND o.a = p.a GROUP BY p.a, q.b, o.c;

-- with EXISTS over a key
SELECT r.a, s.b, t.c, count(*) AS n FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c AND t.a = r.a WHERE EXISTS (SELECT FROM s AS o WHERE o.id = s.id) GROUP BY r.a, s.b, t.c;

-- with a FILTER that always holds
SELECT r.a, s.b, t.c, count(*) FILTER (WHERE true) AS n FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c AND t.a = r.a GROUP BY r.a, s.b, t.c;

-- sorted
SELECT r.a, s.b, t.c, count(*) AS n FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c AND t.a = r.a GROUP BY r.a, s.b, t.c ORDER BY r.a, s.b;

-- with parentheses around joins
SELECT r.a, s.b, t.c, count(*) AS n FROM r JOIN (s JOIN t ON t.c = s.c) ON s.b = r.b AND t.a = r.a GROUP BY r.a, s.b, t.c;

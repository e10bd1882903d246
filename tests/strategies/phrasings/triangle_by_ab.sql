-- Triangles by two of their corners.
-- strategy: skew

-- as joins
SELECT r.a, s.b, count(*) AS n FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c AND t.a = r.a GROUP BY r.a, s.b;

-- with commas
SELECT r.a, r.b, count(*) AS n FROM t, s, r WHERE r.b = s.b AND s.c = t.c AND t.a = r.a GROUP BY r.b, r.a;

-- with NATURAL joins
SELECT a, b, count(*) AS n FROM (SELECT a, b FROM r) AS r NATURAL JOIN (SELECT b, c FROM s) AS s NATURAL JOIN (SELECT c, a FROM t) AS t GROUP BY a, b;

-- with the condition in WHERE
SELECT r.a, s.b, count(*) AS n FROM r CROSS JOIN s CROSS JOIN t WHERE s.b = r.b AND t.c = s.c AND t.a = r.a GROUP BY r.a, s.b;

-- with IS NOT DISTINCT FROM beside conditions that exclude NULL
SELECT r.a, s.b, count(*) AS n FROM r JOIN s ON s.b IS NOT DISTINCT FROM r.b JOIN t ON t.c = s.c AND t.a = r.a WHERE r.b IS NOT NULL GROUP BY r.a, s.b;

-- as an outer join that is none
SELECT r.a, s.b, count(*) AS n FROM r LEFT JOIN s ON s.b = r.b LEFT JOIN t ON t.c = s.c AND t.a = r.a WHERE t.c IS NOT NULL GROUP BY r.a, s.b;

-- with DISTINCT on top
SELECT DISTINCT r.a, s.b, count(*) AS n FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c AND t.a = r.a GROUP BY r.a, s.b;

-- with a filter over a subquery
SELECT q.a, q.b, q.n FROM (SELECT r.a, s.b, count(*) AS n FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c AND t.a = r.a GROUP BY r.a, s.b) AS q;

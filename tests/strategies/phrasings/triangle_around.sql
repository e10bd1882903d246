-- Triangles by a corner, with the name of the corner from a keyed table.
-- strategy: skew

-- as a left join of the groups
SELECT g.a, d.name, g.n FROM (SELECT t.a, count(*) AS n FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c AND t.a = r.a GROUP BY t.a) AS g LEFT JOIN d ON d.k = g.a;

-- as a left join below the groups
SELECT t.a, d.name, count(*) AS n FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c AND t.a = r.a LEFT JOIN d ON d.k = t.a GROUP BY t.a, d.name;

-- with a CTE
WITH g AS (SELECT t.a, count(*) AS n FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c AND t.a = r.a GROUP BY t.a) SELECT g.a, d.name, g.n FROM g LEFT JOIN d ON d.k = g.a;

-- as a scalar subquery
SELECT t.a, (SELECT d.name FROM d WHERE d.k = t.a) AS name, count(*) AS n FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c AND t.a = r.a GROUP BY t.a;

-- as a right join
SELECT g.a, d.name, g.n FROM d RIGHT JOIN (SELECT t.a, count(*) AS n FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c AND t.a = r.a GROUP BY t.a) AS g ON d.k = g.a;

-- with LATERAL
SELECT g.a, l.name, g.n FROM (SELECT t.a, count(*) AS n FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c AND t.a = r.a GROUP BY t.a) AS g LEFT JOIN LATERAL (SELECT d.name FROM d WHERE d.k = g.a) AS l ON true;

-- grouped by the key of the table
SELECT t.a, d.name, count(*) AS n FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c AND t.a = r.a LEFT JOIN d ON d.k = t.a GROUP BY t.a, d.k;

-- with the left join first
SELECT r.a, d.name, count(*) AS n FROM r LEFT JOIN d ON d.k = r.a JOIN s ON s.b = r.b JOIN t ON t.c = s.c AND t.a = r.a GROUP BY r.a, d.name;

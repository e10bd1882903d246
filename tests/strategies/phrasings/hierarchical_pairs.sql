-- Pairs that share a value which is not shown.
-- strategy: skew

-- as a join
SELECT r.a, s.c, count(*) AS n FROM r JOIN s ON s.b = r.b GROUP BY r.a, s.c;

-- with commas
SELECT r.a, s.c, count(*) AS n FROM r, s WHERE r.b = s.b GROUP BY s.c, r.a;

-- with USING
SELECT a, c, count(*) AS n FROM r JOIN s USING (b) GROUP BY a, c;

-- with the join in a CTE
WITH j AS (SELECT r.a, s.c FROM r JOIN s ON s.b = r.b) SELECT a, c, count(*) AS n FROM j GROUP BY a, c;

-- with the grouping in a CTE
WITH g AS (SELECT r.a, s.c, count(*) AS n FROM r JOIN s ON s.b = r.b GROUP BY r.a, s.c) SELECT * FROM g;

-- with LATERAL
SELECT r.a, l.c, count(*) AS n FROM r, LATERAL (SELECT s.c FROM s WHERE s.b = r.b) AS l GROUP BY r.a, l.c;

-- with a table joined twice by its key
SELECT r.a, s.c, count(*) AS n FROM r JOIN s ON s.b = r.b JOIN s AS o ON o.id = s.id GROUP BY r.a, s.c;

-- with a left join to a keyed table that is not read
SELECT r.a, s.c, count(*) AS n FROM r JOIN s ON s.b = r.b LEFT JOIN d ON d.k = s.c GROUP BY r.a, s.c;

-- A join by an expression of one table.
-- strategy: viewtree

-- as a join
SELECT s.b, count(*) AS n FROM r JOIN s ON r.b + 1 = s.b GROUP BY s.b;

-- with the sides exchanged
SELECT s.b, count(*) AS n FROM r JOIN s ON s.b = r.b + 1 GROUP BY s.b;

-- with a computed column
SELECT s.b, count(*) AS n FROM (SELECT b + 1 AS k FROM r) AS r JOIN s ON s.b = r.k GROUP BY s.b;

-- with commas
SELECT s.b, count(*) AS n FROM r, s WHERE s.b = r.b + 1 GROUP BY s.b;

-- with the group by the expression
SELECT r.b + 1 AS b, count(*) AS n FROM r JOIN s ON r.b + 1 = s.b GROUP BY r.b + 1;

-- with a CTE
WITH k AS (SELECT b + 1 AS k FROM r) SELECT s.b, count(*) AS n FROM k JOIN s ON s.b = k.k GROUP BY s.b;

-- with LATERAL
SELECT s.b, count(*) AS n FROM r CROSS JOIN LATERAL (SELECT r.b + 1 AS k) AS l JOIN s ON s.b = l.k GROUP BY s.b;

-- with a table joined twice by its key
SELECT s.b, count(*) AS n FROM r JOIN r AS o ON o.id = r.id JOIN s ON o.b + 1 = s.b GROUP BY s.b;

-- A sum of products of two tables, split into several.
-- strategy: viewtree

-- as one sum
SELECT r.b, sum(r.x * (1 - s.y) - r.a * s.c) AS v FROM r JOIN s ON s.b = r.b GROUP BY r.b;

-- with commas
SELECT r.b, sum(r.x * (1 - s.y) - r.a * s.c) AS v FROM r, s WHERE s.b = r.b GROUP BY r.b;

-- with the parts in a CTE
WITH j AS (SELECT r.b, r.x * (1 - s.y) AS p, r.a * s.c AS q FROM r JOIN s ON s.b = r.b) SELECT b, sum(p - q) AS v FROM j GROUP BY b;

-- with a negated part
SELECT r.b, sum(- (r.a * s.c) + r.x * (1 - s.y)) AS v FROM r JOIN s ON s.b = r.b GROUP BY r.b;

-- with parentheses
SELECT r.b, sum(((r.x) * ((1 - s.y))) - (r.a * (s.c))) AS v FROM r JOIN s ON s.b = r.b GROUP BY r.b;

-- in another order
SELECT r.b, sum((1 - s.y) * r.x - s.c * r.a) AS v FROM s JOIN r ON s.b = r.b GROUP BY r.b;

-- with a subquery
SELECT q.b, sum(q.v) AS v FROM (SELECT r.b, r.x * (1 - s.y) - r.a * s.c AS v FROM r JOIN s ON s.b = r.b) AS q GROUP BY q.b;

-- with casts
SELECT r.b, sum(r.x::numeric * (1 - s.y) - (r.a * s.c)::numeric) AS v FROM r JOIN s ON s.b = r.b GROUP BY r.b;

-- An average of products.
-- strategy: viewtree

-- as a join
SELECT r.b, avg(r.x * s.y) AS v, count(r.x) AS n FROM r JOIN s ON s.b = r.b GROUP BY r.b;

-- with commas
SELECT r.b, avg(s.y * r.x) AS v, count(r.x) AS n FROM r, s WHERE s.b = r.b GROUP BY r.b;

-- with USING
SELECT b, avg(x * y) AS v, count(x) AS n FROM r JOIN s USING (b) GROUP BY b;

-- with a CTE
WITH j AS (SELECT r.b, r.x, s.y FROM r JOIN s ON s.b = r.b) SELECT b, avg(x * y) AS v, count(x) AS n FROM j GROUP BY b;

-- with a product in a subquery
SELECT q.b, avg(q.v) AS v, count(q.x) AS n FROM (SELECT r.b, r.x, r.x * s.y AS v FROM r JOIN s ON s.b = r.b) AS q GROUP BY q.b;

-- sorted
SELECT r.b, avg(r.x * s.y) AS v, count(r.x) AS n FROM r JOIN s ON s.b = r.b GROUP BY r.b ORDER BY v;

-- with a filter
SELECT r.b, avg(r.x * s.y) AS v, count(*) FILTER (WHERE r.x IS NOT NULL) AS n FROM r JOIN s ON s.b = r.b GROUP BY r.b;

-- over a CTE of groups
WITH g AS (SELECT r.b, avg(r.x * s.y) AS v, count(r.x) AS n FROM r JOIN s ON s.b = r.b GROUP BY r.b) SELECT b, v, n FROM g;

-- A sum of columns of two tables.
-- strategy: viewtree

-- as one sum
SELECT r.b, sum(r.x + s.y) AS v FROM r JOIN s ON s.b = r.b GROUP BY r.b;

-- in another order
SELECT r.b, sum(s.y + r.x) AS v FROM r JOIN s ON s.b = r.b GROUP BY r.b;

-- with commas
SELECT s.b, sum(r.x + s.y) AS v FROM r, s WHERE s.b = r.b GROUP BY s.b;

-- with a minus
SELECT r.b, sum(r.x - (- s.y)) AS v FROM r JOIN s ON s.b = r.b GROUP BY r.b;

-- with a CTE
WITH j AS (SELECT r.b, r.x + s.y AS v FROM r JOIN s ON s.b = r.b) SELECT b, sum(v) AS v FROM j GROUP BY b;

-- with USING
SELECT b, sum(x + y) AS v FROM r JOIN s USING (b) GROUP BY b;

-- with a cast
SELECT r.b, sum(r.x::numeric + s.y) AS v FROM r JOIN s ON s.b = r.b GROUP BY r.b;

-- with a subquery
SELECT q.b, sum(q.x + q.y) AS v FROM (SELECT r.b, r.x, s.y FROM r JOIN s ON s.b = r.b) AS q GROUP BY q.b;

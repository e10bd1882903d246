-- A q-hierarchical count by a shared value.
-- strategy: viewtree

-- as a join
SELECT r.b, count(*) AS n, sum(r.x) AS x FROM r JOIN s ON s.b = r.b GROUP BY r.b;

-- by the other name
SELECT s.b, count(*) AS n, sum(r.x) AS x FROM r JOIN s ON s.b = r.b GROUP BY s.b;

-- with commas
SELECT r.b, count(*) AS n, sum(r.x) AS x FROM s, r WHERE s.b = r.b GROUP BY r.b;

-- with USING
SELECT b, count(*) AS n, sum(x) AS x FROM r JOIN s USING (b) GROUP BY b;

-- with a CTE
WITH j AS (SELECT r.b, r.x FROM r JOIN s ON s.b = r.b) SELECT b, count(*) AS n, sum(x) AS x FROM j GROUP BY b;

-- with a condition of HAVING that excludes nothing
SELECT r.b, count(*) AS n, sum(r.x) AS x FROM r JOIN s ON s.b = r.b WHERE r.b IS NOT NULL GROUP BY r.b;

-- refused: with a sum of each table's groups: a subquery with groups is joined
SELECT p.b, p.n * q.n AS n, p.x * q.n AS x FROM (SELECT b, count(*) AS n, sum(x) AS x FROM r GROUP BY b) AS p JOIN (SELECT b, count(*) AS n FROM s GROUP BY b) AS q ON q.b = p.b;

-- with EXISTS over a key
SELECT r.b, count(*) AS n, sum(r.x) AS x FROM r JOIN s ON s.b = r.b WHERE EXISTS (SELECT 1 FROM s AS o WHERE o.id = s.id) GROUP BY r.b;

-- with IN over a key
SELECT r.b, count(*) AS n, sum(r.x) AS x FROM r JOIN s ON s.b = r.b WHERE r.id IN (SELECT id FROM r) GROUP BY r.b;

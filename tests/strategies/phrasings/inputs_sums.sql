-- Sums over a path that are asked by its inner values.
-- strategy: viewtree
-- options: inputs = b, c

-- as joins
SELECT s.b, s.c, count(*) AS n, sum(r.x * t.z) AS v FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c GROUP BY s.b, s.c;

-- with commas
SELECT s.b, s.c, count(*) AS n, sum(t.z * r.x) AS v FROM r, s, t WHERE s.b = r.b AND t.c = s.c GROUP BY s.b, s.c;

-- by the other names
SELECT r.b, t.c, count(*) AS n, sum(r.x * t.z) AS v FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c GROUP BY r.b, t.c;

-- with USING
SELECT b, c, count(*) AS n, sum(x * z) AS v FROM (SELECT b, x FROM r) AS r JOIN s USING (b) JOIN (SELECT c, z FROM t) AS t USING (c) GROUP BY b, c;

-- with a CTE
WITH j AS (SELECT s.b, s.c, r.x * t.z AS v FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c) SELECT b, c, count(*) AS n, sum(v) AS v FROM j GROUP BY b, c;

-- with FILTER
SELECT s.b, s.c, count(*) FILTER (WHERE true) AS n, sum(r.x * t.z) AS v FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c GROUP BY s.b, s.c;

-- with EXISTS over a key
SELECT s.b, s.c, count(*) AS n, sum(r.x * t.z) AS v FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c WHERE EXISTS (SELECT FROM t AS o WHERE o.id = t.id) GROUP BY s.b, s.c;

-- over a subquery
SELECT * FROM (SELECT s.b, s.c, count(*) AS n, sum(r.x * t.z) AS v FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c GROUP BY s.b, s.c) AS g;

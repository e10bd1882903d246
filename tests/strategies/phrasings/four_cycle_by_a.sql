-- Sums over 4-cycles by a corner.
-- strategy: skew

-- as joins
SELECT r.a, count(*) AS n, sum(r.x * s.y) AS v FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c JOIN m ON m.src = t.a AND m.dst = r.a GROUP BY r.a;

-- by the other name
SELECT m.dst AS a, count(*) AS n, sum(r.x * s.y) AS v FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c JOIN m ON m.src = t.a AND m.dst = r.a GROUP BY m.dst;

-- with commas
SELECT r.a, count(*) AS n, sum(s.y * r.x) AS v FROM r, s, t, m WHERE r.b = s.b AND s.c = t.c AND t.a = m.src AND m.dst = r.a GROUP BY 1;

-- with halves in CTEs
WITH rs AS (SELECT r.a, s.c, r.x * s.y AS v FROM r JOIN s ON s.b = r.b), tm AS (SELECT t.c, m.dst AS a FROM t JOIN m ON m.src = t.a) SELECT a, count(*) AS n, sum(v) AS v FROM rs JOIN tm USING (c, a) GROUP BY a;

-- over a CTE of groups
WITH g AS (SELECT r.a, count(*) AS n, sum(r.x * s.y) AS v FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c JOIN m ON m.src = t.a AND m.dst = r.a GROUP BY r.a) SELECT a, n, v FROM g;

-- over a subquery, computed above the groups
SELECT g.a, g.n, g.v FROM (SELECT r.a, count(*) AS n, sum(r.x * s.y) AS v FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c JOIN m ON m.src = t.a AND m.dst = r.a GROUP BY r.a) AS g;

-- sorted
SELECT r.a, count(*) AS n, sum(r.x * s.y) AS v FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c JOIN m ON m.src = t.a AND m.dst = r.a GROUP BY r.a ORDER BY n DESC;

-- with EXISTS over a key
SELECT r.a, count(*) AS n, sum(r.x * s.y) AS v FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c JOIN m ON m.src = t.a AND m.dst = r.a WHERE EXISTS (SELECT FROM t AS o WHERE o.id = t.id) GROUP BY r.a;

-- with IN over a key
SELECT r.a, count(*) AS n, sum(r.x * s.y) AS v FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c JOIN m ON m.src = t.a AND m.dst = r.a WHERE r.id IN (SELECT id FROM r) GROUP BY r.a;

-- with a left join that pads nothing
SELECT r.a, count(*) AS n, sum(r.x * s.y) AS v FROM r JOIN s ON s.b = r.b LEFT JOIN t ON t.c = s.c JOIN m ON m.src = t.a AND m.dst = r.a GROUP BY r.a;

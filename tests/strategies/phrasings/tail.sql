-- Triangles with an edge that leaves a corner.
-- strategy: skew

-- as joins
SELECT count(*) AS n, sum(t.z) AS z FROM m p JOIN m q ON q.src = p.dst JOIN m o ON o.src = q.dst AND o.dst = p.src JOIN t ON t.a = p.src;

-- with commas
SELECT count(*) AS n, sum(t.z) AS z FROM m p, m q, m o, t WHERE q.src = p.dst AND o.src = q.dst AND o.dst = p.src AND t.a = p.src;

-- by the other name
SELECT count(*) AS n, sum(t.z) AS z FROM m p JOIN m q ON q.src = p.dst JOIN m o ON o.src = q.dst AND o.dst = p.src JOIN t ON t.a = o.dst;

-- with the triangles in a CTE
WITH tri AS (SELECT p.src AS a FROM m p JOIN m q ON q.src = p.dst JOIN m o ON o.src = q.dst AND o.dst = p.src) SELECT count(*) AS n, sum(t.z) AS z FROM tri JOIN t USING (a);

-- with renamed columns
SELECT count(*) AS n, sum(z) AS z FROM m AS p (a, b) JOIN m AS q (b, c) USING (b) JOIN m AS o (c, a) USING (c, a) JOIN t ON t.a = p.a;

-- with the tail first
SELECT count(*) AS n, sum(t.z) AS z FROM t JOIN m p ON p.src = t.a JOIN m q ON q.src = p.dst JOIN m o ON o.src = q.dst AND o.dst = t.a;

-- with LATERAL
SELECT count(*) AS n, sum(l.z) AS z FROM m p JOIN m q ON q.src = p.dst JOIN m o ON o.src = q.dst AND o.dst = p.src CROSS JOIN LATERAL (SELECT t.z FROM t WHERE t.a = p.src) AS l;

-- as scalar subqueries over one CTE
WITH j AS (SELECT t.z FROM m p, m q, m o, t WHERE q.src = p.dst AND o.src = q.dst AND o.dst = p.src AND t.a = p.src) SELECT count(*) AS n, sum(z) AS z FROM j;

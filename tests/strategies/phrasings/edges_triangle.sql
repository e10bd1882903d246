-- Triangles of a directed graph.
-- strategy: skew

-- as joins
SELECT count(*) AS n FROM m AS p JOIN m AS q ON q.src = p.dst JOIN m AS o ON o.src = q.dst AND o.dst = p.src;

-- with commas
SELECT count(*) AS n FROM m p, m q, m o WHERE p.dst = q.src AND q.dst = o.src AND o.dst = p.src;

-- with a CTE used three times
WITH e AS (SELECT src, dst FROM m) SELECT count(*) AS n FROM e p JOIN e q ON q.src = p.dst JOIN e o ON o.src = q.dst AND o.dst = p.src;

-- with renamed columns
SELECT count(*) AS n FROM m AS p (a, b) JOIN m AS q (b, c) USING (b) JOIN m AS o (c, a) USING (c, a);

-- with a self-join in a subquery
SELECT count(*) AS n FROM (SELECT p.src AS a, q.dst AS c FROM m p JOIN m q ON q.src = p.dst) AS two JOIN m o ON o.src = two.c AND o.dst = two.a;

-- with row comparison
SELECT count(*) AS n FROM m p JOIN m q ON p.dst = q.src JOIN m o ON (o.src, o.dst) = (q.dst, p.src);

-- with a CTE for the paths
WITH two AS (SELECT p.src AS a, q.dst AS c FROM m p JOIN m q ON q.src = p.dst) SELECT count(*) AS n FROM two, m o WHERE o.src = two.c AND o.dst = two.a;

-- backwards
SELECT count(*) AS n FROM m o JOIN m q ON q.dst = o.src JOIN m p ON p.dst = q.src AND p.src = o.dst;

-- The number of paths over five tables.
-- strategy: skew

-- as joins
SELECT count(*) AS n FROM m p JOIN m q ON q.src = p.dst JOIN m o ON o.src = q.dst JOIN m l ON l.src = o.dst JOIN m k ON k.src = l.dst;

-- with commas
SELECT count(*) AS n FROM m p, m q, m o, m l, m k WHERE q.src = p.dst AND o.src = q.dst AND l.src = o.dst AND k.src = l.dst;

-- with a CTE
WITH e AS (SELECT src, dst FROM m) SELECT count(*) AS n FROM e p JOIN e q ON q.src = p.dst JOIN e o ON o.src = q.dst JOIN e l ON l.src = o.dst JOIN e k ON k.src = l.dst;

-- with two edges in a CTE
WITH two AS (SELECT p.src, q.dst FROM m p JOIN m q ON q.src = p.dst) SELECT count(*) AS n FROM two a JOIN m ON m.src = a.dst JOIN two b ON b.src = m.dst;

-- backwards
SELECT count(*) AS n FROM m k JOIN m l ON k.src = l.dst JOIN m o ON l.src = o.dst JOIN m q ON o.src = q.dst JOIN m p ON q.src = p.dst;

-- with renamed columns
SELECT count(*) AS n FROM m AS p (a, b) JOIN m AS q (b, c) USING (b) JOIN m AS o (c, d) USING (c) JOIN m AS l (d, e) USING (d) JOIN m AS k (e, f) USING (e);

-- from the middle
SELECT count(*) AS n FROM m o JOIN m q ON q.dst = o.src JOIN m l ON l.src = o.dst JOIN m p ON p.dst = q.src JOIN m k ON k.src = l.dst;

-- as a scalar subquery
SELECT (SELECT count(*) FROM m p, m q, m o, m l, m k WHERE q.src = p.dst AND o.src = q.dst AND l.src = o.dst AND k.src = l.dst) AS n;

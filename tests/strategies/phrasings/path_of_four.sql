-- The number of paths over four tables.
-- strategy: skew

-- as joins
SELECT count(*) AS n FROM m p JOIN m q ON q.src = p.dst JOIN m o ON o.src = q.dst JOIN m l ON l.src = o.dst;

-- with commas
SELECT count(*) AS n FROM m p, m q, m o, m l WHERE q.src = p.dst AND o.src = q.dst AND l.src = o.dst;

-- with a CTE
WITH e AS (SELECT src, dst FROM m) SELECT count(*) AS n FROM e p JOIN e q ON q.src = p.dst JOIN e o ON o.src = q.dst JOIN e l ON l.src = o.dst;

-- with halves in a CTE
WITH two AS (SELECT p.src, q.dst FROM m p JOIN m q ON q.src = p.dst) SELECT count(*) AS n FROM two a JOIN two b ON b.src = a.dst;

-- backwards
SELECT count(*) AS n FROM m l JOIN m o ON l.src = o.dst JOIN m q ON o.src = q.dst JOIN m p ON q.src = p.dst;

-- with renamed columns
SELECT count(*) AS n FROM m AS p (a, b) JOIN m AS q (b, c) USING (b) JOIN m AS o (c, d) USING (c) JOIN m AS l (d, e) USING (d);

-- as a scalar subquery
SELECT (SELECT count(*) FROM m p, m q, m o, m l WHERE q.src = p.dst AND o.src = q.dst AND l.src = o.dst) AS n;

-- with a CROSS JOIN
SELECT count(*) AS n FROM m p CROSS JOIN m q CROSS JOIN m o CROSS JOIN m l WHERE q.src = p.dst AND o.src = q.dst AND l.src = o.dst;

-- Counts of 4-cycles by opposite corners.
-- strategy: skew

-- as joins
SELECT p.src AS a, o.src AS c, count(*) AS n FROM m p JOIN m q ON q.src = p.dst JOIN m o ON o.src = q.dst JOIN m l ON l.src = o.dst AND l.dst = p.src GROUP BY p.src, o.src;

-- by the other names
SELECT l.dst AS a, q.dst AS c, count(*) AS n FROM m p JOIN m q ON q.src = p.dst JOIN m o ON o.src = q.dst JOIN m l ON l.src = o.dst AND l.dst = p.src GROUP BY l.dst, q.dst;

-- with commas
SELECT p.src AS a, o.src AS c, count(*) AS n FROM m p, m q, m o, m l WHERE p.dst = q.src AND q.dst = o.src AND o.dst = l.src AND l.dst = p.src GROUP BY 1, 2;

-- with a CTE for two edges
WITH two AS (SELECT p.src AS a, q.dst AS c FROM m p JOIN m q ON q.src = p.dst) SELECT x.a, x.c, count(*) AS n FROM two x JOIN two y ON y.a = x.c AND y.c = x.a GROUP BY x.a, x.c;

-- with renamed columns
SELECT a, c, count(*) AS n FROM m AS p (a, b) JOIN m AS q (b, c) USING (b) JOIN m AS o (c, d) USING (c) JOIN m AS l (d, a) USING (d, a) GROUP BY a, c;

-- with the groups in the other order
SELECT o.src AS c, p.src AS a, count(*) AS n FROM m p JOIN m q ON q.src = p.dst JOIN m o ON o.src = q.dst JOIN m l ON l.src = o.dst AND l.dst = p.src GROUP BY o.src, p.src;

-- with GROUPING SETS of a single set
SELECT p.src AS a, o.src AS c, count(*) AS n FROM m p JOIN m q ON q.src = p.dst JOIN m o ON o.src = q.dst JOIN m l ON l.src = o.dst AND l.dst = p.src GROUP BY GROUPING SETS ((p.src, o.src));

-- with the conditions in WHERE
SELECT p.src AS a, o.src AS c, count(*) AS n FROM m p CROSS JOIN m q CROSS JOIN m o CROSS JOIN m l WHERE q.src = p.dst AND o.src = q.dst AND l.src = o.dst AND l.dst = p.src GROUP BY p.src, o.src;

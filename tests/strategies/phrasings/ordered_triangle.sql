-- Triangles whose corners ascend.
-- strategy: skew

-- as joins
SELECT count(*) AS n FROM m p JOIN m q ON q.src = p.dst AND p.src < p.dst JOIN m o ON o.src = p.src AND o.dst = q.dst AND q.src < q.dst WHERE o.src < o.dst;

-- with conditions between edges
SELECT count(*) AS n FROM m p, m q, m o WHERE q.src = p.dst AND o.src = p.src AND o.dst = q.dst AND p.src < q.src AND q.src < o.dst AND p.src < q.dst;

-- with USING
SELECT count(*) AS n FROM m AS p (a, b) JOIN m AS q (b, c) USING (b) JOIN m AS o (a, c) USING (a, c) WHERE a < b AND b < c AND a < c;

-- with filtered edges
WITH up AS (SELECT src, dst FROM m WHERE src < dst) SELECT count(*) AS n FROM up p JOIN up q ON q.src = p.dst JOIN up o ON o.src = p.src AND o.dst = q.dst;

-- with greater than
SELECT count(*) AS n FROM m p, m q, m o WHERE q.src = p.dst AND o.src = p.src AND o.dst = q.dst AND q.src > o.src AND o.dst > p.dst AND q.dst > p.src;

-- with NOT
SELECT count(*) AS n FROM m p, m q, m o WHERE q.src = p.dst AND o.src = p.src AND o.dst = q.dst AND NOT p.src >= q.src AND NOT q.src >= q.dst AND NOT o.src >= q.dst;

-- in a subquery
SELECT count(*) AS n FROM (SELECT p.src AS a, q.src AS b, q.dst AS c FROM m p JOIN m q ON q.src = p.dst) AS two JOIN m o ON o.src = two.a AND o.dst = two.c WHERE two.a < two.b AND two.b < two.c AND two.a < two.c;

-- with a subtraction
SELECT count(*) AS n FROM m p, m q, m o WHERE q.src = p.dst AND o.src = p.src AND o.dst = q.dst AND q.src - o.src > 0 AND o.dst - q.src > 0 AND q.dst - p.src > 0;

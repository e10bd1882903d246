-- Triangles of an undirected graph: an edge table and its reverse.
-- strategy: skew

-- as a CTE
WITH e AS (SELECT src, dst FROM m UNION ALL SELECT dst, src FROM m) SELECT count(*) AS n FROM e p JOIN e q ON q.src = p.dst JOIN e o ON o.src = q.dst AND o.dst = p.src;

-- with commas
WITH e AS (SELECT src, dst FROM m UNION ALL SELECT dst, src FROM m) SELECT count(*) AS n FROM e p, e q, e o WHERE q.src = p.dst AND o.src = q.dst AND o.dst = p.src;

-- stored
WITH e AS MATERIALIZED (SELECT src, dst FROM m UNION ALL SELECT dst, src FROM m) SELECT count(*) AS n FROM e p JOIN e q ON q.src = p.dst JOIN e o ON o.src = q.dst AND o.dst = p.src;

-- with the reverse first
WITH e (a, b) AS (SELECT dst, src FROM m UNION ALL SELECT src, dst FROM m) SELECT count(*) AS n FROM e p JOIN e q ON q.a = p.b JOIN e o ON o.a = q.b AND o.b = p.a;

-- with subqueries
SELECT count(*) AS n FROM (SELECT src, dst FROM m UNION ALL SELECT dst, src FROM m) p JOIN (SELECT src, dst FROM m UNION ALL SELECT dst, src FROM m) q ON q.src = p.dst JOIN (SELECT src, dst FROM m UNION ALL SELECT dst, src FROM m) o ON o.src = q.dst AND o.dst = p.src;

-- with a CTE for the reverse
WITH back AS (SELECT dst AS src, src AS dst FROM m), e AS (SELECT src, dst FROM m UNION ALL SELECT * FROM back) SELECT count(*) AS n FROM e p JOIN e q ON q.src = p.dst JOIN e o ON o.src = q.dst AND o.dst = p.src;

-- with the paths in a CTE
WITH e AS (SELECT src, dst FROM m UNION ALL SELECT dst, src FROM m), two AS (SELECT p.src AS a, q.dst AS c FROM e p JOIN e q ON q.src = p.dst) SELECT count(*) AS n FROM two JOIN e o ON o.src = two.c AND o.dst = two.a;

-- with LATERAL
WITH e AS (SELECT f.* FROM m CROSS JOIN LATERAL (VALUES (m.src, m.dst), (m.dst, m.src)) AS f (src, dst)) SELECT count(*) AS n FROM e p JOIN e q ON q.src = p.dst JOIN e o ON o.src = q.dst AND o.dst = p.src;

-- A sum of products over triangles.
-- strategy: skew

-- as joins
SELECT sum(r.x * s.y * t.z) AS v FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c AND t.a = r.a;

-- with commas
SELECT sum(t.z * r.x * s.y) AS v FROM r, s, t WHERE s.b = r.b AND t.c = s.c AND t.a = r.a;

-- with partial products
WITH rs AS (SELECT r.a, s.c, r.x * s.y AS xy FROM r JOIN s ON s.b = r.b) SELECT sum(rs.xy * t.z) AS v FROM rs JOIN t ON t.c = rs.c AND t.a = rs.a;

-- with a minus twice
SELECT sum(- r.x * s.y * - t.z) AS v FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c AND t.a = r.a;

-- with parentheses
SELECT sum((r.x * (s.y * (t.z)))) AS v FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c AND t.a = r.a;

-- as a scalar subquery
SELECT (SELECT sum(r.x * s.y * t.z) FROM r, s, t WHERE s.b = r.b AND t.c = s.c AND t.a = r.a) AS v;

-- with casts
SELECT sum(r.x::numeric * s.y * t.z::numeric) AS v FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c AND t.a = r.a;

-- with a subquery
SELECT sum(q.v) AS v FROM (SELECT r.x * s.y * t.z AS v FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c AND t.a = r.a) AS q;

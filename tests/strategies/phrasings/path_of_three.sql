-- The number of paths over three tables.
-- strategy: skew

-- as joins
SELECT count(*) AS n FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c;

-- with commas
SELECT count(*) AS n FROM t, s, r WHERE s.b = r.b AND t.c = s.c;

-- with USING
SELECT count(*) AS n FROM r JOIN s USING (b) JOIN t USING (c);

-- with sum(1)
SELECT coalesce(sum(1), 0) AS n FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c;

-- with a CTE
WITH rs AS (SELECT s.c FROM r JOIN s ON s.b = r.b) SELECT count(*) AS n FROM rs JOIN t ON t.c = rs.c;

-- with a table joined twice by its key
SELECT count(*) AS n FROM r JOIN s ON s.b = r.b JOIN s AS again ON again.id = s.id JOIN t ON t.c = again.c;

-- as a scalar subquery
SELECT (SELECT count(*) FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c) AS n;

-- with a left join to a keyed table that is not read
SELECT count(*) AS n FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c LEFT JOIN d ON d.k = r.a;

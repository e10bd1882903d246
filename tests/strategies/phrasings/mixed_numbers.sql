-- Joins of an integer with a numeric column.
-- strategy: viewtree

-- as a join
SELECT count(*) AS n FROM r JOIN s ON s.y = r.x;

-- with commas
SELECT count(*) AS n FROM r, s WHERE r.x = s.y;

-- with a cast
SELECT count(*) AS n FROM r JOIN s ON s.y = r.x::numeric;

-- with a CTE
WITH k AS (SELECT x::numeric AS y FROM r) SELECT count(*) AS n FROM k JOIN s USING (y);

-- as a scalar subquery
SELECT (SELECT count(*) FROM r JOIN s ON s.y = r.x) AS n;

-- with LATERAL
SELECT count(*) AS n FROM r, LATERAL (SELECT 1 FROM s WHERE s.y = r.x) AS l;

-- with IS NOT DISTINCT FROM
SELECT count(*) AS n FROM r JOIN s ON s.y IS NOT DISTINCT FROM r.x WHERE r.x IS NOT NULL;

-- with a table joined twice by its key
SELECT count(*) AS n FROM r JOIN s ON s.y = r.x JOIN s AS o ON o.id = s.id;

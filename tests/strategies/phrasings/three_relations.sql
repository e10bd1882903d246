-- A count over three relations that share a variable.
-- strategy: viewtree

-- as joins
SELECT count(*) AS n FROM r JOIN s ON s.b = r.b JOIN q ON q.b = s.b;

-- with commas
SELECT count(*) AS n FROM r, s, q WHERE s.b = r.b AND q.b = r.b;

-- with USING
SELECT count(*) AS n FROM r JOIN s USING (b) JOIN q USING (b);

-- with all equalities
SELECT count(*) AS n FROM r, s, q WHERE s.b = r.b AND q.b = s.b AND q.b = r.b;

-- with a CTE
WITH rs AS (SELECT r.b FROM r, s WHERE r.b = s.b) SELECT count(*) AS n FROM rs NATURAL JOIN (SELECT b FROM q) AS q;

-- as a scalar subquery
SELECT (SELECT count(*) FROM r JOIN s ON s.b = r.b JOIN q ON q.b = s.b) AS n;

-- with IS NOT DISTINCT FROM
SELECT count(*) AS n FROM r JOIN s ON s.b = r.b JOIN q ON q.b IS NOT DISTINCT FROM s.b;

-- with EXISTS over a key
SELECT count(*) AS n FROM r JOIN s ON s.b = r.b JOIN q ON q.b = s.b WHERE EXISTS (SELECT FROM r AS o WHERE o.id = r.id);

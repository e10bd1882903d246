-- Rows of a join by a sum that the view shows, best first.
-- strategy: viewtree
-- options: ranked = total DESC

-- as a join
SELECT r.id, s.id AS sid, r.b, coalesce(r.x, 0) + coalesce(s.y, 0) AS total FROM r JOIN s ON s.b = r.b;

-- with commas
SELECT r.id, s.id AS sid, r.b, coalesce(r.x, 0) + coalesce(s.y, 0) AS total FROM s, r WHERE s.b = r.b;

-- with the summands in CTEs
WITH p AS (SELECT id, b, coalesce(x, 0) AS x FROM r), q AS (SELECT id, b, coalesce(y, 0) AS y FROM s) SELECT p.id, q.id AS sid, b, x + y AS total FROM p JOIN q USING (b);

-- with the sum in a subquery
SELECT id, sid, b, total FROM (SELECT r.id, s.id AS sid, r.b, coalesce(r.x, 0) + coalesce(s.y, 0) AS total FROM r JOIN s ON s.b = r.b) AS j;

-- with the summands turned
SELECT r.id, s.id AS sid, r.b, coalesce(s.y, 0) + coalesce(r.x, 0) AS total FROM r JOIN s ON s.b = r.b;

-- with a cast
SELECT r.id, s.id AS sid, r.b, coalesce(r.x, 0)::numeric + coalesce(s.y, 0) AS total FROM r JOIN s ON s.b = r.b;

-- with a factor of 1
SELECT r.id, s.id AS sid, s.b, 1 * coalesce(r.x, 0) + coalesce(s.y, 0) AS total FROM r JOIN s USING (b);

-- with CASE
SELECT r.id, s.id AS sid, r.b, CASE WHEN r.x IS NULL THEN 0 ELSE r.x END + coalesce(s.y, 0) AS total FROM r JOIN s ON s.b = r.b;

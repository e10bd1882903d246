-- A free-connex query with its values.
-- strategy: viewtree

-- as joins
SELECT r.a, r.b, count(*) AS n FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c GROUP BY r.a, r.b;

-- with commas
SELECT r.a, r.b, count(*) AS n FROM r, s, t WHERE s.b = r.b AND t.c = s.c GROUP BY r.a, r.b;

-- with USING
SELECT a, b, count(*) AS n FROM (SELECT a, b FROM r) AS r JOIN s USING (b) JOIN (SELECT c FROM t) AS t USING (c) GROUP BY a, b;

-- with a CTE
WITH st AS (SELECT s.b FROM s JOIN t ON t.c = s.c) SELECT r.a, r.b, count(*) AS n FROM r JOIN st ON st.b = r.b GROUP BY r.a, r.b;

-- with the group's values
SELECT r.a, s.b, count(*) AS n FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c GROUP BY r.a, s.b;

-- with a table joined twice by its key
SELECT r.a, r.b, count(*) AS n FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c JOIN t AS o ON o.id = t.id GROUP BY r.a, r.b;

-- in a subquery
SELECT g.* FROM (SELECT r.a, r.b, count(*) AS n FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c GROUP BY r.a, r.b) AS g;

-- with HAVING that always holds
SELECT r.a, r.b, count(*) AS n FROM r JOIN s ON s.b = r.b JOIN t ON t.c = s.c GROUP BY r.a, r.b HAVING count(*) > 0;

-- Joins of columns of different types.
-- strategy: viewtree

-- text and varchar
SELECT q.lab, count(*) AS n FROM t JOIN q ON t.label = q.lab GROUP BY q.lab;

-- with a cast
SELECT q.lab, count(*) AS n FROM t JOIN q ON t.label::text = q.lab GROUP BY q.lab;

-- with commas
SELECT q.lab, count(*) AS n FROM q, t WHERE q.lab = t.label GROUP BY q.lab;

-- with a CTE
WITH l AS (SELECT label::text AS lab FROM t) SELECT q.lab, count(*) AS n FROM l JOIN q ON l.lab = q.lab GROUP BY q.lab;

-- with USING
SELECT lab, count(*) AS n FROM q JOIN (SELECT label::text AS lab FROM t) AS l USING (lab) GROUP BY lab;

-- with a computed column
SELECT q.lab, count(*) AS n FROM (SELECT label || '' AS label FROM t) AS t JOIN q ON t.label = q.lab GROUP BY q.lab;

-- with lower on both sides of one group
SELECT q.lab, count(*) AS n FROM t JOIN q ON (t.label)::text = (q.lab)::text GROUP BY q.lab;

-- with a table joined twice by its key
SELECT q.lab, count(*) AS n FROM t JOIN t AS o ON o.id = t.id JOIN q ON o.label = q.lab GROUP BY q.lab;

-- Rows of a join that its keys tell apart.
-- strategy: viewtree

-- as a join
SELECT f.id, f.amount, d.name FROM f JOIN d ON d.k = f.shop;

-- with commas
SELECT f.id, f.amount, d.name FROM d, f WHERE d.k = f.shop;

-- with DISTINCT
SELECT DISTINCT f.id, f.amount, d.name FROM f JOIN d ON d.k = f.shop;

-- with a CTE
WITH j AS (SELECT f.id, f.amount, d.name FROM f JOIN d ON d.k = f.shop) SELECT * FROM j;

-- with GROUP BY all columns
SELECT f.id, f.amount, d.name FROM f JOIN d ON d.k = f.shop GROUP BY f.id, f.amount, d.name;

-- with a subquery
SELECT f.id, f.amount, q.name FROM f JOIN (SELECT k, name FROM d) AS q ON q.k = f.shop;

-- with a table joined twice by its key
SELECT f.id, o.amount, d.name FROM f JOIN f AS o ON o.id = f.id JOIN d ON d.k = f.shop;

-- with LATERAL
SELECT f.id, f.amount, l.name FROM f, LATERAL (SELECT d.name FROM d WHERE d.k = f.shop) AS l;

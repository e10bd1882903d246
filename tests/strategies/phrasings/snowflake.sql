-- Rows of a fact with what its keys determine.
-- strategy: viewtree
-- options: representation = factorized

-- as joins
SELECT f.id, f.amount, i.price, d.name, d.city FROM f JOIN i ON i.k = f.item JOIN d ON d.k = f.shop;

-- with commas
SELECT f.id, f.amount, i.price, d.name, d.city FROM d, i, f WHERE i.k = f.item AND d.k = f.shop;

-- with a CTE
WITH j AS (SELECT f.id, f.amount, f.shop, i.price FROM f JOIN i ON i.k = f.item) SELECT j.id, j.amount, j.price, d.name, d.city FROM j JOIN d ON d.k = j.shop;

-- with DISTINCT
SELECT DISTINCT f.id, f.amount, i.price, d.name, d.city FROM f JOIN i ON i.k = f.item JOIN d ON d.k = f.shop;

-- with LATERAL
SELECT f.id, f.amount, l.price, d.name, d.city FROM f JOIN d ON d.k = f.shop, LATERAL (SELECT i.price FROM i WHERE i.k = f.item) AS l;

-- with a table joined twice by its key
SELECT f.id, o.amount, i.price, d.name, d.city FROM f JOIN f AS o ON o.id = f.id JOIN i ON i.k = o.item JOIN d ON d.k = f.shop;

-- with GROUP BY all columns
SELECT f.id, f.amount, i.price, d.name, d.city FROM f JOIN i ON i.k = f.item JOIN d ON d.k = f.shop GROUP BY f.id, f.amount, i.price, d.name, d.city;

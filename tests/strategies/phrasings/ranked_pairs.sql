-- Rows of a join, best first.
-- strategy: viewtree
-- options: ranked = amount + price DESC, id

-- as a join
SELECT f.id, f.shop, f.amount, i.k, i.price FROM f JOIN i ON i.k = f.item;

-- with commas
SELECT f.id, f.shop, f.amount, i.k, i.price FROM i, f WHERE f.item = i.k;

-- with USING
SELECT f.id, f.shop, f.amount, k, price FROM (SELECT id, shop, item AS k, amount FROM f) AS f JOIN i USING (k);

-- with a CTE
WITH j AS (SELECT f.id, f.shop, f.amount, i.k, i.price FROM f JOIN i ON i.k = f.item) SELECT * FROM j;

-- by the other name
SELECT f.id, f.shop, f.amount, f.item AS k, i.price FROM f JOIN i ON i.k = f.item;

-- with DISTINCT
SELECT DISTINCT f.id, f.shop, f.amount, i.k, i.price FROM f JOIN i ON i.k = f.item;

-- with GROUP BY all columns
SELECT f.id, f.shop, f.amount, i.k, i.price FROM f JOIN i ON i.k = f.item GROUP BY f.id, f.shop, f.amount, i.k, i.price;

-- with LATERAL
SELECT f.id, f.shop, f.amount, l.k, l.price FROM f CROSS JOIN LATERAL (SELECT i.k, i.price FROM i WHERE i.k = f.item) AS l;

-- with a table joined twice by its key
SELECT f.id, o.shop, o.amount, i.k, i.price FROM f JOIN f AS o ON o.id = f.id JOIN i ON i.k = f.item;

-- with IN over a key
SELECT f.id, f.shop, f.amount, i.k, i.price FROM f JOIN i ON i.k = f.item WHERE f.id IN (SELECT id FROM f);

-- sorted
SELECT f.id, f.shop, f.amount, i.k, i.price FROM f JOIN i ON i.k = f.item ORDER BY f.amount + i.price DESC;

-- Rows of a table with a partner in a keyed table.
-- strategy: viewtree

-- as a join
SELECT f.shop, count(*) AS n, sum(f.amount) AS v FROM f JOIN d ON d.k = f.shop GROUP BY f.shop;

-- with EXISTS
SELECT f.shop, count(*) AS n, sum(f.amount) AS v FROM f WHERE EXISTS (SELECT 1 FROM d WHERE d.k = f.shop) GROUP BY f.shop;

-- with IN
SELECT f.shop, count(*) AS n, sum(f.amount) AS v FROM f WHERE f.shop IN (SELECT d.k FROM d) GROUP BY f.shop;

-- with = ANY
SELECT f.shop, count(*) AS n, sum(f.amount) AS v FROM f WHERE f.shop = ANY (SELECT d.k FROM d) GROUP BY f.shop;

-- with EXISTS and an asterisk
SELECT f.shop, count(*) AS n, sum(f.amount) AS v FROM f WHERE EXISTS (SELECT * FROM d WHERE f.shop = d.k) GROUP BY f.shop;

-- with a CTE of keys
WITH keys AS (SELECT k FROM d) SELECT f.shop, count(*) AS n, sum(f.amount) AS v FROM f WHERE f.shop IN (SELECT k FROM keys) GROUP BY f.shop;

-- with a join and EXISTS
SELECT f.shop, count(*) AS n, sum(f.amount) AS v FROM f JOIN d ON d.k = f.shop WHERE EXISTS (SELECT 1 FROM d AS o WHERE o.k = d.k) GROUP BY f.shop;

-- with DISTINCT over a key
SELECT f.shop, count(*) AS n, sum(f.amount) AS v FROM f JOIN (SELECT DISTINCT k FROM d) AS d ON d.k = f.shop GROUP BY f.shop;

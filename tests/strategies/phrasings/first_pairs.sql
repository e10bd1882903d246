-- The first rows of a join, best first.
-- strategy: viewtree

-- as a join
SELECT f.id, f.shop, i.k, f.amount + i.price AS total FROM f JOIN i ON i.k = f.item ORDER BY total DESC LIMIT 3;

-- sorted by the expression
SELECT f.id, f.shop, i.k, f.amount + i.price AS total FROM f JOIN i ON i.k = f.item ORDER BY f.amount + i.price DESC LIMIT 3;

-- sorted by the position
SELECT f.id, f.shop, i.k, f.amount + i.price AS total FROM f JOIN i ON i.k = f.item ORDER BY 4 DESC LIMIT 3;

-- with the key
SELECT f.id, f.shop, i.k, f.amount + i.price AS total FROM f JOIN i ON i.k = f.item ORDER BY total DESC, f.id LIMIT 3;

-- with FETCH FIRST
SELECT f.id, f.shop, i.k, f.amount + i.price AS total FROM f JOIN i ON i.k = f.item ORDER BY total DESC FETCH FIRST 3 ROWS ONLY;

-- with commas and another sum
SELECT f.id, f.shop, i.k, i.price + f.amount AS total FROM i, f WHERE f.item = i.k ORDER BY -(-f.amount - i.price) + 1 DESC LIMIT 3;

-- with the sum in a subquery
SELECT id, shop, k, total FROM (SELECT f.*, i.k, f.amount + i.price AS total FROM f JOIN i ON i.k = f.item) AS j ORDER BY total DESC LIMIT 3;

-- in a subquery
SELECT id, shop, k, total FROM (SELECT f.*, i.k, f.amount + i.price AS total FROM f JOIN i ON i.k = f.item ORDER BY total DESC LIMIT 3) AS j;

-- with a CTE
WITH j AS (SELECT f.id, f.shop, i.k, f.amount + i.price AS total FROM f JOIN i ON i.k = f.item) SELECT * FROM j ORDER BY total DESC LIMIT 3;

-- with LATERAL
SELECT f.id, f.shop, l.k, f.amount + l.price AS total FROM f CROSS JOIN LATERAL (SELECT i.k, i.price FROM i WHERE i.k = f.item) AS l
ORDER BY total DESC LIMIT 3;

-- sorted again
SELECT * FROM (SELECT f.id, f.shop, i.k, f.amount + i.price AS total FROM f JOIN i ON i.k = f.item ORDER BY total DESC LIMIT 3) AS j
ORDER BY total DESC;

-- A fact table with keyed dimensions.
-- strategy: viewtree

-- as joins
SELECT d.city, sum(f.amount * i.price) AS v FROM f JOIN d ON d.k = f.shop JOIN i ON i.k = f.item GROUP BY d.city;

-- with commas
SELECT d.city, sum(f.amount * i.price) AS v FROM f, d, i WHERE d.k = f.shop AND i.k = f.item GROUP BY d.city;

-- with the dimensions first
SELECT d.city, sum(f.amount * i.price) AS v FROM i CROSS JOIN d JOIN f ON d.k = f.shop AND i.k = f.item GROUP BY d.city;

-- with a CTE
WITH priced AS (SELECT f.shop, f.amount * i.price AS v FROM f JOIN i ON i.k = f.item) SELECT d.city, sum(priced.v) AS v FROM priced JOIN d ON d.k = priced.shop GROUP BY d.city;

-- with a table joined twice by its key
SELECT d.city, sum(f.amount * i.price) AS v FROM f JOIN d ON d.k = f.shop JOIN i ON i.k = f.item JOIN i AS again ON again.k = i.k GROUP BY d.city;

-- with IN over a key
SELECT d.city, sum(f.amount * i.price) AS v FROM f JOIN d ON d.k = f.shop JOIN i ON i.k = f.item WHERE f.item IN (SELECT k FROM i) GROUP BY d.city;

-- with a left join to a keyed table that is not read
SELECT d.city, sum(f.amount * i.price) AS v FROM f JOIN d ON d.k = f.shop JOIN i ON i.k = f.item LEFT JOIN d AS o ON o.k = f.item GROUP BY d.city;

-- as an outer join that is none
SELECT d.city, sum(f.amount * i.price) AS v FROM f LEFT JOIN d ON d.k = f.shop JOIN i ON i.k = f.item WHERE d.k IS NOT NULL GROUP BY d.city;

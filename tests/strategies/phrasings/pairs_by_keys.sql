-- Pairs of groups over a join by a key.
-- strategy: skew

-- as a join
SELECT f.shop, d.city, count(*) AS n, sum(f.amount) AS v FROM f JOIN d ON d.k = f.item GROUP BY f.shop, d.city;

-- with commas
SELECT f.shop, d.city, count(*) AS n, sum(f.amount) AS v FROM d, f WHERE f.item = d.k GROUP BY 1, 2;

-- with USING
SELECT shop, city, count(*) AS n, sum(amount) AS v FROM (SELECT shop, item AS k, amount FROM f) AS f JOIN d USING (k) GROUP BY shop, city;

-- with a CTE
WITH j AS (SELECT f.shop, d.city, f.amount FROM f JOIN d ON d.k = f.item) SELECT shop, city, count(*) AS n, sum(amount) AS v FROM j GROUP BY shop, city;

-- with the columns of a subquery
SELECT f.shop, q.city, count(*) AS n, sum(f.amount) AS v FROM f JOIN (SELECT k, city FROM d) AS q ON q.k = f.item GROUP BY f.shop, q.city;

-- with LATERAL
SELECT f.shop, l.city, count(*) AS n, sum(f.amount) AS v FROM f CROSS JOIN LATERAL (SELECT d.city FROM d WHERE d.k = f.item) AS l GROUP BY f.shop, l.city;

-- with a table joined twice by its key
SELECT f.shop, again.city, count(*) AS n, sum(f.amount) AS v FROM f JOIN d ON d.k = f.item JOIN d AS again ON again.k = d.k GROUP BY f.shop, again.city;

-- with a left join that pads nothing
SELECT f.shop, d.city, count(*) AS n, sum(f.amount) AS v FROM f LEFT JOIN d ON d.k = f.item WHERE d.k IS NOT NULL GROUP BY f.shop, d.city;

-- with IN over a key
SELECT f.shop, d.city, count(*) AS n, sum(f.amount) AS v FROM f JOIN d ON d.k = f.item WHERE d.k IN (SELECT k FROM d) GROUP BY f.shop, d.city;

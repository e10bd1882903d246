-- A star and a snowflake without indexes on the foreign keys.
-- quick: rows = 100000
-- whole: rows = 1000000
-- statistics: missing, off
-- update sales: amount = amount + 1, quantity = quantity + 1
-- update customers: name = name || 'x', class = (class + 1) % 5
-- update products: price = price + 1
-- update stores: area = area + 1
-- below: by_day
SELECT day, store, sum(amount) AS amount, count(*) AS sales FROM sales GROUP BY day, store
-- view: star rows
SELECT sale, c.name, p.price, s.area, amount
FROM sales JOIN customers c USING (customer) JOIN products p USING (product) JOIN stores s USING (store)
-- view: star rows when customers change, changes customers
SELECT sale, c.name, p.price, s.area, amount
FROM sales JOIN customers c USING (customer) JOIN products p USING (product) JOIN stores s USING (store)
-- view: star sums
SELECT c.class, s.region, sum(amount) AS amount, count(*) AS sales
FROM sales JOIN customers c USING (customer) JOIN stores s USING (store) GROUP BY c.class, s.region
-- view: star sums when customers change, changes customers
SELECT c.class, s.region, sum(amount) AS amount, count(*) AS sales
FROM sales JOIN customers c USING (customer) JOIN stores s USING (store) GROUP BY c.class, s.region
-- view: snowflake sums
SELECT g.name AS category, r.name AS region, sum(amount * price) AS worth
FROM sales JOIN products p USING (product) JOIN categories g USING (category)
JOIN stores s USING (store) JOIN regions r USING (region) GROUP BY g.name, r.name
-- view: snowflake sums when products change, changes products
SELECT g.name AS category, r.name AS region, sum(amount * price) AS worth
FROM sales JOIN products p USING (product) JOIN categories g USING (category)
JOIN stores s USING (store) JOIN regions r USING (region) GROUP BY g.name, r.name
-- view: sums of each customer, changes customers
SELECT customer, c.name, sum(amount) AS amount FROM sales JOIN customers c USING (customer) GROUP BY customer, c.name
-- view: customers without sales, changes customers
SELECT customer, name FROM customers c WHERE NOT EXISTS (SELECT FROM sales s WHERE s.customer = c.customer AND s.amount > 900)
-- view: best products of each store
SELECT store, product, amount, place
FROM (
    SELECT store, product, sum(amount) AS amount, rank() OVER (PARTITION BY store ORDER BY sum(amount) DESC) AS place
    FROM sales GROUP BY store, product
) AS ranked
WHERE place <= 3
-- view: covariance
SELECT idivm.covar(quantity, price, size, area)
FROM sales JOIN products USING (product) JOIN stores USING (store)
-- view: covariance when products change, changes products
SELECT idivm.covar(quantity, price, size, area)
FROM sales JOIN products USING (product) JOIN stores USING (store)
-- view: view over a view
SELECT s.region, d.day, sum(d.amount) AS amount FROM by_day d JOIN stores s USING (store) GROUP BY s.region, d.day

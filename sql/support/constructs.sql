-- The examples of docs/sql-support.md. A line `-- # title` starts a section, a line `-- name` an example.

-- # Rows and columns
-- selection and projection
SELECT id, name FROM products WHERE price > 10
-- duplicates
SELECT kind, price FROM products
-- expressions: CASE, COALESCE, casts, operators
SELECT id, CASE WHEN price > 10 THEN 'dear' ELSE coalesce(kind, '?') END AS class, price::integer AS rounded FROM products
-- prefix and infix operators of any kind
SELECT id, @ (price - 10) AS apart, price ^ 2 AS squared, trim(kind) ^@ 'kind 1' AS first_kind FROM products
-- user-defined functions, immutable
SELECT id, with_tax(price) AS taxed FROM products
-- user-defined functions with a domain argument
SELECT id, in_words(price) AS price FROM products
-- enums and domains
SELECT id, status, status >= 'paid' AS settled FROM orders
-- arrays and rows
SELECT id, tags[1] AS first, tags || 'x'::text AS more, ROW(id, name) = ROW(1, 'nobody') AS first_one FROM customers
-- json
SELECT id, about -> 'likes' ->> 0 AS liked FROM customers WHERE about @> '{"level": 1}'
-- JSON_OBJECT, JSON_ARRAY (PostgreSQL 16)
SELECT id, JSON_OBJECT('name': name, 'tags': JSON_ARRAY(name, tags) ABSENT ON NULL RETURNING jsonb) AS customer FROM customers
-- JSON_VALUE, JSON_QUERY, JSON_EXISTS (PostgreSQL 17)
SELECT id, JSON_VALUE(about, '$.level' RETURNING integer DEFAULT 0 ON EMPTY) AS level, JSON_QUERY(about, '$.likes') AS likes FROM customers WHERE JSON_EXISTS(about, '$.level')
-- rows as values, of tables and subqueries
SELECT c.id, to_jsonb(c) AS customer, (SELECT json_agg(q ORDER BY q.id) FROM (SELECT o.id, o.status FROM orders o WHERE o.customer = c.id) AS q) AS orders FROM customers c
-- ranges
SELECT id, lower(sold) AS since FROM products WHERE sold && daterange('2024-02-01', '2024-02-10')
-- full text
SELECT id FROM products WHERE to_tsvector('english', name) @@ to_tsquery('english', 'product')
-- collations
SELECT id, name COLLATE "C" AS name FROM customers WHERE name COLLATE "C" < 'customer 2'
-- time zones
SELECT id, at AT TIME ZONE 'Asia/Tokyo' AS tokyo FROM orders
-- VALUES
SELECT o.id, v.label FROM orders o JOIN (VALUES (1, 'first'), (2, 'second')) AS v (id, label) ON v.id = o.customer
-- ORDER BY alone
SELECT id, name FROM customers ORDER BY name

-- # Joins
-- inner join
SELECT o.id, c.name FROM orders o JOIN customers c ON c.id = o.customer
-- NATURAL and USING
SELECT "order", p.name, quantity FROM lines JOIN (SELECT id AS product, name FROM products) p USING (product)
-- non-equi join
SELECT a.id, b.id AS dearer FROM products a JOIN products b ON a.price < b.price AND a.kind = b.kind
-- self-join
SELECT c.name, r.name AS referrer FROM customers c JOIN customers r ON r.id = c.referrer
-- cross join
SELECT c.id, p.id AS product FROM customers c CROSS JOIN products p WHERE p.price > 25
-- LEFT and RIGHT JOIN
SELECT c.id, c.name, o.id AS "order" FROM customers c LEFT JOIN orders o ON o.customer = c.id AND o.status = 'open'
-- nested outer joins
SELECT p.id, l."order", o.status FROM products p LEFT JOIN (lines l JOIN orders o ON o.id = l."order") ON l.product = p.id
-- FULL JOIN
SELECT c.id, o.id AS "order" FROM customers c FULL JOIN orders o ON o.customer = c.id AND o.status = 'sent'
-- LATERAL subquery
SELECT c.id, l.at FROM customers c, LATERAL (SELECT o.at FROM orders o WHERE o.customer = c.id ORDER BY o.at DESC, o.id LIMIT 1) l
-- set-returning function of a row
SELECT c.id, t.tag FROM customers c, unnest(c.tags) AS t (tag)
-- set-returning function, json
SELECT c.id, l.value FROM customers c, jsonb_array_elements(c.about -> 'likes') AS l (value)
-- set-returning function in SELECT
SELECT id, generate_series(1, quantity) AS piece FROM (SELECT "order" AS id, quantity FROM lines WHERE product = 1) q
-- field of a set-returning function
SELECT id, (jsonb_each_text(about)).key AS told FROM customers
-- set-returning function in GROUP BY
SELECT unnest(tags) AS tag, count(*) AS customers FROM customers GROUP BY 1
-- function with a column definition list
SELECT c.id, r.likes, r.level FROM customers c, jsonb_to_record(c.about) AS r (likes jsonb, level integer)
-- generate_series
SELECT d::date AS day, count(o.id) AS orders FROM generate_series(timestamp '2024-01-01', '2024-01-10', '1 day') AS d LEFT JOIN orders o ON o.at::date = d::date GROUP BY d

-- # Aggregates
-- count, sum, avg of exact numbers
SELECT product, count(*) AS lines, count(quantity) AS known, sum(quantity) AS pieces, avg(quantity) AS mean FROM lines GROUP BY product
-- sums over joins
SELECT o.customer, sum(l.quantity * p.price) AS spent FROM orders o JOIN lines l ON l."order" = o.id JOIN products p ON p.id = l.product GROUP BY o.customer
-- FILTER
SELECT customer, count(*) FILTER (WHERE status = 'open') AS open FROM orders GROUP BY customer
-- without GROUP BY
SELECT count(*) AS orders, sum(quantity) AS pieces FROM lines
-- GROUP BY expressions
SELECT date_trunc('day', at AT TIME ZONE 'UTC') AS day, count(*) AS orders FROM orders GROUP BY 1
-- HAVING
SELECT kind, count(*) AS products FROM products GROUP BY kind HAVING count(*) > 6
-- aggregates of aggregates
SELECT orders, count(*) AS customers FROM (SELECT customer, count(*) AS orders FROM orders GROUP BY customer) q GROUP BY orders
-- min and max
SELECT kind, min(price) AS least, max(price) AS most FROM products GROUP BY kind
-- min and max without GROUP BY
SELECT max(price) AS most FROM products
-- DISTINCT in an aggregate
SELECT product, count(DISTINCT quantity) AS quantities FROM lines GROUP BY product
-- sum and avg of floats
SELECT product, sum(weight) AS weight, avg(weight) AS mean FROM lines GROUP BY product
-- variance, standard deviation
SELECT product, var_pop(quantity) AS variance, stddev(quantity) AS deviation FROM lines GROUP BY product
-- regression and correlation
SELECT product, corr(weight, quantity) AS correlation, regr_slope(weight, quantity) AS slope FROM lines GROUP BY product
-- bool_and, bit_or
SELECT customer, bool_and(status = 'sent') AS all_sent, bit_or(id) AS bits FROM orders GROUP BY customer
-- string_agg, array_agg, json_agg
SELECT customer, string_agg(id::text, ',' ORDER BY id) AS orders, array_agg(status ORDER BY id) AS states, jsonb_agg(id ORDER BY id) AS json FROM orders GROUP BY customer
-- JSON_ARRAYAGG, JSON_OBJECTAGG (PostgreSQL 16)
SELECT customer, JSON_ARRAYAGG(id ORDER BY id RETURNING jsonb) AS orders, JSON_OBJECTAGG(id: status RETURNING jsonb) AS states FROM orders GROUP BY customer
-- mode, percentile
SELECT product, mode() WITHIN GROUP (ORDER BY quantity) AS usual, percentile_cont(0.5) WITHIN GROUP (ORDER BY weight) AS median FROM lines GROUP BY product
-- user-defined aggregates
SELECT kind, product(price) AS product FROM products GROUP BY kind
-- GROUPING SETS, ROLLUP, CUBE
SELECT customer, status, count(*) AS orders FROM orders GROUP BY ROLLUP (customer, status)

-- # Duplicates and set operations
-- DISTINCT
SELECT DISTINCT o.customer, l.product FROM orders o JOIN lines l ON l."order" = o.id
-- DISTINCT ON
SELECT DISTINCT ON (customer) customer, id, at FROM orders ORDER BY customer, at DESC, id
-- UNION ALL
SELECT id, name FROM customers UNION ALL SELECT id, name FROM products
-- UNION
SELECT city AS label FROM customers UNION SELECT kind FROM products
-- INTERSECT, EXCEPT
SELECT id FROM customers EXCEPT SELECT customer FROM orders
-- INTERSECT ALL, EXCEPT ALL
SELECT id FROM customers INTERSECT ALL SELECT customer FROM orders

-- # Subqueries and CTEs
-- EXISTS and IN
SELECT id, name FROM customers c WHERE EXISTS (SELECT FROM orders o WHERE o.customer = c.id AND o.status = 'open') AND id IN (SELECT customer FROM orders)
-- NOT EXISTS
SELECT id, name FROM products p WHERE NOT EXISTS (SELECT FROM lines l WHERE l.product = p.id AND l.quantity > 4)
-- NOT IN
SELECT id, name FROM customers WHERE id NOT IN (SELECT referrer FROM customers)
-- EXISTS beside OR
SELECT id FROM customers c WHERE city IS NULL OR EXISTS (SELECT FROM orders o WHERE o.customer = c.id AND o.status = 'sent')
-- ANY and ALL
SELECT id FROM products WHERE price >= ALL (SELECT price FROM products WHERE price IS NOT NULL)
-- scalar subquery
SELECT id FROM products WHERE price > (SELECT avg(price) FROM products)
-- correlated scalar subquery in SELECT
SELECT c.id, (SELECT max(o.at) FROM orders o WHERE o.customer = c.id) AS latest FROM customers c
-- correlated scalar subquery in WHERE
SELECT l."order", l.product FROM lines l WHERE l.quantity > (SELECT avg(m.quantity) FROM lines m WHERE m.product = l.product)
-- subquery in FROM
SELECT c.name, q.orders FROM customers c JOIN (SELECT customer, count(*) AS orders FROM orders GROUP BY customer) q ON q.customer = c.id
-- CTE used once
WITH sums AS (SELECT "order", sum(quantity) AS pieces FROM lines GROUP BY "order") SELECT o.id, s.pieces FROM orders o JOIN sums s ON s."order" = o.id
-- CTE used several times
WITH sums AS (SELECT product, sum(quantity) AS pieces FROM lines GROUP BY product) SELECT a.product, b.product AS less FROM sums a JOIN sums b ON b.pieces < a.pieces
-- WITH RECURSIVE, UNION
WITH RECURSIVE led (by, id) AS (SELECT referrer, id FROM customers WHERE referrer IS NOT NULL UNION SELECT led.by, c.id FROM led JOIN customers c ON c.referrer = led.id) SELECT by, count(*) AS customers FROM led GROUP BY by
-- WITH RECURSIVE, UNION ALL
WITH RECURSIVE led (id, top) AS (SELECT id, id FROM customers WHERE referrer IS NULL UNION ALL SELECT c.id, led.top FROM customers c JOIN led ON c.referrer = led.id) SELECT id, top FROM led

-- # Windows and limits
-- row_number, rank, ntile
SELECT id, customer, row_number() OVER (PARTITION BY customer ORDER BY at, id) AS nth FROM orders
-- lag, lead, first_value
SELECT id, lag(at) OVER (PARTITION BY customer ORDER BY at, id) AS before FROM orders
-- aggregates over frames
SELECT "order", product, sum(quantity) OVER (PARTITION BY product ORDER BY "order" ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS around FROM lines
-- window without PARTITION BY
SELECT id, rank() OVER (ORDER BY price DESC NULLS LAST) AS place FROM products
-- filter on a window
SELECT id, customer FROM (SELECT id, customer, row_number() OVER (PARTITION BY customer ORDER BY at DESC, id) AS nth FROM orders) q WHERE nth <= 2
-- ORDER BY with LIMIT
SELECT id, name FROM products ORDER BY price DESC NULLS LAST, id LIMIT 5
-- ORDER BY with OFFSET and LIMIT
SELECT id, at FROM orders ORDER BY at DESC, id OFFSET 5 LIMIT 5
-- LIMIT over groups
SELECT customer, count(*) AS orders FROM orders GROUP BY customer ORDER BY orders DESC, customer LIMIT 3
-- WITH TIES
SELECT id, kind FROM products ORDER BY kind FETCH FIRST 2 ROWS WITH TIES

-- # Sources
-- views
SELECT c.name, o.id FROM open_orders o JOIN customers c ON c.id = o.customer
-- maintained views
SELECT orders, count(*) AS customers FROM order_counts GROUP BY orders
-- partitioned table
SELECT year, sum(value) AS value FROM readings GROUP BY year
-- inheritance
SELECT id, title FROM documents
-- partition or inheritance child
SELECT id, value FROM readings_2024
-- key by a unique index
SELECT name, value FROM settings
-- table without a key
SELECT customer, kind FROM events
-- table without a key, grouped
SELECT kind, count(*) AS events FROM events GROUP BY kind
-- generated column
SELECT id, shown FROM products
-- materialized view, foreign table, catalog
SELECT city, customers FROM cities

-- # Time-dependent queries
-- rows compared with the current time
SELECT id FROM orders WHERE at > now() - interval '1 day'
-- the current time in a result
SELECT id, now() - at AS age FROM orders

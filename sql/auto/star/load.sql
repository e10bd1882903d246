-- A star of sales with a snowflake behind it, with foreign keys and without indexes on them.
--
--   SET bench.rows = 200000;      sales

CREATE TABLE categories AS SELECT n AS category, 'category ' || n AS name FROM generate_series(1, 50) AS n;
CREATE TABLE regions AS SELECT n AS region, 'region ' || n AS name FROM generate_series(1, 10) AS n;
CREATE TABLE products AS
SELECT n AS product, 1 + n % 50 AS category, 1 + n % 90 AS price, 1 + n % 7 AS size
FROM generate_series(1, current_setting('bench.rows')::integer / 100) AS n;
CREATE TABLE stores AS SELECT n AS store, 1 + n % 10 AS region, 100 + n AS area FROM generate_series(1, 200) AS n;
CREATE TABLE customers AS
SELECT n AS customer, 'customer ' || n AS name, 18 + n % 70 AS age, n % 5 AS class
FROM generate_series(1, current_setting('bench.rows')::integer / 10) AS n;
CREATE TABLE sales AS
SELECT n AS sale, 1 + (hashint4extended(n, 1) & 2147483647)::integer % (rows / 10) AS customer,
       1 + (hashint4extended(n, 2) & 2147483647)::integer % (rows / 100) AS product,
       1 + (hashint4extended(n, 3) & 2147483647)::integer % 200 AS store,
       date '2024-01-01' + n % 365 AS day, 1 + n % 9 AS quantity, (1 + n % 1000)::numeric(10, 2) AS amount
FROM (SELECT current_setting('bench.rows')::integer) AS r (rows), generate_series(1, rows) AS n;
ALTER TABLE categories ADD PRIMARY KEY (category);
ALTER TABLE regions ADD PRIMARY KEY (region);
ALTER TABLE products ADD PRIMARY KEY (product), ADD FOREIGN KEY (category) REFERENCES categories, ALTER category SET NOT NULL;
ALTER TABLE stores ADD PRIMARY KEY (store), ADD FOREIGN KEY (region) REFERENCES regions, ALTER region SET NOT NULL;
ALTER TABLE customers ADD PRIMARY KEY (customer);
ALTER TABLE sales ADD PRIMARY KEY (sale), ADD FOREIGN KEY (customer) REFERENCES customers,
    ADD FOREIGN KEY (product) REFERENCES products, ADD FOREIGN KEY (store) REFERENCES stores,
    ALTER customer SET NOT NULL, ALTER product SET NOT NULL, ALTER store SET NOT NULL;

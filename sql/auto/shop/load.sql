-- The shop of sql/support/schema.sql, larger, without foreign keys, so that rows of every table can go and come.
--
--   SET bench.rows = 100000;      rows of lines, about

CREATE TYPE status AS ENUM ('open', 'paid', 'sent');
CREATE DOMAIN amount AS numeric(10, 2) CHECK (VALUE >= 0);
CREATE FUNCTION with_tax(price numeric) RETURNS numeric LANGUAGE sql IMMUTABLE RETURN price * 1.25;
CREATE FUNCTION in_words(price amount) RETURNS text LANGUAGE sql IMMUTABLE RETURN price || ' EUR';
CREATE AGGREGATE product(numeric) (sfunc = numeric_add, stype = numeric, initcond = '0');

CREATE TABLE customers (id integer PRIMARY KEY, name text NOT NULL, city text, referrer integer, tags text[], about jsonb);
INSERT INTO customers
SELECT n, 'customer ' || n, CASE WHEN n % 4 > 0 THEN 'city ' || n % 97 END, CASE WHEN n > 3 THEN n / 3 END,
       ARRAY['t' || n % 2, 't' || n % 5], jsonb_build_object('level', n % 3, 'likes', jsonb_build_array(n, n + 1))
FROM generate_series(1, current_setting('bench.rows')::integer / 10) AS n;

-- Two are dear.
CREATE TABLE products (
    id integer PRIMARY KEY, name text NOT NULL, kind text, price amount, sold daterange,
    shown text GENERATED ALWAYS AS (upper(name)) STORED
);
INSERT INTO products
SELECT n, 'product ' || n, 'kind ' || n % 30, CASE WHEN n <= 2 THEN 30 WHEN n % 7 > 0 THEN 1.50 + n % 20 END,
       daterange(date '2024-01-01' + n, date '2024-02-01' + 2 * n)
FROM generate_series(1, least(1000, current_setting('bench.rows')::integer / 300)) AS n;

CREATE TABLE orders (id integer PRIMARY KEY, customer integer NOT NULL, status status NOT NULL, at timestamptz NOT NULL);
INSERT INTO orders
SELECT n, 1 + n * 7 % customers, (enum_range(NULL::status))[1 + n % 3],
       timestamptz '2024-01-01 00:00+00' + n * 37 % 1440 * interval '1 hour'
FROM (SELECT count(*)::integer FROM customers) AS c (customers),
     generate_series(1, current_setting('bench.rows')::integer / 3) AS n;

CREATE TABLE lines (
    "order" integer NOT NULL, product integer NOT NULL, quantity integer, weight double precision,
    PRIMARY KEY ("order", product)
);
INSERT INTO lines
SELECT n, 1 + n * k % products, CASE WHEN n % 9 > 0 THEN 1 + n % 5 END, n % 1000 * 0.5
FROM (SELECT count(*)::integer FROM products) AS p (products),
     generate_series(1, current_setting('bench.rows')::integer / 3) AS n, generate_series(1, 3) AS k
ON CONFLICT DO NOTHING;

-- No key, with rows that are there twice.
CREATE TABLE events (customer integer, kind text);
INSERT INTO events
SELECT 1 + n % 1000, CASE WHEN n % 3 > 0 THEN 'kind ' || n % 2 END
FROM generate_series(1, current_setting('bench.rows')::integer / 2) AS n;

-- No primary key, but a unique index.
CREATE TABLE settings (name text NOT NULL, value text);
CREATE UNIQUE INDEX ON settings (name);
INSERT INTO settings SELECT 'setting ' || n, 'value ' || n % 10 FROM generate_series(1, current_setting('bench.rows')::integer / 2) AS n;

CREATE TABLE readings (year integer NOT NULL, id integer NOT NULL, value integer, PRIMARY KEY (year, id)) PARTITION BY LIST (year);
CREATE TABLE readings_2023 PARTITION OF readings FOR VALUES IN (2023);
CREATE TABLE readings_2024 PARTITION OF readings FOR VALUES IN (2024);
INSERT INTO readings SELECT 2023 + n % 2, n, n % 6 FROM generate_series(1, current_setting('bench.rows')::integer) AS n;

CREATE TABLE documents (id integer PRIMARY KEY, title text);
CREATE TABLE invoices (total numeric) INHERITS (documents);
INSERT INTO documents SELECT n, 'letter ' || n FROM generate_series(1, current_setting('bench.rows')::integer / 2) AS n;
INSERT INTO invoices
SELECT n, 'invoice ' || n, n
FROM generate_series(current_setting('bench.rows')::integer / 2 + 1, current_setting('bench.rows')::integer) AS n;

CREATE INDEX ON orders (customer);
CREATE INDEX ON lines (product);
CREATE INDEX ON customers (referrer);
CREATE MATERIALIZED VIEW cities AS SELECT city, count(*) AS customers FROM customers GROUP BY city;
CREATE VIEW open_orders AS SELECT id, customer FROM orders WHERE status = 'open';

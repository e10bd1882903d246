-- A shop: the tables that the examples of docs/sql-support.md read.

CREATE TYPE status AS ENUM ('open', 'paid', 'sent');
CREATE DOMAIN amount AS numeric(10, 2) CHECK (VALUE >= 0);
CREATE FUNCTION with_tax(price numeric) RETURNS numeric LANGUAGE sql IMMUTABLE RETURN price * 1.25;
CREATE FUNCTION in_words(price amount) RETURNS text LANGUAGE sql IMMUTABLE RETURN price || ' EUR';
CREATE AGGREGATE product(numeric) (sfunc = numeric_mul, stype = numeric, initcond = '1');

CREATE TABLE customers (
    id integer PRIMARY KEY, name text NOT NULL, city text, referrer integer REFERENCES customers, tags text[], about jsonb
);
INSERT INTO customers
SELECT n, 'customer ' || n, CASE WHEN n % 4 > 0 THEN 'city ' || n % 3 END, CASE WHEN n > 3 THEN n / 3 END,
       ARRAY['t' || n % 2, 't' || n % 5], jsonb_build_object('level', n % 3, 'likes', jsonb_build_array(n, n + 1))
FROM generate_series(1, 30) AS n;

CREATE TABLE products (
    id integer PRIMARY KEY, name text NOT NULL, kind text, price amount, sold daterange,
    shown text GENERATED ALWAYS AS (upper(name)) STORED
);
INSERT INTO products
SELECT n, 'product ' || n, 'kind ' || n % 3, CASE WHEN n % 7 > 0 THEN n * 1.50 END,
       daterange(date '2024-01-01' + n, date '2024-02-01' + 2 * n)
FROM generate_series(1, 20) AS n;

CREATE TABLE orders (
    id integer PRIMARY KEY, customer integer NOT NULL REFERENCES customers, status status NOT NULL, at timestamptz NOT NULL
);
INSERT INTO orders
SELECT n, 1 + n * 7 % 30, (enum_range(NULL::status))[1 + n % 3], timestamptz '2024-01-01 00:00+00' + n * interval '7 hours'
FROM generate_series(1, 60) AS n;

CREATE TABLE lines (
    "order" integer NOT NULL REFERENCES orders, product integer NOT NULL REFERENCES products, quantity integer,
    weight double precision, PRIMARY KEY ("order", product)
);
INSERT INTO lines
SELECT n, 1 + n * k % 20, CASE WHEN n % 9 > 0 THEN 1 + n % 5 END, n * 0.5
FROM generate_series(1, 60) AS n, generate_series(1, 3) AS k
ON CONFLICT DO NOTHING;

-- No key, with rows that are there twice.
CREATE TABLE events (customer integer, kind text);
INSERT INTO events SELECT 1 + n % 10, CASE WHEN n % 3 > 0 THEN 'kind ' || n % 2 END FROM generate_series(1, 40) AS n;

-- No primary key, but a unique index.
CREATE TABLE settings (name text NOT NULL, value text);
CREATE UNIQUE INDEX ON settings (name);
INSERT INTO settings VALUES ('colour', 'red'), ('size', 'm');

CREATE TABLE readings (year integer NOT NULL, id integer NOT NULL, value integer, PRIMARY KEY (year, id)) PARTITION BY LIST (year);
CREATE TABLE readings_2023 PARTITION OF readings FOR VALUES IN (2023);
CREATE TABLE readings_2024 PARTITION OF readings FOR VALUES IN (2024);
INSERT INTO readings SELECT 2023 + n % 2, n, n % 6 FROM generate_series(1, 20) AS n;

CREATE TABLE documents (id integer PRIMARY KEY, title text);
CREATE TABLE invoices (total numeric) INHERITS (documents);
INSERT INTO documents VALUES (1, 'letter');
INSERT INTO invoices VALUES (2, 'invoice', 12.5);

CREATE MATERIALIZED VIEW cities AS SELECT city, count(*) AS customers FROM customers GROUP BY city;
CREATE VIEW open_orders AS SELECT id, customer FROM orders WHERE status = 'open';

-- Statistics that come on the way would change plans, and so the table of examples.
ALTER TABLE customers SET (autovacuum_enabled = off);
ALTER TABLE products SET (autovacuum_enabled = off);
ALTER TABLE orders SET (autovacuum_enabled = off);
ALTER TABLE lines SET (autovacuum_enabled = off);
ALTER TABLE events SET (autovacuum_enabled = off);

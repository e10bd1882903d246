-- Sales of groceries in a star, with the tables and the widths of papers/fivm.txt, section 9.
--
--   SET bench.rows = 100000;      rows of sales
--   SET bench.seed = 1;
--
--   SET bench.skew = 0;           1: popular stores and items have more rows
--
-- It imitates grocery stores. Sales row n is of date n % 101, store n % 53 and item n % 499: no three rows are
-- alike. With skew, stores and items are drawn like those in sales data: the popularity of rank r falls like
-- r^-0.5 for stores and r^-0.67 for items, and draws of a row that exists are left out. Features of a store, an
-- item or a day share a hidden size, so they correlate. A promotion and a busy store sell more. All features are
-- numbers; those that stand for categories have few values.

CREATE OR REPLACE FUNCTION pg_temp.draw(n integer, place integer) RETURNS integer LANGUAGE sql IMMUTABLE
    RETURN (hashint4extended(n, current_setting('bench.seed')::bigint + place) & 255)::integer;
-- A feature: of four parts, place % 4 are the hidden size, which is the same for all features of n.
CREATE OR REPLACE FUNCTION pg_temp.some(n integer, place integer) RETURNS integer LANGUAGE sql IMMUTABLE
    RETURN (place % 4 * pg_temp.draw(n, 1000) + (4 - place % 4) * pg_temp.draw(n, place)) / 4;
-- A number between 0 and 1 to the power of `skew`, so that small values are frequent.
CREATE OR REPLACE FUNCTION pg_temp.rank(n integer, place integer, skew integer) RETURNS double precision LANGUAGE sql IMMUTABLE
    RETURN power((hashint4extended(n, current_setting('bench.seed')::bigint + place) & 1048575) / 1048576.0, skew);

DO $$
DECLARE
    made record;
BEGIN
    -- A table, its key, how many rows it has, its features, and how many values each of them has.
    FOR made IN VALUES
        ('stores', 'store', 53, ARRAY['city', 'state', 'store_type', 'store_cluster'], ARRAY[22, 16, 5, 17]),
        ('items', 'item', 499, ARRAY['family', 'class', 'perishable'], ARRAY[33, 60, 2]),
        ('holidays', 'date', 101, ARRAY['holiday', 'locale', 'locale_name', 'transferred'], ARRAY[6, 3, 24, 2]),
        ('oil', 'date', 101, ARRAY['oil_price'], ARRAY[256])
    LOOP
        EXECUTE format('CREATE TABLE %I (%I integer PRIMARY KEY, %s)', made.column1, made.column2,
            (SELECT string_agg(format('%I integer NOT NULL', name), ', ') FROM unnest(made.column4) AS name));
        EXECUTE format('INSERT INTO %I SELECT n, %s FROM generate_series(0, %s) AS n', made.column1,
            (SELECT string_agg(format('pg_temp.some(n, %s) * %s / 256', place, made.column5[place]), ', ' ORDER BY place)
             FROM generate_subscripts(made.column4, 1) AS place), made.column3 - 1);
    END LOOP;
END
$$;

CREATE TABLE transactions (
    date integer, store integer, transactions integer NOT NULL, PRIMARY KEY (date, store)
);
INSERT INTO transactions
SELECT d, s, (3 * pg_temp.some(s, 1) + pg_temp.draw(d * 53 + s, 7)) / 4 FROM generate_series(0, 100) AS d, generate_series(0, 52) AS s;

CREATE TABLE sales (
    date integer, store integer, item integer, unit_sales integer NOT NULL, on_promotion integer NOT NULL,
    PRIMARY KEY (date, store, item)
);
INSERT INTO sales
SELECT d, s, i, (pg_temp.some(s, 1) + pg_temp.draw(n, 8) + 128 * promoted) / 3, promoted
FROM generate_series(0, current_setting('bench.rows')::integer - 1) AS n,
     LATERAL (SELECT n % 101, n % 53, n % 499 WHERE current_setting('bench.skew') = '0'
              UNION ALL
              SELECT floor(101 * pg_temp.rank(n, 11, 1))::integer, floor(53 * pg_temp.rank(n, 12, 2))::integer,
                     floor(499 * pg_temp.rank(n, 13, 3))::integer
              WHERE current_setting('bench.skew') = '1') AS place (d, s, i),
     LATERAL (SELECT pg_temp.draw(n, 9) % 2) AS sale (promoted)
ON CONFLICT DO NOTHING;
CREATE INDEX ON sales (store);
CREATE INDEX ON sales (item);
CREATE INDEX ON transactions (store);

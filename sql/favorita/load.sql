-- Sales of groceries in a star, with the tables and the widths of papers/fivm.txt, section 9.
--
--   SET bench.rows = 100000;      rows of sales
--   SET bench.seed = 1;
--
-- Sales row n is of date n % 101, store n % 53 and item n % 499: no three rows are alike. All features are
-- numbers; those that stand for categories have few values.

CREATE OR REPLACE FUNCTION pg_temp.some(n integer, place integer) RETURNS integer LANGUAGE sql IMMUTABLE
    RETURN (hashint4extended(n, current_setting('bench.seed')::bigint + place) & 255)::integer;

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
            (SELECT string_agg(format('pg_temp.some(n, %s) %% %s', place, made.column5[place]), ', ' ORDER BY place)
             FROM generate_subscripts(made.column4, 1) AS place), made.column3 - 1);
    END LOOP;
END
$$;

CREATE TABLE transactions (
    date integer, store integer, transactions integer NOT NULL, PRIMARY KEY (date, store)
);
INSERT INTO transactions
SELECT d, s, pg_temp.some(d * 53 + s, 7) FROM generate_series(0, 100) AS d, generate_series(0, 52) AS s;

CREATE TABLE sales (
    date integer, store integer, item integer, unit_sales integer NOT NULL, on_promotion integer NOT NULL,
    PRIMARY KEY (date, store, item)
);
INSERT INTO sales
SELECT n % 101, n % 53, n % 499, pg_temp.some(n, 8), pg_temp.some(n, 9) % 2
FROM generate_series(0, current_setting('bench.rows')::integer - 1) AS n;
CREATE INDEX ON sales (store);
CREATE INDEX ON sales (item);
CREATE INDEX ON transactions (store);

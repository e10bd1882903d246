-- A retailer in a snowflake, with the tables and the widths of papers/fivm.txt, section 9.
--
--   SET bench.rows = 100000;      rows of inventory
--   SET bench.seed = 1;
--
-- Inventory row n is of location n % 101, date n % 53 and item n % 499: no three rows are alike.

CREATE OR REPLACE FUNCTION pg_temp.some(n integer, place integer) RETURNS integer LANGUAGE sql IMMUTABLE
    RETURN (hashint4extended(n, current_setting('bench.seed')::bigint + place) & 255)::integer;

DO $$
DECLARE
    made record;
BEGIN
    -- A table, its key, how many rows it has, and its features.
    FOR made IN VALUES
        ('location', 'locn', 101, ARRAY['area', 'sell_area', 'income', 'dist_rival', 'dist_target', 'dist_mall',
            'dist_club', 'dist_highway', 'parking', 'floors', 'doors', 'staff', 'opened']),
        ('item', 'ksn', 499, ARRAY['price', 'subcategory', 'category', 'cluster']),
        ('census', 'zip', 40, ARRAY['population', 'median_age', 'houses', 'occupied', 'families', 'households',
            'couples', 'males', 'females', 'children', 'pensioners', 'owners', 'tenants', 'cars', 'migrants'])
    LOOP
        EXECUTE format('CREATE TABLE %I (%I integer PRIMARY KEY)', made.column1, made.column2);
        EXECUTE format('INSERT INTO %I SELECT generate_series(0, %s)', made.column1, made.column3 - 1);
        FOR place IN 1 .. cardinality(made.column4) LOOP
            EXECUTE format('ALTER TABLE %I ADD %I integer', made.column1, made.column4[place]);
            EXECUTE format('UPDATE %I SET %I = pg_temp.some(%I, %s)', made.column1, made.column4[place],
                           made.column2, place);
            EXECUTE format('ALTER TABLE %I ALTER %I SET NOT NULL', made.column1, made.column4[place]);
        END LOOP;
    END LOOP;
END
$$;
ALTER TABLE location ADD zip integer;
UPDATE location SET zip = locn % 40;
ALTER TABLE location ALTER zip SET NOT NULL;

CREATE TABLE weather (
    locn integer, dateid integer, rain integer NOT NULL, snow integer NOT NULL, max_temp integer NOT NULL,
    min_temp integer NOT NULL, wind integer NOT NULL, thunder integer NOT NULL, PRIMARY KEY (locn, dateid)
);
INSERT INTO weather
SELECT l, d, pg_temp.some(k, 1), pg_temp.some(k, 2), pg_temp.some(k, 3), pg_temp.some(k, 4), pg_temp.some(k, 5),
       pg_temp.some(k, 6)
FROM generate_series(0, 100) AS l, generate_series(0, 52) AS d, LATERAL (SELECT l * 53 + d) AS h (k);

CREATE TABLE inventory (
    locn integer, dateid integer, ksn integer, units integer NOT NULL, PRIMARY KEY (locn, dateid, ksn)
);
INSERT INTO inventory
SELECT n % 101, n % 53, n % 499, pg_temp.some(n, 9)
FROM generate_series(0, current_setting('bench.rows')::integer - 1) AS n;
CREATE INDEX ON inventory (ksn);
CREATE INDEX ON location (zip);

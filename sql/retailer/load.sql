-- A retailer in a snowflake, with the tables and the widths of papers/fivm.txt, section 9.
--
--   SET bench.rows = 100000;      rows of inventory
--   SET bench.seed = 1;
--
--   SET bench.skew = 0;           1: popular locations and items have more rows
--
-- It imitates a chain of shops. Inventory row n is of location n % 101, date n % 53 and item n % 499: no three
-- rows are alike. With skew, locations and items are drawn like shops and goods in sales data: the popularity of
-- rank r falls like r^-0.5 for locations and r^-0.67 for items, and draws of a row that exists are left out.
-- Features of a location, an item or a day share a hidden size, so they correlate by up to 0.9. Units rise with
-- the size of the location and fall with the price of the item.

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
SELECT l, d, k, (255 - pg_temp.some(k, 1) + pg_temp.some(l, 1) + 2 * pg_temp.draw(n, 9)) / 4
FROM generate_series(0, current_setting('bench.rows')::integer - 1) AS n,
     LATERAL (SELECT n % 101, n % 53, n % 499 WHERE current_setting('bench.skew') = '0'
              UNION ALL
              SELECT floor(101 * pg_temp.rank(n, 11, 2))::integer, floor(53 * pg_temp.rank(n, 12, 1))::integer,
                     floor(499 * pg_temp.rank(n, 13, 3))::integer
              WHERE current_setting('bench.skew') = '1') AS place (l, d, k)
ON CONFLICT DO NOTHING;
CREATE INDEX ON inventory (ksn);
CREATE INDEX ON location (zip);

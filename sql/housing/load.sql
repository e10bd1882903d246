-- Houses and what is around them, in a star on postcode, with the tables of papers/fivm.txt, section 9.
--
--   SET bench.postcodes = 25;
--   SET bench.scale = 20;         rows of house, shop and restaurant for each postcode
--   SET bench.seed = 1;
--
--   SET bench.skew = 0;           1: towns have more of them than villages
--
-- It imitates a market of houses. The join has scale * scale * scale rows for each postcode, and the tables a few
-- times scale. With skew, a postcode has one house, shop and restaurant up to twice the scale, as villages and
-- towns have: their number is twice the scale times a square of a uniform number. All tables of a postcode share
-- a hidden wealth, so that prices, salaries and shops correlate.

CREATE OR REPLACE FUNCTION pg_temp.draw(n integer, place integer) RETURNS integer LANGUAGE sql IMMUTABLE
    RETURN (hashint4extended(n, current_setting('bench.seed')::bigint + place) & 255)::integer;
-- A feature of entry i of a postcode: of four parts, place % 4 are the wealth of the postcode.
CREATE OR REPLACE FUNCTION pg_temp.house_value(postcode integer, i integer, place integer) RETURNS integer LANGUAGE sql IMMUTABLE
    RETURN (place % 4 * pg_temp.draw(postcode, 1000) + (4 - place % 4) * pg_temp.draw(postcode * 1000 + i, place)) / 4;
-- The entries of a table with so many of them for a postcode.
CREATE OR REPLACE FUNCTION pg_temp.entries(postcode integer, scale integer) RETURNS integer LANGUAGE sql IMMUTABLE
    RETURN CASE WHEN scale > 1 AND current_setting('bench.skew') = '1'
                THEN greatest(1, round(2 * scale * power(pg_temp.draw(postcode, 1001) / 255.0, 2)))::integer
                ELSE scale END;

DO $$
DECLARE
    scale integer := current_setting('bench.scale')::integer;
    postcodes integer := current_setting('bench.postcodes')::integer;
    made record;
BEGIN
    -- A table, how many rows it has for a postcode, what tells these apart, and its other columns.
    FOR made IN VALUES
        ('house', scale, 'house_id', ARRAY['living_area', 'price', 'bedrooms', 'bathrooms', 'kitchen', 'detached',
            'flat', 'unknown', 'garden', 'parking']),
        ('shop', scale, 'shop_id', ARRAY['shop_hours', 'shop_prices', 'sainsburys', 'tesco', 'marks']),
        ('restaurant', scale, 'restaurant_id', ARRAY['restaurant_hours', 'restaurant_prices']),
        ('institution', 1, 'institution_id', ARRAY['education', 'institution_size']),
        ('demographics', 1, NULL, ARRAY['salary', 'crimes', 'unemployment', 'hospitals']),
        ('transport', 1, NULL, ARRAY['buses', 'trains', 'distance'])
    LOOP
        EXECUTE format('CREATE TABLE %I (postcode integer, %s%s, PRIMARY KEY (postcode%s))', made.column1,
            coalesce(quote_ident(made.column3) || ' integer, ', ''),
            (SELECT string_agg(format('%I integer NOT NULL', name), ', ') FROM unnest(made.column4) AS name),
            coalesce(', ' || quote_ident(made.column3), ''));
        EXECUTE format('INSERT INTO %I SELECT p, %s%s FROM generate_series(1, $1) AS p,'
            ' generate_series(1, pg_temp.entries(p, $2)) AS i',
            made.column1, CASE WHEN made.column3 IS NOT NULL THEN 'i, ' END,
            (SELECT string_agg(format('pg_temp.house_value(p, i, %s)', place), ', ')
             FROM generate_subscripts(made.column4, 1) AS place))
        USING postcodes, made.column2;
    END LOOP;
END
$$;

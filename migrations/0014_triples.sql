-- Elements of the covariance ring, as view trees store them: of m numbers, one array with the sums
-- of the products of each two of 1, x_1, ..., x_m, upper triangle, row by row. So {n} is a count.

CREATE FUNCTION idivm.triple_width(t double precision[]) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ((sqrt(8 * cardinality(t) + 1) - 1) / 2)::integer;

-- The functions that have a form in C, and what uses them. A procedure makes them, so that this form
-- can come back where the other one has to go.
CREATE PROCEDURE idivm.plain_triples()
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $plain$
BEGIN
    CREATE OR REPLACE FUNCTION idivm.triple_step(state double precision[], a double precision[], b double precision[])
        RETURNS double precision[]
        LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        rows integer := idivm.triple_width(a);
        wide integer := idivm.triple_width(b);
        w integer := rows + wide - 1;
        made double precision[] := coalesce(state, array_fill(0::double precision, ARRAY[w * (w + 1) / 2]));
        k integer := 0;
        place integer := 0;
    BEGIN
        IF cardinality(made) <> w * (w + 1) / 2 OR cardinality(a) <> rows * (rows + 1) / 2
           OR cardinality(b) <> wide * (wide + 1) / 2 THEN
            RAISE EXCEPTION 'triples of % and % numbers do not add up to one of %',
                rows - 1, wide - 1, idivm.triple_width(made) - 1 USING ERRCODE = 'array_subscript_error';
        END IF;
        FOR i IN 1 .. rows LOOP
            FOR j IN i .. rows LOOP
                k := k + 1;
                place := place + 1;
                made[k] := made[k] + a[place] * b[1];
            END LOOP;
            FOR j IN 2 .. wide LOOP
                k := k + 1;
                made[k] := made[k] + a[i] * b[j];
            END LOOP;
        END LOOP;
        FOR i IN wide + 1 .. cardinality(b) LOOP
            k := k + 1;
            made[k] := made[k] + a[1] * b[i];
        END LOOP;
        RETURN made;
    END
    $$;
    COMMENT ON FUNCTION idivm.triple_step(double precision[], double precision[], double precision[]) IS
        'a triple and the product of two others over different numbers, added';

    CREATE OR REPLACE FUNCTION idivm.triple_lift_step(state double precision[], times bigint, x double precision[])
        RETURNS double precision[]
        LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        w integer := cardinality(x) + 1;
        made double precision[] := coalesce(state, array_fill(0::double precision, ARRAY[w * (w + 1) / 2]));
        y double precision[];
        k integer := 0;
    BEGIN
        IF cardinality(made) <> w * (w + 1) / 2 THEN
            RAISE EXCEPTION 'a triple of % numbers is not one of %', idivm.triple_width(made) - 1, w - 1
                USING ERRCODE = 'array_subscript_error';
        END IF;
        IF times = 0 OR array_position(x, NULL) IS NOT NULL OR 'NaN' = ANY (x)
           OR 'Infinity' = ANY (x) OR '-Infinity' = ANY (x) THEN
            RETURN made;
        END IF;
        y := array_prepend(1::double precision, x);
        FOR i IN 1 .. w LOOP
            FOR j IN i .. w LOOP
                k := k + 1;
                made[k] := made[k] + times * (y[i] * y[j]);
            END LOOP;
        END LOOP;
        RETURN made;
    END
    $$;
    COMMENT ON FUNCTION idivm.triple_lift_step(double precision[], bigint, double precision[]) IS
        'a triple and that of a row, added so many times; rows with NULL, NaN, infinity have none';

    -- The sums of products among some numbers of a triple, in the order of their places.
    CREATE OR REPLACE FUNCTION idivm.triple_products(t double precision[], places integer[])
        RETURNS double precision[]
        LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        w integer := idivm.triple_width(t);
        made double precision[] := '{}';
        k integer := 0;
        first integer;
    BEGIN
        FOR i IN 1 .. cardinality(places) LOOP
            FOR j IN i .. cardinality(places) LOOP
                first := least(places[i], places[j]);
                k := k + 1;
                made[k] := t[first * w - first * (first - 1) / 2 + abs(places[i] - places[j]) + 1];
            END LOOP;
        END LOOP;
        RETURN made;
    END
    $$;

    CREATE OR REPLACE FUNCTION idivm.triple_times(a double precision[], b double precision[])
        RETURNS double precision[]
        LANGUAGE sql IMMUTABLE PARALLEL SAFE
        RETURN idivm.triple_step(NULL, a, b);
    COMMENT ON FUNCTION idivm.triple_times(double precision[], double precision[]) IS
        'the product of two triples over different numbers, over the numbers of both';

    CREATE OR REPLACE AGGREGATE idivm.triple_sum(a double precision[], b double precision[]) (
        SFUNC = idivm.triple_step,
        STYPE = double precision[]
    );
    COMMENT ON AGGREGATE idivm.triple_sum(double precision[], double precision[]) IS
        'the sum of products of two triples';

    CREATE OR REPLACE AGGREGATE idivm.triple_lift(times bigint, x double precision[]) (
        SFUNC = idivm.triple_lift_step,
        STYPE = double precision[]
    );
    COMMENT ON AGGREGATE idivm.triple_lift(bigint, double precision[]) IS
        'the triple of rows, each counted so many times';
END
$plain$;
CALL idivm.plain_triples();

-- What a view shows of a triple, with how many rows have all numbers, finite or not.
CREATE FUNCTION idivm.triple_covariance(n bigint, t double precision[], places integer[])
    RETURNS idivm.covariance
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    s double precision[] := '{}';
BEGIN
    IF n = 0 THEN
        RETURN NULL;
    ELSIF t[1] <> n THEN
        RETURN idivm.covar_unknown(n, cardinality(places));
    END IF;
    FOR i IN 1 .. cardinality(places) LOOP
        s[i] := t[1 + places[i]];
    END LOOP;
    RETURN ROW(n, s, idivm.triple_products(t, places))::idivm.covariance;
END
$$;

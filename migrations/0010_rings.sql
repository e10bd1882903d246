-- The covariance of several numbers over the rows of a query, and what follows from it.
-- Only upper triangles are kept, row by row, as the matrices are symmetric.

CREATE TYPE idivm.covariance AS (
    n bigint,
    s double precision[],
    q double precision[]
);
COMMENT ON TYPE idivm.covariance IS
    'how many rows, the sums of each number, the sums of the products of each two numbers';

CREATE FUNCTION idivm.covar_step(state idivm.covariance, VARIADIC x double precision[])
    RETURNS idivm.covariance
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    m integer := cardinality(x);
    s double precision[] := state.s;
    q double precision[] := state.q;
    k integer := 0;
BEGIN
    -- A row that lacks a number tells nothing of how they vary together.
    IF array_position(x, NULL) IS NOT NULL THEN
        RETURN state;
    END IF;
    IF s IS NULL THEN
        s := array_fill(0::double precision, ARRAY[m]);
        q := array_fill(0::double precision, ARRAY[m * (m + 1) / 2]);
    END IF;
    FOR i IN 1 .. m LOOP
        s[i] := s[i] + x[i];
        FOR j IN i .. m LOOP
            k := k + 1;
            q[k] := q[k] + x[i] * x[j];
        END LOOP;
    END LOOP;
    RETURN ROW(coalesce(state.n, 0) + 1, s, q)::idivm.covariance;
END
$$;

CREATE FUNCTION idivm.covar_final(state idivm.covariance) RETURNS idivm.covariance
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF EXISTS (SELECT FROM unnest(state.s) AS v WHERE v IN ('NaN', 'Infinity', '-Infinity')) THEN
        RETURN idivm.covar_unknown(state.n, cardinality(state.s));
    END IF;
    RETURN state;
END
$$;

-- Of rows with a number that is not finite.
CREATE FUNCTION idivm.covar_unknown(n bigint, m integer) RETURNS idivm.covariance
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ROW(n, array_fill('NaN'::double precision, ARRAY[m]),
               array_fill('NaN'::double precision, ARRAY[m * (m + 1) / 2]))::idivm.covariance;

CREATE AGGREGATE idivm.covar(VARIADIC double precision[]) (
    SFUNC = idivm.covar_step,
    STYPE = idivm.covariance,
    FINALFUNC = idivm.covar_final
);
COMMENT ON AGGREGATE idivm.covar(VARIADIC double precision[]) IS
    'count, sums and sums of products of some numbers, over the rows that have them all';

CREATE FUNCTION idivm.covar_at(c idivm.covariance, i integer, j integer) RETURNS double precision
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (c).q[(least(i, j) - 1) * cardinality((c).s) - (least(i, j) - 1) * (least(i, j) - 2) / 2
                 + abs(i - j) + 1];
COMMENT ON FUNCTION idivm.covar_at(idivm.covariance, integer, integer) IS
    'the sum of the products of two numbers, given by their places';

-- The sum of the products of the deviations of two numbers from their means.
CREATE FUNCTION idivm.covar_centred(c idivm.covariance, i integer, j integer)
    RETURNS double precision
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN idivm.covar_at(c, i, j) - (c).s[i] * (c).s[j] / (c).n;

CREATE FUNCTION idivm.covariance_matrix(c idivm.covariance) RETURNS double precision[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (
        SELECT array_agg(r.line ORDER BY r.i)
        FROM (SELECT i, array_agg(idivm.covar_centred(c, i, j) / ((c).n - 1) ORDER BY j) AS line
              FROM generate_subscripts((c).s, 1) AS i, generate_subscripts((c).s, 1) AS j
              WHERE (c).n > 1 GROUP BY i) AS r
    );
COMMENT ON FUNCTION idivm.covariance_matrix(idivm.covariance) IS
    'the sample covariances of each two numbers; NULL of fewer than two rows';

CREATE FUNCTION idivm.correlation(c idivm.covariance) RETURNS double precision[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (
        SELECT array_agg(r.line ORDER BY r.i)
        FROM (SELECT i, array_agg(
                  idivm.covar_centred(c, i, j)
                  / nullif(sqrt(greatest(idivm.covar_centred(c, i, i), 0)
                                * greatest(idivm.covar_centred(c, j, j), 0)), 0) ORDER BY j) AS line
              FROM generate_subscripts((c).s, 1) AS i, generate_subscripts((c).s, 1) AS j
              WHERE (c).n > 1 GROUP BY i) AS r
    );
COMMENT ON FUNCTION idivm.correlation(idivm.covariance) IS
    'the correlation of each two numbers; NULL where one of them does not vary';

CREATE FUNCTION idivm.linreg(c idivm.covariance, label integer DEFAULT NULL,
                             ridge double precision DEFAULT 0)
    RETURNS double precision[]
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    m integer := cardinality(c.s);
    y integer := coalesce(label, cardinality(c.s));
    features integer[];
    k integer := m - 1;
    scales double precision[];
    a double precision[];
    w integer := m;
    factor double precision;
    found double precision[];
    intercept double precision;
BEGIN
    IF c.n IS NULL OR c.n = 0 THEN
        RETURN NULL;
    END IF;
    IF y NOT BETWEEN 1 AND m THEN
        RAISE EXCEPTION 'there is no number % to predict; the covariance is of %', y, m
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    features := ARRAY(SELECT i FROM generate_series(1, m) AS i WHERE i <> y);
    scales := ARRAY(SELECT sqrt(greatest(idivm.covar_centred(c, i, i), 0))
                    FROM unnest(features) WITH ORDINALITY AS f (i, place) ORDER BY place);
    -- The normal equations of deviations from the means, in units of their spread: k rows of k + 1.
    a := array_fill(0::double precision, ARRAY[k * w]);
    FOR i IN 1 .. k LOOP
        CONTINUE WHEN scales[i] = 0;
        FOR j IN 1 .. k LOOP
            IF scales[j] > 0 THEN
                a[(i - 1) * w + j] := idivm.covar_centred(c, features[i], features[j]) / scales[i] / scales[j];
            END IF;
        END LOOP;
        a[(i - 1) * w + i] := 1 + ridge;
        a[i * w] := idivm.covar_centred(c, features[i], y) / scales[i];
    END LOOP;
    -- Gauss and Jordan. A feature that others determine gets no weight of its own.
    found := array_fill(0::double precision, ARRAY[k]);
    FOR i IN 1 .. k LOOP
        IF abs(a[(i - 1) * w + i]) <= 1e-11 THEN
            FOR j IN 1 .. k LOOP
                a[(j - 1) * w + i] := 0;
            END LOOP;
            CONTINUE;
        END IF;
        FOR r IN 1 .. k LOOP
            factor := a[(r - 1) * w + i] / a[(i - 1) * w + i];
            CONTINUE WHEN r = i OR factor = 0;
            FOR j IN i .. w LOOP
                a[(r - 1) * w + j] := a[(r - 1) * w + j] - factor * a[(i - 1) * w + j];
            END LOOP;
        END LOOP;
    END LOOP;
    intercept := c.s[y] / c.n;
    FOR i IN 1 .. k LOOP
        IF a[(i - 1) * w + i] <> 0 THEN
            found[i] := a[i * w] / a[(i - 1) * w + i] / scales[i];
        END IF;
        intercept := intercept - found[i] * c.s[features[i]] / c.n;
    END LOOP;
    RETURN intercept || found;
END
$$;
COMMENT ON FUNCTION idivm.linreg(idivm.covariance, integer, double precision) IS
    'the least squares fit of one number, by default the last, to the others: intercept and weights';

CREATE FUNCTION idivm.predict(model double precision[], VARIADIC x double precision[])
    RETURNS double precision
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF cardinality(x) <> cardinality(model) - 1 THEN
        RAISE EXCEPTION 'the model is of % numbers, and % are given', cardinality(model) - 1, cardinality(x)
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN model[1] + (SELECT sum(model[f.place + 1] * f.value)
                       FROM unnest(x) WITH ORDINALITY AS f (value, place));
END
$$;
COMMENT ON FUNCTION idivm.predict(double precision[], double precision[]) IS
    'what a model of idivm.linreg expects for some features, in the order that it was fitted to';

GRANT USAGE ON TYPE idivm.covariance TO PUBLIC;

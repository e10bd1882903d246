-- The covariance ring over numbers, and statistics computed from its elements.

CREATE OR REPLACE FUNCTION idivm.covar_step(state idivm.covariance, VARIADIC x double precision[])
    RETURNS idivm.covariance
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    m integer := cardinality(x);
    s double precision[] := state.s;
    q double precision[] := state.q;
    k integer := 0;
BEGIN
    -- A row without one of the numbers contributes nothing.
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

CREATE OR REPLACE FUNCTION idivm.covar_final(state idivm.covariance) RETURNS idivm.covariance
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF EXISTS (SELECT FROM unnest(state.s) AS v WHERE v IN ('NaN', 'Infinity', '-Infinity')) THEN
        RETURN idivm.covar_unknown(state.n, cardinality(state.s));
    END IF;
    RETURN state;
END
$$;

-- The element of rows with a number that is not finite.
CREATE OR REPLACE FUNCTION idivm.covar_unknown(n bigint, m integer) RETURNS idivm.covariance
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ROW(n, array_fill('NaN'::double precision, ARRAY[m]),
               array_fill('NaN'::double precision, ARRAY[m * (m + 1) / 2]))::idivm.covariance;

CREATE OR REPLACE AGGREGATE idivm.covar(VARIADIC double precision[]) (
    SFUNC = idivm.covar_step,
    STYPE = idivm.covariance,
    FINALFUNC = idivm.covar_final
);
COMMENT ON AGGREGATE idivm.covar(VARIADIC double precision[]) IS
    'aggregates count, sums and sums of products of numbers, over the rows without NULL';

CREATE OR REPLACE FUNCTION idivm.covar_at(c idivm.covariance, i integer, j integer) RETURNS double precision
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (c).q[(least(i, j) - 1) * cardinality((c).s) - (least(i, j) - 1) * (least(i, j) - 2) / 2
                 + abs(i - j) + 1];
COMMENT ON FUNCTION idivm.covar_at(idivm.covariance, integer, integer) IS
    'the sum of the products of two numbers, given by their places';

-- Return the sum of the products of the deviations of two numbers from their means.
CREATE OR REPLACE FUNCTION idivm.covar_centred(c idivm.covariance, i integer, j integer)
    RETURNS double precision
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN idivm.covar_at(c, i, j) - (c).s[i] * (c).s[j] / (c).n;

CREATE OR REPLACE FUNCTION idivm.covariance_matrix(c idivm.covariance) RETURNS double precision[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (
        SELECT array_agg(r.line ORDER BY r.i)
        FROM (SELECT i, array_agg(idivm.covar_centred(c, i, j) / ((c).n - 1) ORDER BY j) AS line
              FROM generate_subscripts((c).s, 1) AS i, generate_subscripts((c).s, 1) AS j
              WHERE (c).n > 1 GROUP BY i) AS r
    );
COMMENT ON FUNCTION idivm.covariance_matrix(idivm.covariance) IS
    'returns the sample covariance of each pair of numbers; NULL for fewer than two rows';

CREATE OR REPLACE FUNCTION idivm.correlation(c idivm.covariance) RETURNS double precision[]
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
    'returns the correlation of each pair of numbers; NULL if a number does not vary';

CREATE OR REPLACE FUNCTION idivm.linreg(c idivm.covariance, label integer DEFAULT NULL,
                                        ridge double precision DEFAULT 0)
    RETURNS double precision[]
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    y integer := idivm.label_of(c, label);
    equations record;
BEGIN
    IF y IS NULL THEN
        RETURN NULL;
    ELSIF cardinality(c.s) = 1 THEN
        RETURN ARRAY[c.s[y] / c.n];
    END IF;
    equations := idivm.normal_equations(c, y);
    RETURN idivm.weights(c.s[y] / c.n, idivm.solved(equations.a, ridge), equations.scales, equations.means);
END
$$;
COMMENT ON FUNCTION idivm.linreg(idivm.covariance, integer, double precision) IS
    'fits an argument, by default the last, to the others by least squares: intercept and weights';

CREATE OR REPLACE FUNCTION idivm.predict(model double precision[], VARIADIC x double precision[])
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
    'predicts a value by a model of idivm.linreg; the features are in the order of the fit';

-- Elements of the covariance ring, as view trees store them. For m numbers, an array contains the sums of the
-- products of each pair of 1, x_1, ..., x_m: the upper triangle, row by row. So {n} is a count.
CREATE OR REPLACE FUNCTION idivm.triple_width(t double precision[]) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ((sqrt(8 * cardinality(t) + 1) - 1) / 2)::integer;

CREATE OR REPLACE FUNCTION idivm.triple_step(state double precision[], a double precision[], b double precision[])
    RETURNS double precision[]
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    rows integer := idivm.triple_width(a);
    wide integer := idivm.triple_width(b);
    w integer := rows + wide - 1;
    triple double precision[] := coalesce(state, array_fill(0::double precision, ARRAY[w * (w + 1) / 2]));
    k integer := 0;
    place integer := 0;
BEGIN
    IF cardinality(triple) <> w * (w + 1) / 2 OR cardinality(a) <> rows * (rows + 1) / 2
       OR cardinality(b) <> wide * (wide + 1) / 2 THEN
        RAISE EXCEPTION 'triples of % and % numbers do not add up to one of %',
            rows - 1, wide - 1, idivm.triple_width(triple) - 1 USING ERRCODE = 'array_subscript_error';
    END IF;
    FOR i IN 1 .. rows LOOP
        FOR j IN i .. rows LOOP
            k := k + 1;
            place := place + 1;
            triple[k] := triple[k] + a[place] * b[1];
        END LOOP;
        FOR j IN 2 .. wide LOOP
            k := k + 1;
            triple[k] := triple[k] + a[i] * b[j];
        END LOOP;
    END LOOP;
    FOR i IN wide + 1 .. cardinality(b) LOOP
        k := k + 1;
        triple[k] := triple[k] + a[1] * b[i];
    END LOOP;
    RETURN triple;
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
    triple double precision[] := coalesce(state, array_fill(0::double precision, ARRAY[w * (w + 1) / 2]));
    y double precision[];
    k integer := 0;
BEGIN
    IF cardinality(triple) <> w * (w + 1) / 2 THEN
        RAISE EXCEPTION 'a triple of % numbers is not one of %', idivm.triple_width(triple) - 1, w - 1
            USING ERRCODE = 'array_subscript_error';
    END IF;
    IF times = 0 OR array_position(x, NULL) IS NOT NULL OR 'NaN' = ANY (x)
       OR 'Infinity' = ANY (x) OR '-Infinity' = ANY (x) THEN
        RETURN triple;
    END IF;
    y := array_prepend(1::double precision, x);
    FOR i IN 1 .. w LOOP
        FOR j IN i .. w LOOP
            k := k + 1;
            triple[k] := triple[k] + times * (y[i] * y[j]);
        END LOOP;
    END LOOP;
    RETURN triple;
END
$$;
COMMENT ON FUNCTION idivm.triple_lift_step(double precision[], bigint, double precision[]) IS
    'a triple and that of a row, added so many times; rows with NULL, NaN, infinity have none';

-- Return the sums of products of some numbers of a triple, in the order of their positions.
CREATE OR REPLACE FUNCTION idivm.triple_products(t double precision[], places integer[])
    RETURNS double precision[]
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    w integer := idivm.triple_width(t);
    products double precision[] := '{}';
    k integer := 0;
    first integer;
BEGIN
    FOR i IN 1 .. cardinality(places) LOOP
        FOR j IN i .. cardinality(places) LOOP
            first := least(places[i], places[j]);
            k := k + 1;
            products[k] := t[first * w - first * (first - 1) / 2 + abs(places[i] - places[j]) + 1];
        END LOOP;
    END LOOP;
    RETURN products;
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

-- Convert a triple into the value that a view shows. `n` counts the rows in which no number is NULL.
CREATE OR REPLACE FUNCTION idivm.triple_covariance(n bigint, t double precision[], places integer[])
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

-- Outer products: changes of a matrix, stored as a table with a key of two columns, that are products of vectors.

-- Factor a matrix, given row by row, into a column vector and a row vector, returned one after the other; NULL if
-- its rank is not one. The result is exact: the row vector is divided by the common divisor of its elements and
-- then contains integers.
CREATE OR REPLACE FUNCTION idivm.rank_one(entries numeric[], rows integer) RETURNS numeric[]
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    wide integer := cardinality(entries) / rows;
    pivot integer;
    places integer;
    divisor numeric := 0;
    line numeric[];
    factors numeric[];
BEGIN
    SELECT n, (SELECT max(scale(e)) FROM unnest(entries) AS e) INTO pivot, places
    FROM unnest(entries) WITH ORDINALITY AS e (x, n) WHERE x <> 0 ORDER BY n LIMIT 1;
    IF pivot IS NULL THEN
        RETURN array_fill(0::numeric, ARRAY[rows + wide]);
    END IF;
    line := entries[(pivot - 1) / wide * wide + 1 : ((pivot - 1) / wide + 1) * wide];
    FOR j IN 1 .. wide LOOP
        divisor := gcd(divisor, line[j]);
    END LOOP;
    line := ARRAY(SELECT div(x, divisor) FROM unnest(line) WITH ORDINALITY AS l (x, j) ORDER BY j);
    pivot := (pivot - 1) % wide + 1;
    factors := ARRAY(
        SELECT div(x * ('1e' || places)::numeric, line[pivot]) * ('1e-' || places)::numeric
        FROM unnest(entries) WITH ORDINALITY AS e (x, n) WHERE (n - 1) % wide + 1 = pivot ORDER BY n);
    IF entries <> ARRAY(
        SELECT f.x * l.x FROM unnest(factors) WITH ORDINALITY AS f (x, i), unnest(line) WITH ORDINALITY AS l (x, j)
        ORDER BY i, j
    ) THEN
        RETURN NULL;
    END IF;
    RETURN factors || line;
END
$$;

CREATE OR REPLACE FUNCTION idivm.apply_outer(matrix regclass, u regclass, v regclass) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    key name[];
    entry name[];
    vectors name[];
    changed bigint;
BEGIN
    SELECT array_agg(a.attname ORDER BY k.place) INTO key
    FROM pg_index i, unnest(i.indkey[:i.indnkeyatts - 1]::smallint[]) WITH ORDINALITY AS k (attnum, place)
    JOIN pg_attribute a ON a.attnum = k.attnum
    WHERE i.indrelid = matrix AND i.indisprimary AND a.attrelid = matrix;
    SELECT array_agg(a.attname) INTO entry FROM pg_attribute a
    WHERE a.attrelid = matrix AND a.attnum > 0 AND NOT a.attisdropped AND a.attname <> ALL (key);
    IF cardinality(key) IS DISTINCT FROM 2 OR cardinality(entry) IS DISTINCT FROM 1 THEN
        RAISE EXCEPTION '% is not a matrix', matrix USING ERRCODE = 'wrong_object_type',
            HINT = 'A matrix is a table with a primary key of two columns and one other column, the entry.';
    END IF;
    SELECT array_agg(a.attname ORDER BY r.place, a.attnum) INTO vectors
    FROM unnest(ARRAY[u, v]::oid[]) WITH ORDINALITY AS r (id, place)
    JOIN pg_attribute a ON a.attrelid = r.id WHERE a.attnum > 0 AND NOT a.attisdropped;
    IF cardinality(vectors) IS DISTINCT FROM 4
       OR (SELECT count(*) FROM pg_attribute a WHERE a.attrelid = u AND a.attnum > 0 AND NOT a.attisdropped) <> 2 THEN
        RAISE EXCEPTION '% and % are not two vectors', u, v USING ERRCODE = 'wrong_object_type',
            HINT = 'A vector is a relation of two columns, the index and the number.';
    END IF;
    -- regclass prints names with quotes.
    EXECUTE format(
        'INSERT INTO %s AS m (%I, %I, %I) SELECT u.%I, v.%I, u.%I * v.%I FROM %s AS u CROSS JOIN %s AS v'
        ' WHERE u.%5$I IS NOT NULL AND u.%7$I * v.%8$I <> 0'
        ' ON CONFLICT (%2$I, %3$I) DO UPDATE SET %4$I = m.%4$I + excluded.%4$I',
        matrix, key[1], key[2], entry[1], vectors[1], vectors[3], vectors[2], vectors[4], u, v);
    GET DIAGNOSTICS changed = ROW_COUNT;
    RETURN changed;
END
$$;
COMMENT ON FUNCTION idivm.apply_outer(regclass, regclass, regclass) IS
    'adds the product of two vectors, which are relations of index and number, to a matrix; returns the number of changed entries';

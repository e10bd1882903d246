-- The covariance ring over numbers and categories.

-- PostgreSQL does not inline a call of a strict function that returns a row, so these functions test for NULL. The
-- operators + and || give an argument of a domain the type that the row has.
DO $casts$
DECLARE
    source text;
    body text := 'CREATE OR REPLACE FUNCTION idivm.%s(x %s) RETURNS idivm.feature LANGUAGE sql IMMUTABLE PARALLEL SAFE'
        ' AS $$SELECT CASE WHEN x IS NOT NULL THEN ROW(%s)::idivm.feature END$$';
BEGIN
    FOREACH source IN ARRAY ARRAY['smallint', 'integer', 'bigint', 'numeric'] LOOP
        EXECUTE format(body, 'feature', source, '+ x::numeric, NULL');
    END LOOP;
    -- A float counts as the decimal number that it prints.
    FOREACH source IN ARRAY ARRAY['real', 'double precision'] LOOP
        EXECUTE format(body, 'feature', source, 'x::double precision::text::numeric, NULL');
    END LOOP;
    FOREACH source IN ARRAY ARRAY['text', 'varchar', 'bpchar', 'boolean', 'uuid'] LOOP
        EXECUTE format(body, 'feature', source, $$NULL, x::text || ''$$);
    END LOOP;
    FOREACH source IN ARRAY ARRAY['text', 'bigint', 'boolean', 'uuid', 'anyenum'] LOOP
        EXECUTE format(body, 'categorical', source, $$NULL, x::text || ''$$);
        EXECUTE format('COMMENT ON FUNCTION idivm.categorical(%s) IS %L', source,
                       'marks a value as a category for idivm.covar');
    END LOOP;
    FOREACH source IN ARRAY ARRAY['smallint', 'integer', 'bigint', 'numeric', 'real', 'double precision',
                                  'text', 'varchar', 'bpchar', 'boolean', 'uuid'] LOOP
        IF NOT EXISTS (
            SELECT FROM pg_cast
            WHERE castsource = source::regtype AND casttarget = 'idivm.feature'::regtype
        ) THEN
            EXECUTE format('CREATE CAST (%1$s AS idivm.feature) WITH FUNCTION idivm.feature(%1$s) AS IMPLICIT', source);
        END IF;
    END LOOP;
END
$casts$;

CREATE OR REPLACE FUNCTION idivm.categorical(x date) RETURNS idivm.feature
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN ROW(NULL, to_jsonb(x) #>> '{}')::idivm.feature;
COMMENT ON FUNCTION idivm.categorical(date) IS 'marks a value as a category for idivm.covar';

CREATE OR REPLACE FUNCTION idivm.mixed_zero() RETURNS idivm.mixed_triple
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ROW('{}')::idivm.mixed_triple;

CREATE OR REPLACE FUNCTION idivm.mixed_one() RETURNS idivm.mixed_triple
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ROW(ARRAY[ROW(0, NULL, 0, NULL, 1)::idivm.monomial])::idivm.mixed_triple;

-- Return the product of the lifted arguments at some positions: a number x lifts to 1 + x + x^2, a category c to 1
-- + c, because a category is its own square. Return NULL if an argument is NULL or not finite.
CREATE OR REPLACE FUNCTION idivm.mixed_product(x idivm.feature[], places integer[]) RETURNS idivm.mixed_triple
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (
        WITH variable AS MATERIALIZED (
            SELECT f.i, f.category AS a, coalesce(trim_scale(f.number), 1) AS v, f.number, f.category
            FROM ROWS FROM (unnest(x), unnest(places)) AS f (number, category, i)
        )
        SELECT CASE WHEN EXISTS (SELECT FROM variable AS o WHERE o.v IN ('NaN', 'Infinity', '-Infinity')
                                 OR o.number IS NULL AND o.category IS NULL) THEN NULL
               ELSE ROW(array_agg(ROW(t.i, t.a, t.j, t.b, t.v)::idivm.monomial ORDER BY t.i, t.j))::idivm.mixed_triple
               END
        FROM (SELECT 0 AS i, NULL AS a, 0 AS j, NULL AS b, 1::numeric AS v
              UNION ALL
              SELECT o.i, o.a, 0, NULL, o.v FROM variable AS o WHERE o.v <> 0
              UNION ALL
              SELECT l.i, l.a, r.i, r.a, trim_scale(l.v * r.v) FROM variable AS l JOIN variable AS r
                  ON l.i < r.i OR l.i = r.i AND l.number IS NOT NULL
              WHERE l.v <> 0 AND r.v <> 0) AS t
    );
END
$$;

-- Return the sum of elements, ignoring NULLs.
CREATE OR REPLACE FUNCTION idivm.mixed_total(elements idivm.mixed_triple[]) RETURNS idivm.mixed_triple
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (
        SELECT ROW(coalesce(array_agg(ROW(s.*)::idivm.monomial ORDER BY i, a, j, b), '{}'))::idivm.mixed_triple
        FROM (SELECT t.i, t.a COLLATE "C" AS a, t.j, t.b COLLATE "C" AS b, trim_scale(sum(t.v))
              FROM unnest(elements) AS e (terms), unnest(e.terms) AS t
              GROUP BY t.i, t.a COLLATE "C", t.j, t.b COLLATE "C" HAVING sum(t.v) <> 0) AS s
    );
END
$$;

-- Most terms of a stored element do not occur in the other element and stay unchanged.
CREATE OR REPLACE FUNCTION idivm.mixed_plus(a idivm.mixed_triple, b idivm.mixed_triple) RETURNS idivm.mixed_triple
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (
        SELECT ROW(coalesce(array_agg(ROW(s.*)::idivm.monomial ORDER BY s.i, s.a COLLATE "C", s.j, s.b COLLATE "C"),
                            '{}'))::idivm.mixed_triple
        FROM (SELECT coalesce(l.i, r.i) AS i, coalesce(l.a, r.a) AS a, coalesce(l.j, r.j) AS j, coalesce(l.b, r.b) AS b,
                     CASE WHEN l.i IS NULL THEN r.v WHEN r.i IS NULL THEN l.v ELSE trim_scale(l.v + r.v) END AS v
              FROM unnest(a.terms) AS l FULL JOIN unnest(b.terms) AS r
                  ON (l.i, coalesce(l.a, ''), l.a IS NULL, l.j, coalesce(l.b, ''), l.b IS NULL)
                   = (r.i, coalesce(r.a, ''), r.a IS NULL, r.j, coalesce(r.b, ''), r.b IS NULL)) AS s
        WHERE s.v <> 0
    );
END
$$;

CREATE OR REPLACE FUNCTION idivm.mixed_multiple(element idivm.mixed_triple, times bigint) RETURNS idivm.mixed_triple
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF times = 1 THEN
        RETURN element;
    END IF;
    RETURN (SELECT ROW(coalesce(array_agg(ROW(t.i, t.a, t.j, t.b, trim_scale(t.v * times))::idivm.monomial ORDER BY place)
                                    FILTER (WHERE times <> 0), '{}'))::idivm.mixed_triple
            FROM unnest(element.terms) WITH ORDINALITY AS t (i, a, j, b, v, place));
END
$$;

-- Objects that views and aggregates depend on must not depend on a function that may be in C, because a dump may
-- be restored on a server without the C module.
CREATE OR REPLACE FUNCTION idivm.mixed_covariance(n bigint, t idivm.mixed_triple, m integer)
    RETURNS idivm.mixed_covariance
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN idivm.mixed_shown(n, t, m);
END
$$;

CREATE OR REPLACE FUNCTION idivm.mixed_step(state idivm.mixed_state, VARIADIC x idivm.feature[])
    RETURNS idivm.mixed_state
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    waiting idivm.mixed_triple[] := state.waiting;
    product idivm.mixed_triple;
BEGIN
    IF array_position(x, NULL) IS NOT NULL THEN
        RETURN state;
    END IF;
    product := idivm.mixed_product(x, ARRAY(SELECT generate_subscripts(x, 1)));
    IF product IS NOT NULL THEN
        waiting := waiting || product;
    END IF;
    -- Rows are added in batches.
    IF cardinality(waiting) >= 100 THEN
        waiting := ARRAY[idivm.mixed_total(waiting)];
    END IF;
    RETURN ROW(coalesce(state.n, 0) + 1, cardinality(x), waiting)::idivm.mixed_state;
END
$$;

CREATE OR REPLACE FUNCTION idivm.mixed_final(state idivm.mixed_state) RETURNS idivm.mixed_covariance
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN idivm.mixed_shown(state.n, idivm.mixed_total(state.waiting), state.m);
END
$$;

-- Return the columns of the one-hot encoding: one for a number, and one for each value of a category.
CREATE OR REPLACE FUNCTION idivm.one_hot_columns(c idivm.mixed_covariance)
    RETURNS TABLE (number integer, place integer, category text)
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT row_number() OVER (ORDER BY p, t.a COLLATE "C")::integer, p, t.a
    FROM generate_subscripts((c).categorical, 1) AS p
    LEFT JOIN unnest((c).terms) AS t ON (c).categorical[p] AND t.i = p AND t.j = 0
    ORDER BY 1;
END;
COMMENT ON FUNCTION idivm.one_hot_columns(idivm.mixed_covariance) IS
    'returns the meaning of each number of idivm.one_hot: its argument and its category';

CREATE OR REPLACE FUNCTION idivm.one_hot(c idivm.mixed_covariance) RETURNS idivm.covariance
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH variable AS (
        SELECT o.number, o.place, o.category, coalesce(t.v, 0)::double precision AS s
        FROM idivm.one_hot_columns(c) AS o
        LEFT JOIN unnest((c).terms) AS t
            ON t.i = o.place AND t.j = 0 AND coalesce(t.a, '') = coalesce(o.category, '')
    )
    SELECT ROW((c).n, (SELECT array_agg(s ORDER BY number) FROM variable), (
        SELECT array_agg(CASE WHEN l.place < r.place OR l.category IS NULL THEN coalesce(t.v, 0)
                              WHEN l.number = r.number THEN l.s ELSE 0 END ORDER BY l.number, r.number)
        FROM variable AS l JOIN variable AS r ON l.number <= r.number
        LEFT JOIN unnest((c).terms) AS t ON t.i = l.place AND t.j = r.place
            AND coalesce(t.a, '') = coalesce(l.category, '') AND coalesce(t.b, '') = coalesce(r.category, '')
    ))::idivm.covariance
    WHERE (c).terms IS NOT NULL;
END;
COMMENT ON FUNCTION idivm.one_hot(idivm.mixed_covariance) IS
    'returns a covariance of numbers, with a number for each category that is 1 in its rows and 0 elsewhere';

CREATE OR REPLACE FUNCTION idivm.mutual_information(c idivm.mixed_covariance) RETURNS double precision[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH single AS (
        SELECT t.i, t.a, t.v::double precision / (c).n AS p FROM unnest((c).terms) AS t
        WHERE t.j = 0 AND t.a IS NOT NULL
    ), entries (i, j, nats) AS (
        SELECT i, i, -sum(p * ln(p) ORDER BY a COLLATE "C") FROM single GROUP BY i
        UNION ALL
        SELECT t.i, t.j, sum(t.v::double precision / (c).n * ln(t.v::double precision / (c).n / l.p / r.p)
                             ORDER BY t.a COLLATE "C", t.b COLLATE "C")
        FROM unnest((c).terms) AS t
        JOIN single AS l ON l.i = t.i AND l.a = t.a JOIN single AS r ON r.i = t.j AND r.a = t.b
        GROUP BY t.i, t.j
    )
    SELECT array_agg(line.cells ORDER BY line.i)
    FROM (SELECT x AS i, array_agg(CASE WHEN f.nats < 0 THEN 0 ELSE f.nats END ORDER BY y) AS cells
          FROM generate_subscripts((c).categorical, 1) AS x CROSS JOIN generate_subscripts((c).categorical, 1) AS y
          LEFT JOIN entries AS f ON f.i = least(x, y) AND f.j = greatest(x, y)
          GROUP BY x) AS line;
END;
COMMENT ON FUNCTION idivm.mutual_information(idivm.mixed_covariance) IS
    'returns the mutual information of each pair of categories, in nats; on the diagonal their entropy; NULL for numbers';

CREATE OR REPLACE FUNCTION idivm.chow_liu(c idivm.mixed_covariance) RETURNS integer[]
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    information double precision[] := idivm.mutual_information(c);
    rest integer[] := ARRAY(SELECT p FROM generate_subscripts(c.categorical, 1) AS p WHERE c.categorical[p] ORDER BY p);
    tree integer[] := rest[1:1];
    edges integer[] := '{}';
    edge integer[];
BEGIN
    rest := rest[2:];
    WHILE cardinality(rest) > 0 LOOP
        SELECT ARRAY[l, r] INTO edge FROM unnest(tree) AS l, unnest(rest) AS r
        ORDER BY information[l][r] DESC, l, r LIMIT 1;
        edges := edges || ARRAY[edge];
        tree := tree || edge[2];
        rest := array_remove(rest, edge[2]);
    END LOOP;
    RETURN edges;
END
$$;
COMMENT ON FUNCTION idivm.chow_liu(idivm.mixed_covariance) IS
    'returns the tree of categories with the most mutual information, as pairs of positions';

-- Return the position of the number to predict, by default the last; NULL without rows.
CREATE OR REPLACE FUNCTION idivm.label_of(c idivm.covariance, label integer) RETURNS integer
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF c.n IS NULL OR c.n = 0 THEN
        RETURN NULL;
    ELSIF label NOT BETWEEN 1 AND cardinality(c.s) THEN
        RAISE EXCEPTION 'there is no number % to predict; the covariance is of %', label, cardinality(c.s)
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN coalesce(label, cardinality(c.s));
END
$$;

-- Return the sum of the products of consecutive pairs of elements over different arguments.
CREATE OR REPLACE FUNCTION idivm.mixed_products(elements idivm.mixed_triple[]) RETURNS idivm.mixed_triple
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (
        WITH pair AS MATERIALIZED (
            SELECT (elements[n]).terms AS x, (elements[n + 1]).terms AS y
            FROM generate_series(1, cardinality(elements), 2) AS n
        )
        SELECT ROW(coalesce(array_agg(ROW(s.*)::idivm.monomial ORDER BY i, a, j, b), '{}'))::idivm.mixed_triple
        FROM (SELECT t.i, t.a COLLATE "C" AS a, t.j, t.b COLLATE "C" AS b, trim_scale(sum(t.v))
              FROM (SELECT r.i, r.a, r.j, r.b, l.v * r.v AS v FROM pair, unnest(x) AS l, unnest(y) AS r WHERE l.i = 0
                    UNION ALL
                    SELECT l.i, l.a, l.j, l.b, l.v * r.v FROM pair, unnest(y) AS r, unnest(x) AS l
                    WHERE r.i = 0 AND l.i > 0
                    UNION ALL
                    SELECT CASE WHEN l.i < r.i THEN l.i ELSE r.i END, CASE WHEN l.i < r.i THEN l.a ELSE r.a END,
                           CASE WHEN l.i < r.i THEN r.i ELSE l.i END, CASE WHEN l.i < r.i THEN r.a ELSE l.a END,
                           l.v * r.v
                    FROM pair, unnest(x) AS l, unnest(y) AS r WHERE l.i > 0 AND l.j = 0 AND r.i > 0 AND r.j = 0) AS t
              GROUP BY t.i, t.a COLLATE "C", t.j, t.b COLLATE "C" HAVING sum(t.v) <> 0) AS s
    );
END
$$;

-- Return the sum over rows of mixed_product, with multiplicities. One array holds the features of all rows.
CREATE OR REPLACE FUNCTION idivm.mixed_lifted(features idivm.feature[], times bigint[], places integer[])
    RETURNS idivm.mixed_triple
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    m integer := cardinality(places);
BEGIN
    RETURN (
        WITH given AS MATERIALIZED (
            SELECT (f.place - 1) / m + 1 AS number, places[(f.place - 1) % m + 1] AS i, f.category AS a,
                   coalesce(f.number, 1) AS v, f.number IS NOT NULL AS squared,
                   f.number IN ('NaN', 'Infinity', '-Infinity') OR f.number IS NULL AND f.category IS NULL AS lacks
            FROM unnest(features) WITH ORDINALITY AS f (number, category, place)
        ), whole AS MATERIALIZED (
            SELECT o.number, o.times FROM unnest(times) WITH ORDINALITY AS o (times, number)
            WHERE o.number NOT IN (SELECT g.number FROM given AS g WHERE g.lacks)
        ), variable AS MATERIALIZED (
            SELECT g.*, w.times FROM given AS g JOIN whole AS w USING (number) WHERE g.v <> 0
        )
        SELECT ROW(coalesce(array_agg(ROW(s.*)::idivm.monomial ORDER BY i, a, j, b), '{}'))::idivm.mixed_triple
        FROM (SELECT t.i, t.a COLLATE "C" AS a, t.j, t.b COLLATE "C" AS b, trim_scale(sum(t.v))
              FROM (SELECT 0 AS i, NULL AS a, 0 AS j, NULL AS b, w.times::numeric AS v FROM whole AS w
                    UNION ALL
                    SELECT o.i, o.a, 0, NULL, o.v * o.times FROM variable AS o
                    UNION ALL
                    SELECT l.i, l.a, r.i, r.a, l.v * r.v * l.times FROM variable AS l JOIN variable AS r USING (number)
                    WHERE l.i < r.i OR l.i = r.i AND l.squared) AS t
              GROUP BY t.i, t.a COLLATE "C", t.j, t.b COLLATE "C" HAVING sum(t.v) <> 0) AS s
    );
END
$$;

-- Convert an element into the value that a view shows. `n` counts the rows in which no argument is NULL.
CREATE OR REPLACE FUNCTION idivm.mixed_shown(n bigint, t idivm.mixed_triple, m integer) RETURNS idivm.mixed_covariance
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    terms idivm.monomial[];
    places integer[];
BEGIN
    IF n IS NULL OR n = 0 THEN
        RETURN NULL;
    END IF;
    -- A product that was never added to another element may have its terms in another order.
    terms := (idivm.mixed_total(ARRAY[t])).terms;
    IF terms[1].i IS DISTINCT FROM 0 OR terms[1].v <> n THEN
        RETURN ROW(n, NULL, NULL)::idivm.mixed_covariance;
    END IF;
    places := ARRAY(SELECT DISTINCT term.i FROM unnest(terms) AS term WHERE term.j = 0 AND term.a IS NOT NULL);
    RETURN ROW(n, ARRAY(SELECT place = ANY (places) FROM generate_series(1, m) AS place ORDER BY place),
               terms[2:])::idivm.mixed_covariance;
END
$$;

CREATE OR REPLACE FUNCTION idivm.mixed_gathered(state idivm.mixed_triple[], x idivm.mixed_triple, y idivm.mixed_triple,
                                                n bigint)
    RETURNS idivm.mixed_triple[]
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF x IS NOT DISTINCT FROM NULL OR y IS NOT DISTINCT FROM NULL OR n IS NULL THEN
        RETURN coalesce(state, '{}');
    ELSIF cardinality(state) >= 128 THEN
        state := ARRAY[idivm.mixed_products(state), idivm.mixed_one()];
    END IF;
    RETURN state || ARRAY[x, CASE WHEN n = 1 THEN y ELSE idivm.mixed_multiple(y, n) END];
END
$$;

CREATE OR REPLACE AGGREGATE idivm.mixed_sum(x idivm.mixed_triple, y idivm.mixed_triple, n bigint) (
    SFUNC = idivm.mixed_gathered,
    STYPE = idivm.mixed_triple[],
    FINALFUNC = idivm.mixed_products
);
COMMENT ON AGGREGATE idivm.mixed_sum(idivm.mixed_triple, idivm.mixed_triple, bigint) IS
    'the sum of products of two elements over different arguments, each so many times';

CREATE OR REPLACE FUNCTION idivm.mixed_gathered(state idivm.mixed_rows, n bigint, x idivm.feature[], places integer[])
    RETURNS idivm.mixed_rows
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    lifted idivm.mixed_triple := state.lifted;
BEGIN
    IF cardinality(state.times) >= 100 THEN
        RETURN ROW(x, ARRAY[n], places, idivm.mixed_plus(
            lifted, idivm.mixed_lifted(state.features, state.times, places)))::idivm.mixed_rows;
    END IF;
    RETURN ROW(state.features || x, state.times || n, places, lifted)::idivm.mixed_rows;
END
$$;

CREATE OR REPLACE FUNCTION idivm.mixed_lifted(state idivm.mixed_rows) RETURNS idivm.mixed_triple
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    before idivm.mixed_triple := state.lifted;
    lifted idivm.mixed_triple;
BEGIN
    IF cardinality(state.times) = 1 THEN
        lifted := idivm.mixed_multiple(idivm.mixed_product(state.features, state.places), state.times[1]);
    ELSE
        lifted := idivm.mixed_lifted(state.features, state.times, state.places);
    END IF;
    RETURN CASE WHEN before IS NOT DISTINCT FROM NULL THEN coalesce(lifted, idivm.mixed_zero())
                ELSE idivm.mixed_plus(before, lifted) END;
END
$$;

CREATE OR REPLACE AGGREGATE idivm.mixed_lift(n bigint, x idivm.feature[], places integer[]) (
    SFUNC = idivm.mixed_gathered,
    STYPE = idivm.mixed_rows,
    FINALFUNC = idivm.mixed_lifted
);
COMMENT ON AGGREGATE idivm.mixed_lift(bigint, idivm.feature[], integer[]) IS
    'the sum of what the arguments of rows lift to, each row so many times';

-- Compress long values with lz4, which takes a fraction of the time; some servers are built without it.
CREATE OR REPLACE FUNCTION idivm.compress_quickly(relation text, VARIADIC columns name[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    EXECUTE format('ALTER TABLE %s %s', relation::regclass, (
        SELECT string_agg(format('ALTER COLUMN %I SET COMPRESSION lz4', column_name), ', ')
        FROM unnest(columns) AS column_name));
EXCEPTION WHEN feature_not_supported THEN
    NULL;
END
$$;

CREATE OR REPLACE AGGREGATE idivm.covar(VARIADIC idivm.feature[]) (
    SFUNC = idivm.mixed_step,
    STYPE = idivm.mixed_state,
    FINALFUNC = idivm.mixed_final
);
COMMENT ON AGGREGATE idivm.covar(VARIADIC idivm.feature[]) IS
    'aggregates count, sums and sums of products of numbers and categories, over the rows without NULL';

CREATE OR REPLACE FUNCTION idivm.covariance_matrix(c idivm.mixed_covariance) RETURNS double precision[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN idivm.covariance_matrix(idivm.one_hot(c));
COMMENT ON FUNCTION idivm.covariance_matrix(idivm.mixed_covariance) IS
    'the sample covariances of each pair of columns of idivm.one_hot_columns';

CREATE OR REPLACE FUNCTION idivm.correlation(c idivm.mixed_covariance) RETURNS double precision[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN idivm.correlation(idivm.one_hot(c));
COMMENT ON FUNCTION idivm.correlation(idivm.mixed_covariance) IS
    'the correlation of each pair of columns of idivm.one_hot_columns';

CREATE OR REPLACE FUNCTION idivm.linreg(c idivm.mixed_covariance, label integer DEFAULT NULL,
                             ridge double precision DEFAULT 0)
    RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    y integer := coalesce(label, cardinality(c.categorical));
    goal integer;
    weights double precision[];
BEGIN
    IF c.terms IS NULL THEN
        RETURN NULL;
    ELSIF c.categorical[y] IS NOT FALSE THEN
        RAISE EXCEPTION 'there is no number % to predict', y USING ERRCODE = 'invalid_parameter_value',
            HINT = format('The covariance is of %s arguments; name one that is no category.', cardinality(c.categorical));
    END IF;
    goal := (SELECT o.number FROM idivm.one_hot_columns(c) AS o WHERE o.place = y);
    weights := idivm.linreg(idivm.one_hot(c), goal, ridge);
    RETURN (
        SELECT jsonb_agg(w.weight ORDER BY w.place)
        FROM (SELECT 0 AS place, to_jsonb(weights[1]) AS weight
              UNION ALL
              SELECT o.place, CASE WHEN c.categorical[o.place] THEN jsonb_object_agg(coalesce(o.category, ''), x.weight)
                                   ELSE to_jsonb(min(x.weight)) END
              FROM idivm.one_hot_columns(c) AS o
              CROSS JOIN LATERAL (SELECT weights[1 + o.number - (o.number > goal)::integer]) AS x (weight)
              WHERE o.place <> y GROUP BY o.place) AS w
    );
END
$$;
COMMENT ON FUNCTION idivm.linreg(idivm.mixed_covariance, integer, double precision) IS
    'the least squares fit of one number, by default the last argument, to the others: the intercept, then a weight for each number and for each category';

CREATE OR REPLACE FUNCTION idivm.predict(model jsonb, VARIADIC x idivm.feature[]) RETURNS double precision
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    expected double precision := (model -> 0)::double precision;
BEGIN
    IF cardinality(x) <> jsonb_array_length(model) - 1 THEN
        RAISE EXCEPTION 'the model is of % values, and % are given', jsonb_array_length(model) - 1, cardinality(x)
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    FOR i IN 1 .. cardinality(x) LOOP
        expected := expected + CASE jsonb_typeof(model -> i)
            WHEN 'object' THEN (model -> i -> x[i].category)::double precision
            ELSE (model -> i)::double precision * x[i].number::double precision END;
    END LOOP;
    RETURN expected;
END
$$;
COMMENT ON FUNCTION idivm.predict(jsonb, idivm.feature[]) IS
    'predicts a value with a model of idivm.linreg from values in the order of the fit; NULL for an unknown category';

-- Return the product of elements over different arguments.
CREATE OR REPLACE FUNCTION idivm.mixed_times(x idivm.mixed_triple, y idivm.mixed_triple) RETURNS idivm.mixed_triple
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN idivm.mixed_products(ARRAY[x, y]);

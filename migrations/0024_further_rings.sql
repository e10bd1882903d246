-- Rings of users' own: elements that view trees add and multiply as they do numbers.

CREATE TABLE idivm.rings (
    schema      name NOT NULL,
    name        name NOT NULL,
    plus        text NOT NULL,
    times       text NOT NULL,
    negate      text NOT NULL,
    zero        text NOT NULL,
    one         text NOT NULL,
    lift        text NOT NULL,
    PRIMARY KEY (schema, name)
);
COMMENT ON TABLE idivm.rings IS
    'aggregates that are sums of products of lifted values, with the functions that make a commutative ring';

-- Makes the aggregate name(x1, ..., xn), the sum over rows of the products of their lifted values, and what
-- programs call beside it: name_sum over elements, name_product of lifted values, name_multiple of an element.
CREATE FUNCTION idivm.register_ring(
    name text, plus regprocedure, times regprocedure, negate regprocedure, zero regprocedure,
    one regprocedure, lift regprocedure
)
    RETURNS regprocedure
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    element regtype := (SELECT p.prorettype FROM pg_proc p WHERE p.oid = zero);
    argument regtype := (SELECT p.proargtypes[0] FROM pg_proc p WHERE p.oid = lift);
    placed boolean := (SELECT p.pronargs = 2 FROM pg_proc p WHERE p.oid = lift);
    parts text[] := parse_ident(name);
    place name := coalesce(parts[cardinality(parts) - 1], (
        SELECT n.nspname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE p.oid = plus));
    called name := parts[cardinality(parts)];
    wrong record;
    law text;
    one_side text;
    other_side text;
BEGIN
    IF cardinality(parts) > 2 OR octet_length(called || '_multiple') > 63 THEN
        RAISE EXCEPTION '"%" cannot be the name of an aggregate', name USING ERRCODE = 'invalid_name',
            HINT = 'Name it alone or with its schema, in 54 bytes or less.';
    END IF;
    SELECT f.role, f.given, f.wanted INTO wrong
    FROM (VALUES ('plus', plus, ARRAY[element, element]), ('times', times, ARRAY[element, element]),
                 ('negate', negate, ARRAY[element]), ('zero', zero, '{}'), ('one', one, '{}'),
                 ('lift', lift, CASE WHEN placed THEN ARRAY[argument, 'integer'] ELSE ARRAY[argument] END)
         ) AS f (role, given, wanted)
    JOIN pg_proc p ON p.oid = f.given
    WHERE p.prorettype <> element OR ARRAY(SELECT unnest(p.proargtypes))::regtype[] <> f.wanted OR p.provolatile <> 'i'
       OR p.prokind <> 'f' OR p.proretset OR NOT (p.proisstrict OR p.pronargs = 0)
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '% cannot be %', wrong.given, wrong.role USING ERRCODE = 'invalid_function_definition',
            HINT = format('Name a function (%s) of type %s that is IMMUTABLE%s.',
                array_to_string(wrong.wanted, ', '), element,
                CASE WHEN cardinality(wrong.wanted) > 0 THEN ' and STRICT' ELSE '' END);
    END IF;
    -- What is not a ring would go wrong at the first deletion.
    FOR law IN SELECT unnest(ARRAY['%1$s(%5$s(), %3$s(%5$s())) = %4$s()', '%1$s(%4$s(), %5$s()) = %5$s()',
                                   '%2$s(%5$s(), %5$s()) = %5$s()', '%2$s(%4$s(), %5$s()) = %4$s()'])
    LOOP
        law := format(law, plus::regproc, times::regproc, negate::regproc, zero::regproc, one::regproc);
        EXECUTE format('SELECT ROW(%s)::text, ROW(%s)::text', split_part(law, ' = ', 1), split_part(law, ' = ', 2))
            INTO one_side, other_side;
        IF one_side <> other_side THEN
            RAISE EXCEPTION 'these functions make no ring: % does not hold, it is % and not %', law, one_side, other_side
                USING ERRCODE = 'invalid_function_definition';
        END IF;
    END LOOP;
    EXECUTE format($sql$
        CREATE FUNCTION %1$I.%3$I(x %8$s[], places integer[]) RETURNS %7$s
            LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
        AS $body$
        DECLARE
            made %7$s := %10$s();
        BEGIN
            FOR i IN 1 .. cardinality(x) LOOP
                made := %9$s(made, %11$s(x[i]%12$s));
            END LOOP;
            RETURN made;
        END
        $body$;
        CREATE FUNCTION %1$I.%4$I(element %7$s, times bigint) RETURNS %7$s
            LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
        AS $body$
        DECLARE
            made %7$s := %13$s();
            power %7$s := CASE WHEN times < 0 THEN %14$s(element) ELSE element END;
            rest bigint := abs(times);
        BEGIN
            WHILE rest > 0 LOOP
                IF rest %% 2 = 1 THEN
                    made := %15$s(made, power);
                END IF;
                rest := rest / 2;
                IF rest > 0 THEN
                    power := %15$s(power, power);
                END IF;
            END LOOP;
            RETURN made;
        END
        $body$;
        CREATE FUNCTION %1$I.%5$I(state %7$s, VARIADIC x %8$s[]) RETURNS %7$s
            LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
        AS $body$
        DECLARE
            made %7$s := %1$I.%3$I(x, ARRAY(SELECT generate_subscripts(x, 1)));
        BEGIN
            RETURN CASE WHEN made IS NOT DISTINCT FROM NULL THEN state
                        WHEN state IS NOT DISTINCT FROM NULL THEN made ELSE %15$s(state, made) END;
        END
        $body$;
        CREATE AGGREGATE %1$I.%6$I(%7$s) (SFUNC = %15$s, STYPE = %7$s);
        CREATE AGGREGATE %1$I.%2$I(VARIADIC %8$s[]) (SFUNC = %1$I.%5$I, STYPE = %7$s);
        $sql$,
        place, called, called || '_product', called || '_multiple', called || '_step', called || '_sum',
        element, argument, times::regproc, one::regproc, lift::regproc,
        CASE WHEN placed THEN ', places[i]' ELSE '' END, zero::regproc, negate::regproc, plus::regproc);
    INSERT INTO idivm.rings
    VALUES (place, called, plus, times, negate, zero, one, lift);
    RETURN format('%I.%I(%s[])', place, called, argument)::regprocedure;
END
$$;
COMMENT ON FUNCTION idivm.register_ring(text, regprocedure, regprocedure, regprocedure, regprocedure, regprocedure, regprocedure) IS
    'makes an aggregate of a ring: the sum of products of lifted values, which view trees maintain';

CREATE FUNCTION idivm.drop_ring(aggregate regproc) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    ring idivm.rings;
    element regtype;
    argument regtype;
BEGIN
    DELETE FROM idivm.rings r USING pg_proc p, pg_namespace n
    WHERE p.oid = aggregate AND n.oid = p.pronamespace AND r.schema = n.nspname AND r.name = p.proname
    RETURNING r.* INTO ring;
    IF NOT FOUND THEN
        RAISE EXCEPTION '% is no aggregate of a ring', aggregate USING ERRCODE = 'undefined_function';
    END IF;
    SELECT p.prorettype, p.proargtypes[0] INTO element, argument FROM pg_proc p
    WHERE p.oid = ring.lift::regprocedure;
    EXECUTE format(
        'DROP AGGREGATE %1$I.%2$I(VARIADIC %8$s[]), %1$I.%3$I(%7$s);'
        'DROP FUNCTION %1$I.%4$I(%7$s, %8$s[]), %1$I.%5$I(%8$s[], integer[]), %1$I.%6$I(%7$s, bigint)',
        ring.schema, ring.name, ring.name || '_sum', ring.name || '_step', ring.name || '_product',
        ring.name || '_multiple', element, argument);
END
$$;
COMMENT ON FUNCTION idivm.drop_ring(regproc) IS 'drops the aggregate of a ring, which no view may use any more';

-- Generalised covariance: over numbers and categories. Its elements are polynomials up to the second degree in
-- one variable for each number and each category, kept as the monomials that are not zero: 1 is (0, , 0, ),
-- a variable (i, a, 0, ), a product (i, a, j, b), of arguments i <= j and categories a and b, which numbers
-- have none of. They are exact, so that what is taken back leaves nothing behind.

CREATE TYPE idivm.feature AS (number numeric, category text);
COMMENT ON TYPE idivm.feature IS 'an argument of idivm.covar: a number, or a category';

CREATE TYPE idivm.monomial AS (i integer, a text, j integer, b text, v numeric);
CREATE TYPE idivm.mixed_triple AS (terms idivm.monomial[]);
CREATE TYPE idivm.mixed_state AS (n bigint, m integer, waiting idivm.mixed_triple[]);

CREATE TYPE idivm.mixed_covariance AS (n bigint, categorical boolean[], terms idivm.monomial[]);
COMMENT ON TYPE idivm.mixed_covariance IS
    'how many rows, which arguments are categories, the sums of variables (j is 0) and of products that are not zero';

GRANT USAGE ON TYPE idivm.feature, idivm.monomial, idivm.mixed_triple, idivm.mixed_state, idivm.mixed_covariance
    TO PUBLIC;

DO $casts$
DECLARE
    source text;
BEGIN
    FOREACH source IN ARRAY ARRAY['smallint', 'integer', 'bigint', 'numeric', 'real', 'double precision'] LOOP
        -- A float counts as the decimal number that it is written as.
        EXECUTE format(
            'CREATE FUNCTION idivm.feature(x %s) RETURNS idivm.feature LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE'
            ' RETURN ROW(x%s::numeric, NULL)::idivm.feature', source,
            CASE WHEN source IN ('real', 'double precision') THEN '::double precision::text' ELSE '' END);
        EXECUTE format('CREATE CAST (%1$s AS idivm.feature) WITH FUNCTION idivm.feature(%1$s) AS IMPLICIT', source);
    END LOOP;
    FOREACH source IN ARRAY ARRAY['text', 'varchar', 'bpchar', 'boolean', 'uuid'] LOOP
        EXECUTE format(
            'CREATE FUNCTION idivm.feature(x %s) RETURNS idivm.feature LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE'
            ' RETURN ROW(NULL, x::text)::idivm.feature', source);
        EXECUTE format('CREATE CAST (%1$s AS idivm.feature) WITH FUNCTION idivm.feature(%1$s) AS IMPLICIT', source);
    END LOOP;
    FOREACH source IN ARRAY ARRAY['text', 'bigint', 'boolean', 'uuid', 'anyenum'] LOOP
        EXECUTE format(
            'CREATE FUNCTION idivm.categorical(x %s) RETURNS idivm.feature LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE'
            ' AS ''SELECT ROW(NULL, x::text)::idivm.feature''', source);
        EXECUTE format('COMMENT ON FUNCTION idivm.categorical(%s) IS %L', source,
                       'a value as a category, for idivm.covar');
    END LOOP;
END
$casts$;

CREATE FUNCTION idivm.categorical(x date) RETURNS idivm.feature
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN ROW(NULL, to_jsonb(x) #>> '{}')::idivm.feature;
COMMENT ON FUNCTION idivm.categorical(date) IS 'a value as a category, for idivm.covar';

CREATE FUNCTION idivm.mixed_zero() RETURNS idivm.mixed_triple
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ROW('{}')::idivm.mixed_triple;

CREATE FUNCTION idivm.mixed_one() RETURNS idivm.mixed_triple
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ROW(ARRAY[ROW(0, NULL, 0, NULL, 1)::idivm.monomial])::idivm.mixed_triple;

-- The product of what arguments at some places, in order, lift to: 1 + x + x^2 of a number, 1 + c of a category,
-- whose square is itself. NULL if one lacks, or is not finite.
CREATE FUNCTION idivm.mixed_product(x idivm.feature[], places integer[]) RETURNS idivm.mixed_triple
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    m integer := cardinality(x);
    numbers numeric[];
    categories text[];
    terms idivm.monomial[] := ARRAY[ROW(0, NULL, 0, NULL, 1)::idivm.monomial];
BEGIN
    FOR i IN 1 .. m LOOP
        numbers[i] := trim_scale(x[i].number);
        categories[i] := x[i].category;
        IF numbers[i] IN ('NaN', 'Infinity', '-Infinity') OR numbers[i] IS NULL AND categories[i] IS NULL THEN
            RETURN NULL;
        END IF;
    END LOOP;
    FOR i IN 1 .. m LOOP
        CONTINUE WHEN numbers[i] = 0;
        terms := terms || ROW(places[i], categories[i], 0, NULL, coalesce(numbers[i], 1))::idivm.monomial;
        FOR j IN i + (numbers[i] IS NULL)::integer .. m LOOP
            IF numbers[j] IS DISTINCT FROM 0 THEN
                terms := terms || ROW(places[i], categories[i], places[j], categories[j],
                                      trim_scale(coalesce(numbers[i], 1) * coalesce(numbers[j], 1)))::idivm.monomial;
            END IF;
        END LOOP;
    END LOOP;
    RETURN ROW(terms)::idivm.mixed_triple;
END
$$;

-- The sum of elements, NULLs aside.
CREATE FUNCTION idivm.mixed_total(elements idivm.mixed_triple[]) RETURNS idivm.mixed_triple
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

CREATE FUNCTION idivm.mixed_plus(a idivm.mixed_triple, b idivm.mixed_triple) RETURNS idivm.mixed_triple
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN idivm.mixed_total(ARRAY[a, b]);

-- The product of elements over different arguments: so no two pairs of monomials have the same product.
CREATE FUNCTION idivm.mixed_times(x idivm.mixed_triple, y idivm.mixed_triple) RETURNS idivm.mixed_triple
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (
        SELECT ROW(coalesce(array_agg(
            CASE WHEN r.i = 0 THEN ROW(l.i, l.a, l.j, l.b, l.v * r.v)::idivm.monomial
                 WHEN l.i = 0 THEN ROW(r.i, r.a, r.j, r.b, l.v * r.v)::idivm.monomial
                 WHEN l.i < r.i THEN ROW(l.i, l.a, r.i, r.a, l.v * r.v)::idivm.monomial
                 ELSE ROW(r.i, r.a, l.i, l.a, l.v * r.v)::idivm.monomial END), '{}'))::idivm.mixed_triple
        FROM unnest(x.terms) AS l JOIN unnest(y.terms) AS r ON l.i = 0 OR r.i = 0 OR l.j = 0 AND r.j = 0
    );
END
$$;

CREATE FUNCTION idivm.mixed_multiple(element idivm.mixed_triple, times bigint) RETURNS idivm.mixed_triple
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF times = 1 THEN
        RETURN element;
    END IF;
    RETURN (SELECT ROW(coalesce(array_agg(ROW(t.i, t.a, t.j, t.b, t.v * times)::idivm.monomial ORDER BY place)
                                    FILTER (WHERE times <> 0), '{}'))::idivm.mixed_triple
            FROM unnest(element.terms) WITH ORDINALITY AS t (i, a, j, b, v, place));
END
$$;

-- What is shown of the number of rows that have all arguments, and of the element of those that are finite.
CREATE FUNCTION idivm.mixed_covariance(n bigint, t idivm.mixed_triple, m integer)
    RETURNS idivm.mixed_covariance
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    terms idivm.monomial[];
BEGIN
    IF n IS NULL OR n = 0 THEN
        RETURN NULL;
    END IF;
    -- A product that was not added to anything has them in another order.
    terms := (idivm.mixed_total(ARRAY[t])).terms;
    IF terms[1].i IS DISTINCT FROM 0 OR terms[1].v <> n THEN
        RETURN ROW(n, NULL, NULL)::idivm.mixed_covariance;
    END IF;
    RETURN ROW(n, (SELECT array_agg(EXISTS (SELECT FROM unnest(terms) AS one
                                            WHERE one.i = place AND one.j = 0 AND one.a IS NOT NULL) ORDER BY place)
                   FROM generate_series(1, m) AS place), terms[2:])::idivm.mixed_covariance;
END
$$;

CREATE FUNCTION idivm.mixed_step(state idivm.mixed_state, VARIADIC x idivm.feature[])
    RETURNS idivm.mixed_state
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    waiting idivm.mixed_triple[] := state.waiting;
    made idivm.mixed_triple;
BEGIN
    IF array_position(x, NULL) IS NOT NULL THEN
        RETURN state;
    END IF;
    made := idivm.mixed_product(x, ARRAY(SELECT generate_subscripts(x, 1)));
    IF made IS NOT NULL THEN
        waiting := waiting || made;
    END IF;
    -- Many rows are added up at once.
    IF cardinality(waiting) >= 100 THEN
        waiting := ARRAY[idivm.mixed_total(waiting)];
    END IF;
    RETURN ROW(coalesce(state.n, 0) + 1, cardinality(x), waiting)::idivm.mixed_state;
END
$$;

CREATE FUNCTION idivm.mixed_final(state idivm.mixed_state) RETURNS idivm.mixed_covariance
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN idivm.mixed_covariance(state.n, idivm.mixed_total(state.waiting), state.m);

CREATE AGGREGATE idivm.covar(VARIADIC idivm.feature[]) (
    SFUNC = idivm.mixed_step,
    STYPE = idivm.mixed_state,
    FINALFUNC = idivm.mixed_final
);
COMMENT ON AGGREGATE idivm.covar(VARIADIC idivm.feature[]) IS
    'count, sums and sums of products of numbers and of one-hot categories, over the rows that have them all';

-- The columns of the one-hot encoding: of a number one, of a category one for each of its values.
CREATE FUNCTION idivm.one_hot_columns(c idivm.mixed_covariance)
    RETURNS TABLE (number integer, place integer, category text)
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT row_number() OVER (ORDER BY p, t.a COLLATE "C")::integer, p, t.a
    FROM generate_subscripts((c).categorical, 1) AS p
    LEFT JOIN unnest((c).terms) AS t ON (c).categorical[p] AND t.i = p AND t.j = 0
    ORDER BY 1;
END;
COMMENT ON FUNCTION idivm.one_hot_columns(idivm.mixed_covariance) IS
    'what the numbers of idivm.one_hot stand for: arguments, and their categories';

CREATE FUNCTION idivm.one_hot(c idivm.mixed_covariance) RETURNS idivm.covariance
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
    'the covariance of the numbers and of one number for each category, 1 where a row is of it and else 0';

CREATE FUNCTION idivm.covariance_matrix(c idivm.mixed_covariance) RETURNS double precision[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN idivm.covariance_matrix(idivm.one_hot(c));
COMMENT ON FUNCTION idivm.covariance_matrix(idivm.mixed_covariance) IS
    'the sample covariances of each two columns of idivm.one_hot_columns';

CREATE FUNCTION idivm.correlation(c idivm.mixed_covariance) RETURNS double precision[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN idivm.correlation(idivm.one_hot(c));
COMMENT ON FUNCTION idivm.correlation(idivm.mixed_covariance) IS
    'the correlation of each two columns of idivm.one_hot_columns';

CREATE FUNCTION idivm.linreg(c idivm.mixed_covariance, label integer DEFAULT NULL,
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
    'the least squares fit of one number, by default the last argument, to the others: intercept, then a weight of each number and one of each category';

CREATE FUNCTION idivm.predict(model jsonb, VARIADIC x idivm.feature[]) RETURNS double precision
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
    'what a model of idivm.linreg expects for some values, in the order that it was fitted to; NULL for a category that it knows nothing of';

CREATE FUNCTION idivm.mutual_information(c idivm.mixed_covariance) RETURNS double precision[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH single AS (
        SELECT t.i, t.a, t.v::double precision / (c).n AS p FROM unnest((c).terms) AS t
        WHERE t.j = 0 AND t.a IS NOT NULL
    ), found (i, j, nats) AS (
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
          LEFT JOIN found AS f ON f.i = least(x, y) AND f.j = greatest(x, y)
          GROUP BY x) AS line;
END;
COMMENT ON FUNCTION idivm.mutual_information(idivm.mixed_covariance) IS
    'what each two categories tell of each other, in nats; of one with itself its entropy; NULL of numbers';

CREATE FUNCTION idivm.chow_liu(c idivm.mixed_covariance) RETURNS integer[]
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
    'the tree over the categories that tell most of each other, as edges from the first one on';

-- Least squares, in closed form and by gradient descent. What takes long has a form in C.

-- The normal equations of deviations from the means, in units of their spread: for each number but the label a
-- row of its products with all of these, and with the label. Rows of numbers that do not vary are zero.
CREATE FUNCTION idivm.normal_equations(c idivm.covariance, label integer, OUT a double precision[],
                                       OUT scales double precision[], OUT means double precision[])
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    m integer := cardinality(c.s);
    s double precision[] := c.s;
    q double precision[] := c.q;
    n double precision := c.n;
    places integer[] := ARRAY(SELECT i FROM generate_series(1, m) AS i ORDER BY i = label, i);
    place integer;
    other integer;
    starts integer[];
    v double precision;
BEGIN
    -- Where row i of the upper triangle would begin, if it had a column 0.
    starts := ARRAY(SELECT (i - 1) * m - i * (i - 1) / 2 FROM generate_series(1, m) AS i ORDER BY i);
    a := array_fill(0::double precision, ARRAY[(m - 1) * m]);
    FOR i IN 1 .. m - 1 LOOP
        place := places[i];
        means[i] := s[place] / n;
        scales[i] := sqrt(greatest(q[starts[place] + place] - s[place] * s[place] / n, 0));
    END LOOP;
    FOR i IN 1 .. m - 1 LOOP
        CONTINUE WHEN scales[i] = 0;
        place := places[i];
        FOR j IN i + 1 .. m - 1 LOOP
            other := places[j];
            IF scales[j] > 0 THEN
                v := (q[starts[place] + other] - s[place] * s[other] / n) / scales[i] / scales[j];
                a[(i - 1) * m + j] := v;
                a[(j - 1) * m + i] := v;
            END IF;
        END LOOP;
        a[(i - 1) * m + i] := 1;
        a[i * m] := (q[starts[least(place, label)] + greatest(place, label)] - s[place] * s[label] / n) / scales[i];
    END LOOP;
END
$$;

CREATE PROCEDURE idivm.plain_models()
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $plain$
BEGIN
    -- The solution of k equations of k + 1 numbers by Gauss and Jordan, with what is added on the diagonal.
    -- A number that others determine gets no weight of its own.
    CREATE OR REPLACE FUNCTION idivm.solved(a double precision[], ridge double precision)
        RETURNS double precision[]
        LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        w integer := ((sqrt(4 * cardinality(a) + 1) + 1) / 2)::integer;
        k integer := w - 1;
        factor double precision;
        found double precision[] := array_fill(0::double precision, ARRAY[k]);
    BEGIN
        FOR i IN 1 .. k LOOP
            IF a[(i - 1) * w + i] <> 0 THEN
                a[(i - 1) * w + i] := a[(i - 1) * w + i] + ridge;
            END IF;
        END LOOP;
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
        FOR i IN 1 .. k LOOP
            IF a[(i - 1) * w + i] <> 0 THEN
                found[i] := a[i * w] / a[(i - 1) * w + i];
            END IF;
        END LOOP;
        RETURN found;
    END
    $$;

    -- Batch gradient descent from some weights, until no part of the gradient is greater than the tolerance; behind
    -- the weights, in how many steps. Its steps are those of Barzilai and Borwein.
    CREATE OR REPLACE FUNCTION idivm.descended(a double precision[], start double precision[], ridge double precision,
                                               tolerance double precision, steps integer)
        RETURNS double precision[]
        LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        k integer := cardinality(start);
        w integer := k + 1;
        x double precision[] := start;
        gradient double precision[] := start;
        moved double precision[] := array_fill(0::double precision, ARRAY[k]);
        rate double precision := 0;
        steepest double precision;
        g double precision;
        row_sum double precision;
        above double precision;
        below double precision;
        made integer := 0;
    BEGIN
        -- No step may be longer than this at first, whatever the start.
        FOR i IN 1 .. k LOOP
            row_sum := ridge;
            FOR j IN 1 .. k LOOP
                row_sum := row_sum + abs(a[(i - 1) * w + j]);
            END LOOP;
            rate := greatest(rate, row_sum);
        END LOOP;
        rate := CASE WHEN rate > 0 THEN 1 / rate ELSE 0 END;
        LOOP
            steepest := 0;
            above := 0;
            below := 0;
            FOR i IN 1 .. k LOOP
                g := ridge * x[i] - a[i * w];
                FOR j IN 1 .. k LOOP
                    g := g + a[(i - 1) * w + j] * x[j];
                END LOOP;
                above := above + moved[i] * moved[i];
                below := below + moved[i] * (g - gradient[i]);
                gradient[i] := g;
                steepest := greatest(steepest, abs(g));
            END LOOP;
            EXIT WHEN NOT steepest > tolerance OR steepest = 'NaN' OR made >= steps;
            IF below > 0 THEN
                rate := above / below;
            END IF;
            FOR i IN 1 .. k LOOP
                moved[i] := -rate * gradient[i];
                x[i] := x[i] + moved[i];
            END LOOP;
            made := made + 1;
        END LOOP;
        RETURN x || made::double precision;
    END
    $$;
END
$plain$;
CALL idivm.plain_models();

-- As before, by functions that are shared and have a form in C.
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

-- The number to predict, by default the last; NULL of no rows.
CREATE FUNCTION idivm.label_of(c idivm.covariance, label integer) RETURNS integer
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

-- Intercept and weights, from the mean of the label and the weights of deviations in units of their spread.
CREATE FUNCTION idivm.weights(mean double precision, deviations double precision[], scales double precision[],
                              means double precision[])
    RETURNS double precision[]
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    FOR i IN 1 .. cardinality(scales) LOOP
        IF scales[i] <> 0 THEN
            deviations[i] := deviations[i] / scales[i];
        END IF;
        mean := mean - deviations[i] * means[i];
    END LOOP;
    RETURN mean || deviations[:cardinality(scales)];
END
$$;

CREATE FUNCTION idivm.train(c idivm.covariance, start double precision[] DEFAULT NULL, label integer DEFAULT NULL,
                            ridge double precision DEFAULT 0, tolerance double precision DEFAULT 1e-9,
                            steps integer DEFAULT 10000,
                            OUT weights double precision[], OUT iterations integer)
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    y integer := idivm.label_of(c, label);
    equations record;
    x double precision[];
BEGIN
    IF y IS NULL THEN
        RETURN;
    ELSIF cardinality(start) <> cardinality(c.s) THEN
        RAISE EXCEPTION 'a model of % weights cannot be trained on; the covariance is of % numbers',
            cardinality(start), cardinality(c.s) USING ERRCODE = 'invalid_parameter_value';
    ELSIF cardinality(c.s) = 1 THEN
        weights := ARRAY[c.s[y] / c.n];
        iterations := 0;
        RETURN;
    END IF;
    equations := idivm.normal_equations(c, y);
    x := array_fill(0::double precision, ARRAY[cardinality(c.s) - 1]);
    IF start IS NOT NULL THEN
        FOR i IN 1 .. cardinality(x) LOOP
            x[i] := start[i + 1] * equations.scales[i];
        END LOOP;
    END IF;
    x := idivm.descended(equations.a, x, ridge, tolerance * sqrt(greatest(idivm.covar_centred(c, y, y), 0)), steps);
    weights := idivm.weights(c.s[y] / c.n, x, equations.scales, equations.means);
    iterations := x[cardinality(x)];
END
$$;
COMMENT ON FUNCTION idivm.train(idivm.covariance, double precision[], integer, double precision, double precision, integer) IS
    'the fit of idivm.linreg by gradient descent, from an earlier model on if one is given, and its steps';

-- Covariances over numbers and categories take less time: sums of products and of lifted rows are aggregates
-- that never hold more than some of the rows, and what takes long has a form in C.

-- A call of a strict function that makes a row is not part of the query around it.
DO $casts$
DECLARE
    source text;
    body text := 'CREATE OR REPLACE FUNCTION idivm.%s(x %s) RETURNS idivm.feature LANGUAGE sql IMMUTABLE PARALLEL SAFE'
        ' AS ''SELECT CASE WHEN x IS NOT NULL THEN ROW(%s)::idivm.feature END''';
BEGIN
    FOREACH source IN ARRAY ARRAY['smallint', 'integer', 'bigint', 'numeric'] LOOP
        EXECUTE format(body, 'feature', source, 'x::numeric, NULL');
    END LOOP;
    FOREACH source IN ARRAY ARRAY['real', 'double precision'] LOOP
        EXECUTE format(body, 'feature', source, 'x::double precision::text::numeric, NULL');
    END LOOP;
    FOREACH source IN ARRAY ARRAY['text', 'varchar', 'bpchar', 'boolean', 'uuid'] LOOP
        EXECUTE format(body, 'feature', source, 'NULL, x::text');
    END LOOP;
    FOREACH source IN ARRAY ARRAY['text', 'bigint', 'boolean', 'uuid', 'anyenum'] LOOP
        EXECUTE format(body, 'categorical', source, 'NULL, x::text');
    END LOOP;
END
$casts$;

-- Rows that wait to be lifted, m features and a number each, and what came of those before.
CREATE TYPE idivm.mixed_rows AS (features idivm.feature[], times bigint[], places integer[], lifted idivm.mixed_triple);
GRANT USAGE ON TYPE idivm.mixed_rows TO PUBLIC;

-- Elements of the ring are in one order, without zeros, and numbers have no zeros at their end.
CREATE PROCEDURE idivm.plain_mixed()
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $plain$
BEGIN
    -- The product of what arguments at some places, in order, lift to: 1 + x + x^2 of a number, 1 + c of a category,
    -- whose square is itself. NULL if one lacks, or is not finite.
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

    -- The sum of elements, NULLs aside.
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

    -- Most of what a stored element holds is not in the other, and stays as it is.
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

    -- The sum of the products of each two elements that follow each other, over different arguments.
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

    -- The product of elements over different arguments.
    CREATE OR REPLACE FUNCTION idivm.mixed_times(x idivm.mixed_triple, y idivm.mixed_triple) RETURNS idivm.mixed_triple
        LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
        RETURN idivm.mixed_products(ARRAY[x, y]);

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

    -- The sum over rows of what mixed_product makes of each, so many times. All features are in one array.
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

    -- What is shown of the number of rows that have all arguments, and of the element of those that are finite.
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
        -- A product that was not added to anything had another order once.
        terms := (idivm.mixed_total(ARRAY[t])).terms;
        IF terms[1].i IS DISTINCT FROM 0 OR terms[1].v <> n THEN
            RETURN ROW(n, NULL, NULL)::idivm.mixed_covariance;
        END IF;
        places := ARRAY(SELECT DISTINCT one.i FROM unnest(terms) AS one WHERE one.j = 0 AND one.a IS NOT NULL);
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
END
$plain$;
CALL idivm.plain_mixed();

-- Has long values compressed by lz4, which takes a fraction of the time; not every server has it.
CREATE FUNCTION idivm.compress_quickly(relation text, VARIADIC columns name[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    EXECUTE format('ALTER TABLE %s %s', relation::regclass, (
        SELECT string_agg(format('ALTER COLUMN %I SET COMPRESSION lz4', one), ', ') FROM unnest(columns) AS one));
EXCEPTION WHEN feature_not_supported THEN
    NULL;
END
$$;

-- What views and aggregates stand on does not depend on a form that may be in C: a dump may come to a server
-- that has no such form.
CREATE OR REPLACE FUNCTION idivm.mixed_covariance(n bigint, t idivm.mixed_triple, m integer)
    RETURNS idivm.mixed_covariance
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN idivm.mixed_shown(n, t, m);
END
$$;

CREATE OR REPLACE FUNCTION idivm.mixed_final(state idivm.mixed_state) RETURNS idivm.mixed_covariance
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN idivm.mixed_shown(state.n, idivm.mixed_total(state.waiting), state.m);
END
$$;

-- A ring goes with its schema, of which its row is not told; another one may have its name then.
CREATE FUNCTION idivm.replace_ring() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM idivm.rings WHERE (schema, name) = (NEW.schema, NEW.name);
    RETURN NEW;
END
$$;
CREATE TRIGGER replace_ring BEFORE INSERT ON idivm.rings
    FOR EACH ROW EXECUTE FUNCTION idivm.replace_ring();

-- Rings that users register.

-- Create the aggregate name(x1, ..., xn), the sum over rows of the products of their lifted values, and the
-- functions for programs: name_sum over elements, name_product of lifted values, name_multiple of an element.
CREATE OR REPLACE FUNCTION idivm.register_ring(
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
    -- A structure that violates the laws of a ring would give wrong results at the first deletion.
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
    'registers a ring and creates its aggregate: the sum of products of lifted values, which view trees maintain';

CREATE OR REPLACE FUNCTION idivm.drop_ring(aggregate regproc) RETURNS void
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
COMMENT ON FUNCTION idivm.drop_ring(regproc) IS 'drops a ring and its aggregate, if no view uses them';

-- Dropping a schema drops its rings without changing idivm.rings, so another ring may reuse the name.
CREATE OR REPLACE FUNCTION idivm.replace_ring() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM idivm.rings WHERE (schema, name) = (NEW.schema, NEW.name);
    RETURN NEW;
END
$$;

CREATE OR REPLACE TRIGGER replace_ring BEFORE INSERT ON idivm.rings
    FOR EACH ROW EXECUTE FUNCTION idivm.replace_ring();

-- Enumeration: a cursor whose first row does not wait for the others.
--
-- A view whose rows are merged from buckets (orchestrator/runtime/enumeration/merged.py) has a relation
-- idivm_feed.r<id>, which yields them one after the other. It reads the states with the rights of the view's owner,
-- and returns nothing to roles that may not read the view. The relation of a ranked view calls a function
-- (orchestrator/runtime/enumeration/ranked.py), which reads the states for this relation alone.

-- Return the value that the relation of an enumeration is asked for. PostgreSQL plans an enumeration when its cursor
-- is opened. The function is immutable, so that the planner replaces it by the value then, and removes conditions on
-- columns without a value.
CREATE OR REPLACE FUNCTION idivm.asked_for(name text) RETURNS text
    LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
    RETURN nullif(current_setting('idivm.asked_for', true), '')::jsonb ->> name;
COMMENT ON FUNCTION idivm.asked_for(text) IS 'the value of a column that an enumeration is asked for, while its cursor is opened';

-- Return the relation that enumerates the rows of a view, and the columns by whose values it finds rows: a value of a
-- column helps if all columns before it have values too.
CREATE OR REPLACE FUNCTION idivm.enumeration_of(view regclass, OUT relation regclass, OUT columns text[])
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT to_regclass(format('idivm_feed.%I', 'r' || v.id)), ARRAY(
        SELECT (SELECT s.pair ->> 0 FROM jsonb_array_elements(v.plan -> 'enumeration' -> 'shown') AS s (pair)
                WHERE s.pair ->> 1 = k.variable LIMIT 1)
        FROM jsonb_array_elements_text(v.plan -> 'enumeration' -> 'variables') WITH ORDINALITY AS k (variable, nth)
        ORDER BY k.nth)
    FROM idivm.views v JOIN pg_class c ON c.oid = v.relation
    WHERE v.relation = enumeration_of.view AND NOT c.relrowsecurity
$$;
COMMENT ON FUNCTION idivm.enumeration_of(regclass) IS 'the relation that enumerates the rows of a view, and the columns by which it finds rows';

-- Open a cursor over the rows of an enumeration. The settings make the planner read the states by lookups, in the
-- order of their indexes.
CREATE OR REPLACE FUNCTION idivm.open_enumeration(relation regclass, prefix jsonb, portal refcursor) RETURNS refcursor
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET enable_material = off SET enable_sort = off SET jit = off SET max_parallel_workers_per_gather = 0
AS $$
BEGIN
    IF prefix = '{}' THEN
        -- A session plans it once.
        EXECUTE format('SELECT idivm_feed.%I($1)', replace(substr(relation::text, length('idivm_feed.') + 1), 'r', 'open_')) USING portal;
        RETURN portal;
    END IF;
    PERFORM set_config('idivm.asked_for', prefix::text, true);
    OPEN portal FOR EXECUTE format('SELECT * FROM %s', relation);
    PERFORM set_config('idivm.asked_for', '', true);
    RETURN portal;
END
$$;
COMMENT ON FUNCTION idivm.open_enumeration(regclass, jsonb, refcursor) IS 'opens a cursor over the relation of an enumeration';

-- Return the order of a ranked view as SQL over its columns. The plan has their positions, as in %1$I; the sign % is
-- doubled in stored plans.
CREATE OR REPLACE FUNCTION idivm.ranked_by(view regclass) RETURNS text
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT format(replace(v.plan -> 'ranking' ->> 'order', '%%', '%'), VARIADIC ARRAY(
        SELECT a.attname::text FROM pg_attribute a
        WHERE a.attrelid = v.relation AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum))
    FROM idivm.views v
    WHERE v.relation = ranked_by.view AND v.plan -> 'ranking' <> 'null' AND v.plan -> 'ranking' ->> 'excerpt' IS NULL
$$;
COMMENT ON FUNCTION idivm.ranked_by(regclass) IS 'the order in which readers get the rows of a view with the option ranked';

CREATE OR REPLACE FUNCTION idivm.enumerate(view regclass, prefix jsonb DEFAULT '{}', portal refcursor DEFAULT 'idivm_rows')
    RETURNS refcursor
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    known record;
    names text[] := ARRAY(SELECT jsonb_object_keys(coalesce(prefix, '{}')));
    missing text;
BEGIN
    IF NOT has_table_privilege(view, 'SELECT') THEN
        RAISE insufficient_privilege USING
            MESSAGE = format('the rows of %s cannot be enumerated without the right to read all columns of the view', view),
            HINT = format('GRANT SELECT ON %s gives it.', view);
    END IF;
    SELECT n.name INTO missing FROM unnest(names) AS n (name)
    WHERE NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = view AND a.attname = n.name AND a.attnum > 0 AND NOT a.attisdropped);
    IF FOUND THEN
        RAISE undefined_column USING
            MESSAGE = format('the rows of %s cannot be enumerated by %s, which is no column of the view', view, missing),
            HINT = 'Name columns of the view as keys of the prefix.';
    END IF;
    SELECT * INTO known FROM idivm.enumeration_of(view);
    IF known.relation IS NOT NULL AND known.columns[1:cardinality(names)] @> names
       AND NOT jsonb_path_exists(prefix, '$.* ? (@ == null)') THEN
        RETURN idivm.open_enumeration(known.relation, prefix, portal);
    END IF;
    OPEN portal FOR EXECUTE concat_ws(' ORDER BY ', concat_ws(' WHERE ', format('SELECT * FROM %s AS t', view),
        (SELECT string_agg(CASE WHEN p.value IS NULL THEN format('t.%I IS NULL', p.key) ELSE format('t.%I = %L', p.key, p.value) END, ' AND ')
         FROM jsonb_each_text(prefix) AS p)), idivm.ranked_by(view));
    RETURN portal;
END
$$;
COMMENT ON FUNCTION idivm.enumerate(regclass, jsonb, refcursor) IS
    'opens a cursor over the rows of a view, or over those with given values of columns, whose first row does not wait for the others';

-- The rows have the type of the first argument, so that a query can name their columns: first_rows(NULL::trips, 10).
CREATE OR REPLACE FUNCTION idivm.first_rows(view anyelement, count bigint) RETURNS SETOF anyelement
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    named regclass := (SELECT t.typrelid FROM pg_type t WHERE t.oid = pg_typeof(view) AND t.typrelid <> 0);
    known record;
BEGIN
    IF idivm.ranked_by(named) IS NULL THEN
        RAISE wrong_object_type USING
            MESSAGE = format('%s has no order, so that it has no first rows', pg_typeof(view)),
            HINT = 'Name a view with the option ranked as NULL::name.';
    END IF;
    IF NOT has_table_privilege(named, 'SELECT') THEN
        RAISE insufficient_privilege USING
            MESSAGE = format('the rows of %s cannot be read without the right to read all columns of the view', named),
            HINT = format('GRANT SELECT ON %s gives it.', named);
    END IF;
    SELECT * INTO known FROM idivm.enumeration_of(named);
    IF known.relation IS NULL THEN
        RETURN QUERY EXECUTE format('SELECT * FROM %s ORDER BY %s LIMIT $1', named, idivm.ranked_by(named)) USING count;
    ELSE
        RETURN QUERY EXECUTE format('SELECT * FROM %s LIMIT $1', known.relation) USING count;
    END IF;
END
$$;
COMMENT ON FUNCTION idivm.first_rows(anyelement, bigint) IS 'the first rows of a view with the option ranked, in its order; the view is given as NULL::name';

CREATE OR REPLACE FUNCTION idivm.drop_enumeration(view_id integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    part text;
BEGIN
    -- CASCADE drops the relation with the states, and not the function, whose text names it.
    IF to_regprocedure(format('idivm_feed.%I(refcursor)', 'open_' || view_id)) IS NOT NULL THEN
        EXECUTE format('DROP FUNCTION idivm_feed.%I(refcursor)', 'open_' || view_id);
    END IF;
    IF to_regclass(format('idivm_feed.%I', 'r' || view_id)) IS NOT NULL THEN
        EXECUTE format('DROP VIEW idivm_feed.%I', 'r' || view_id);
    END IF;
    -- The function returns rows of a view over states. The type of solutions reads these views, and was created later.
    FOR part IN
        SELECT 'FUNCTION ' || p.oid::regprocedure FROM pg_proc p
        WHERE p.pronamespace = 'idivm_feed'::regnamespace AND p.proname = 'ranked_' || view_id
    LOOP
        EXECUTE 'DROP ' || part;
    END LOOP;
    FOR part IN
        SELECT 'VIEW ' || c.oid::regclass FROM pg_class c
        WHERE c.relnamespace = 'idivm_feed'::regnamespace AND c.relname ~ ('^r' || view_id || '_') ORDER BY c.oid DESC
    LOOP
        EXECUTE 'DROP ' || part;
    END LOOP;
END
$$;
COMMENT ON FUNCTION idivm.drop_enumeration(integer) IS 'drops the relation that enumerates the rows of a view, and what it reads';

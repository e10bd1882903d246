-- Views with more than one state table.

-- Drops the state tables of a view, whose names all end in its number.
CREATE FUNCTION idivm.drop_states(view_id integer, keep_content boolean) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    found_tables text;
BEGIN
    SELECT string_agg(c.oid::regclass::text, ', ') INTO found_tables
    FROM pg_class c
    WHERE c.relnamespace = 'idivm_state'::regnamespace AND c.relkind = 'r'
      AND c.relname ~ ('_' || view_id || '$')
      AND NOT (keep_content AND EXISTS (SELECT FROM idivm.views v WHERE v.id = view_id AND v.state = c.oid));
    IF found_tables IS NOT NULL THEN
        EXECUTE 'DROP TABLE ' || found_tables;
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION idivm.forget(view_id integer, keep_relation boolean DEFAULT false) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v idivm.views;
    lost integer[];
    unused integer;
    object record;
BEGIN
    PERFORM pg_advisory_xact_lock(idivm.lock_class(), view_id);
    SELECT * INTO v FROM idivm.views WHERE id = view_id;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF NOT keep_relation AND EXISTS (SELECT FROM pg_class c WHERE c.oid = v.relation AND c.relkind = 'v') THEN
        EXECUTE format('DROP VIEW %s', v.relation);
    END IF;
    FOR object IN
        SELECT p.oid::regprocedure AS signature FROM pg_proc p
        WHERE p.pronamespace = 'idivm_state'::regnamespace AND p.proname = 'refresh_' || view_id
    LOOP
        EXECUTE format('DROP FUNCTION %s', object.signature);
    END LOOP;
    lost := ARRAY(SELECT vs.source FROM idivm.view_sources vs WHERE vs.view = view_id);
    DELETE FROM idivm.views WHERE id = view_id;
    FOREACH unused IN ARRAY lost LOOP
        PERFORM idivm.forget_unused_source(unused);
    END LOOP;
    PERFORM idivm.drop_states(view_id, false);
    EXECUTE format('DROP VIEW IF EXISTS idivm_def.%I', 'v' || view_id);
END
$$;

-- Whether a captured table has lost the key that its rows are told apart by.
CREATE FUNCTION idivm.key_is_gone(source integer) RETURNS boolean
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (SELECT s.keyed AND NOT EXISTS (
        SELECT FROM pg_index i
        WHERE i.indrelid = s.relation AND i.indisunique AND i.indisvalid
          AND i.indpred IS NULL AND i.indexprs IS NULL
          AND (SELECT array_agg(k.attnum ORDER BY k.attnum)
               FROM unnest(i.indkey::smallint[]) WITH ORDINALITY AS k (attnum, place)
               WHERE k.place <= i.indnkeyatts)
              = (SELECT array_agg(c.attnum::smallint ORDER BY c.attnum)
                 FROM idivm.source_columns c WHERE c.source = s.id AND c.in_key))
    FROM idivm.sources s WHERE s.id = key_is_gone.source);
END
$$;

-- As before, and whether a key is gone.
CREATE OR REPLACE FUNCTION idivm.has_drifted(view_id integer) RETURNS boolean
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM idivm.inlined_views i
        WHERE i.view = view_id AND i.signature IS DISTINCT FROM idivm.signature(i.relation)
    ) OR EXISTS (
        SELECT FROM idivm.view_sources vs
        JOIN idivm.sources s ON s.id = vs.source
        JOIN pg_class c ON c.oid = s.relation
        WHERE vs.view = view_id
          AND (c.relhassubclass
               OR EXISTS (SELECT FROM idivm.source_members m WHERE m.source = s.id AND m.member <> s.relation))
          AND EXISTS (
              (SELECT d FROM idivm.descendants(s.relation) d
               EXCEPT SELECT m.member FROM idivm.source_members m WHERE m.source = s.id)
              UNION ALL
              (SELECT m.member FROM idivm.source_members m WHERE m.source = s.id
               EXCEPT SELECT d FROM idivm.descendants(s.relation) d))
    ) OR EXISTS (
        SELECT FROM idivm.view_sources vs WHERE vs.view = view_id AND idivm.key_is_gone(vs.source)
    );
END
$$;

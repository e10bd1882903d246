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

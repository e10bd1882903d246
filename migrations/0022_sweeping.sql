-- What was broken off is looked at again once it is locked; who drops logs waits for who collects them.

-- As before; but who made or replaced a view may have ended since it was found, and it is whole then.
CREATE OR REPLACE FUNCTION idivm.sweep() RETURNS integer
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    view_id integer;
    swept integer := 0;
BEGIN
    FOR view_id IN
        SELECT b.id
        FROM idivm.refresh_order(ARRAY(SELECT id FROM idivm.views)) WITH ORDINALITY AS o (id, place)
        JOIN idivm.broken_off b USING (id)
        ORDER BY o.place DESC
    LOOP
        IF view_id IN (SELECT idivm.kept_views()) THEN
            PERFORM idivm.hold_writers(ARRAY[view_id], true);
        END IF;
        IF pg_try_advisory_xact_lock(idivm.lock_class(), view_id)
           AND EXISTS (SELECT FROM idivm.broken_off b WHERE b.id = view_id) THEN
            PERFORM idivm.forget(view_id);
            swept := swept + 1;
        END IF;
    END LOOP;
    RETURN swept;
END
$$;

CREATE VIEW idivm.broken_off AS
SELECT v.id FROM idivm.views v
WHERE v.status = 'building'
   OR NOT EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid = v.definition)
   OR NOT EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid = v.relation)
      AND EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid = v.state);
COMMENT ON VIEW idivm.broken_off IS 'views that were not made to the end, or taken apart: those without a creator who still is at it are swept away';

-- As before, but its logs go when nobody is at work on them: a collection reads a log's numbers before
-- its rows, and they go the other way round. The locks of all of them come before the first one goes,
-- as a collection may look at the other logs of a view.
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
    lost := ARRAY(SELECT vs.source FROM idivm.view_sources vs WHERE vs.view = view_id ORDER BY vs.source);
    FOREACH unused IN ARRAY lost LOOP
        PERFORM pg_advisory_xact_lock(idivm.lock_class(), -unused);
    END LOOP;
    IF NOT keep_relation AND EXISTS (SELECT FROM pg_class c WHERE c.oid = v.relation AND c.relkind = 'v') THEN
        EXECUTE format('DROP VIEW %s', v.relation);
    END IF;
    FOR object IN
        SELECT p.oid::regprocedure AS signature FROM pg_proc p
        WHERE p.pronamespace = 'idivm_state'::regnamespace AND p.proname = 'refresh_' || view_id
    LOOP
        EXECUTE format('DROP FUNCTION %s', object.signature);
    END LOOP;
    DELETE FROM idivm.views WHERE id = view_id;
    FOREACH unused IN ARRAY lost LOOP
        PERFORM idivm.forget_unused_source(unused);
    END LOOP;
    PERFORM idivm.drop_states(view_id, false);
    EXECUTE format('DROP VIEW IF EXISTS idivm_def.%I', 'v' || view_id);
END
$$;

-- As before, but a log that is gone by the time it is locked has nothing to free.
CREATE OR REPLACE FUNCTION idivm.collect_source(source integer, pages integer DEFAULT 64) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    segments regclass[];
    numbers regclass;
    last bigint;
    written regclass;
    other regclass;
    freed bigint;
BEGIN
    -- What an older snapshot does not see it must not throw away.
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted')
       OR NOT pg_try_advisory_xact_lock(idivm.lock_class(), -source) THEN
        RETURN 0;
    END IF;
    numbers := to_regclass(format('idivm_log.%I', 's' || source || '_seq'));
    IF numbers IS NULL THEN
        RETURN 0;
    END IF;
    segments := ARRAY[format('idivm_log.%I', 's' || source || '_a')::regclass,
                      format('idivm_log.%I', 's' || source || '_b')::regclass];
    PERFORM idivm.mind_limits(source);
    EXECUTE format('SELECT last_value FROM %s', numbers) INTO last;
    written := segments[1 + ((last >> 32) & 1)];
    other := segments[2 - ((last >> 32) & 1)];
    freed := idivm.free_segment(source, other);
    IF pg_relation_size(other) = 0
       AND pg_relation_size(written) >= pages * current_setting('block_size')::bigint THEN
        PERFORM setval(numbers, ((last >> 32) + 1) << 32);
        freed := freed + idivm.free_segment(source, written);
    END IF;
    RETURN freed;
END
$$;

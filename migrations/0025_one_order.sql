-- Locks in one order, also with those who come meanwhile: of drops, collections, refreshes and changes of mode.

-- Waits for who is at work on the logs of some sources before the first of them goes: a collection reads a
-- log's numbers before its rows, which go the other way round, and may look at the other logs of a view.
CREATE FUNCTION idivm.hold_logs(sources integer[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(idivm.lock_class(), -source)
    FROM (SELECT source FROM unnest(sources) AS source ORDER BY source) AS ordered;
END
$$;

-- As before, but its logs go when nobody is at work on them.
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
    lost := ARRAY(SELECT vs.source FROM idivm.view_sources vs WHERE vs.view = view_id);
    PERFORM idivm.hold_logs(lost);
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

-- As before; but who held a lock may have changed the view's mode: the writers of a view that is kept by
-- now wait for its lock, and must not wait for one who waits for further locks meanwhile. So all are let
-- go then, and those that still are apart are taken anew; who cannot see a change of mode begins again.
CREATE OR REPLACE FUNCTION idivm.lock_apart(view_ids integer[], kept integer[]) RETURNS boolean
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    apart integer[] := ARRAY(SELECT id FROM unnest(view_ids) AS id WHERE id <> ALL (kept) ORDER BY id);
    snapshot_is_fixed boolean := current_setting('transaction_isolation') IN ('repeatable read', 'serializable');
    view_id integer;
    callers text;
    waited boolean := false;
BEGIN
    IF pg_current_xact_id_if_assigned() IS NOT NULL THEN
        GET DIAGNOSTICS callers = PG_CONTEXT;
        IF idivm.is_mid_statement(apart, callers) THEN
            RAISE EXCEPTION 'a view cannot be refreshed by a statement that may have changed its tables'
                USING ERRCODE = 'object_in_use',
                      HINT = 'Refresh it after the statement; or create it WITH (maintain = eager), which shows '
                             'each statement''s changes, or WITH (maintain = on_commit).';
        END IF;
    END IF;
    LOOP
        BEGIN
            FOREACH view_id IN ARRAY apart LOOP
                CONTINUE WHEN pg_try_advisory_xact_lock(idivm.lock_class(), view_id);
                waited := pg_advisory_xact_lock(idivm.lock_class(), view_id) IS NOT NULL;
                IF snapshot_is_fixed AND view_id < apart[cardinality(apart)] THEN
                    RAISE EXCEPTION 'another session has refreshed or changed these views meanwhile'
                        USING ERRCODE = 'serialization_failure';
                ELSIF NOT snapshot_is_fixed AND apart && ARRAY(SELECT idivm.kept_views()) THEN
                    RAISE EXCEPTION USING ERRCODE = 'IV001', MESSAGE = 'these views are kept by now';
                END IF;
            END LOOP;
            RETURN waited;
        EXCEPTION WHEN SQLSTATE 'IV001' THEN
            apart := ARRAY(SELECT id FROM unnest(apart) AS id WHERE id NOT IN (SELECT idivm.kept_views()) ORDER BY id);
        END;
    END LOOP;
END
$$;

-- As before, by the function above.
CREATE OR REPLACE FUNCTION idivm.set_mode(view_id integer, mode text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- In the order of everybody: views that are not kept, tables, views that are.
    PERFORM idivm.lock_views(ARRAY[view_id]);
    PERFORM idivm.hold_writers(ARRAY[view_id], mode = 'deferred');
    UPDATE idivm.views v SET maintain = mode WHERE v.id = view_id;
    PERFORM idivm.sync_modes();
    PERFORM idivm.start_keeping(view_id);
END
$$;

-- The sources of some views whose logs have something to free or are so long that they may, or may be
-- longer than one of their readers allows: mostly none. What this does not look at, collect_source does.
CREATE OR REPLACE FUNCTION idivm.collectable(view_ids integer[], pages integer DEFAULT 64) RETURNS SETOF integer
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY
    WITH logs AS MATERIALIZED (
        SELECT s.source, (coalesce(pg_sequence_last_value(to_regclass('idivm_log.s' || s.source || '_seq')::oid), 0) >> 32) & 1 AS turn,
               coalesce(pg_relation_size(to_regclass('idivm_log.s' || s.source || '_a')), 0) AS a,
               coalesce(pg_relation_size(to_regclass('idivm_log.s' || s.source || '_b')), 0) AS b
        FROM (SELECT DISTINCT vs.source FROM idivm.view_sources vs WHERE vs.view = ANY (view_ids)) AS s
    )
    SELECT l.source FROM logs l
    WHERE CASE l.turn WHEN 0 THEN l.b ELSE l.a END > 0
       OR CASE l.turn WHEN 0 THEN l.a ELSE l.b END >= pages * current_setting('block_size')::bigint
       OR (SELECT sum(one.a + one.b) FROM logs one)
          > least(pg_size_bytes(coalesce(idivm.database_setting('idivm.log_limit'), '1GB')),
                  (SELECT min(pg_size_bytes(v.options ->> 'log_limit')) FROM idivm.views v
                   WHERE v.options ? 'log_limit'
                     AND EXISTS (SELECT FROM idivm.view_sources vs JOIN logs one USING (source) WHERE vs.view = v.id)))
    ORDER BY l.source;
END
$$;

-- As before, but only logs are collected that have something to free.
CREATE OR REPLACE PROCEDURE idivm.refresh_all(VARIADIC names text[] DEFAULT '{}')
    LANGUAGE plpgsql
AS $$
DECLARE
    ids pg_catalog.int4[];
    late pg_catalog.text[];
    attempt pg_catalog.int4 := 0;
    again pg_catalog.bool;
    to_collect pg_catalog.int4[];
    source_id pg_catalog.int4;
BEGIN
    IF pg_catalog.cardinality(names) OPERATOR(pg_catalog.=) 0 THEN
        ids := ARRAY(SELECT v.id FROM idivm.views v WHERE v.status OPERATOR(pg_catalog.<>) 'building');
    ELSE
        ids := ARRAY(SELECT idivm.view_id(n::pg_catalog.regclass) FROM pg_catalog.unnest(names) AS n);
    END IF;
    LOOP
        -- Waiting happens before the snapshot is taken, so that it is not stale when the wait ends.
        PERFORM idivm.lock_views(ids);
        COMMIT;
        SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;
        BEGIN
            again := false;
            PERFORM idivm.refresh_views(ids);
        EXCEPTION WHEN serialization_failure THEN
            attempt := attempt OPERATOR(pg_catalog.+) 1;
            IF attempt OPERATOR(pg_catalog.>) 20 THEN
                RAISE;
            END IF;
            again := true;
        END;
        COMMIT;
        EXIT WHEN NOT again;
    END LOOP;
    to_collect := ARRAY(SELECT idivm.collectable(ids));
    IF pg_catalog.cardinality(to_collect) OPERATOR(pg_catalog.=) 0 THEN
        RETURN;
    END IF;
    FOREACH source_id IN ARRAY to_collect LOOP
        PERFORM idivm.collect_source(source_id);
        COMMIT;
    END LOOP;
    late := ARRAY(
        SELECT v.relation::pg_catalog.text FROM idivm.overdue() AS o
        JOIN idivm.views v ON v.id OPERATOR(pg_catalog.=) o.view
        WHERE o.action OPERATOR(pg_catalog.=) 'refresh' AND o.view OPERATOR(pg_catalog.<>) ALL (ids));
    IF pg_catalog.cardinality(late) OPERATOR(pg_catalog.>) 0 THEN
        CALL idivm.refresh_all(VARIADIC late);
    END IF;
END
$$;

-- As before, but a table comes before its partitions and heirs, as it does for everybody else: TRUNCATE
-- has locked it when it comes to them, while a refresh would still have to come from them to it.
CREATE OR REPLACE FUNCTION idivm.pin_tables(view_id integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    one record;
BEGIN
    FOR one IN
        SELECT m.member::regclass AS name, c.oid, nullif(c.relfilenode, 0) AS file, c.relkind = 'p' AS is_parted
        FROM idivm.view_sources vs
        JOIN idivm.sources s ON s.id = vs.source
        JOIN idivm.source_members m ON m.source = vs.source
        JOIN pg_class c ON c.oid = m.member
        WHERE vs.view = view_id AND c.relkind IN ('r', 'm', 'p')
        ORDER BY m.member <> s.relation, c.relkind <> 'p', c.oid
    LOOP
        -- Of a table that was dropped there is nothing to lock.
        IF pg_relation_filenode(one.oid) IS NOT NULL OR one.is_parted AND to_regclass(one.name::text) IS NOT NULL THEN
            EXECUTE format('LOCK TABLE ONLY %s IN ACCESS SHARE MODE', one.name);
        END IF;
        IF pg_relation_filenode(one.oid) IS DISTINCT FROM one.file THEN
            RAISE EXCEPTION 'the table % was truncated or rewritten after this transaction took its snapshot', one.name
                USING ERRCODE = 'serialization_failure', HINT = 'Run the transaction again.';
        END IF;
    END LOOP;
EXCEPTION WHEN undefined_table THEN
    RAISE EXCEPTION 'a table was dropped after this transaction took its snapshot'
        USING ERRCODE = 'serialization_failure', HINT = 'Run the transaction again.';
END
$$;

-- As before; mostly there is nothing to be put in order.
CREATE OR REPLACE FUNCTION idivm.sweep() RETURNS integer
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    view_id integer;
    swept integer := 0;
BEGIN
    IF NOT EXISTS (SELECT FROM idivm.broken_off) THEN
        RETURN 0;
    END IF;
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

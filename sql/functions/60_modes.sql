-- Synchronous views: maintained within the statements (eager) or at the commits (on_commit) of writers.

-- Return whether writers share a view: each logs its changes, reads merge them, and whoever commits while no other
-- transaction does so folds them into the content. Writers never wait for such a view.
CREATE OR REPLACE FUNCTION idivm.is_shared(v idivm.views) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    RETURN v.maintain = 'eager' AND v.read_from IS NOT NULL;
COMMENT ON FUNCTION idivm.is_shared(idivm.views) IS 'whether concurrent writers share an eager view';

-- Return the synchronous views: the views in one of these modes that writers do not share, and every maintained view that
-- they read.
CREATE OR REPLACE FUNCTION idivm.synchronous_views(modes text[] DEFAULT '{eager,on_commit}') RETURNS SETOF integer
    LANGUAGE plpgsql STABLE ROWS 10 SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM idivm.views v
                   WHERE v.maintain = ANY (modes) AND v.read_from IS NULL AND v.status <> 'building') THEN
        RETURN;
    END IF;
    RETURN QUERY
    WITH RECURSIVE synchronous(id) AS (
        SELECT v.id FROM idivm.views v WHERE v.maintain = ANY (modes) AND v.read_from IS NULL AND v.status <> 'building'
      UNION
        SELECT lower_view.id
        FROM synchronous k
        JOIN idivm.view_sources vs ON vs.view = k.id
        JOIN idivm.sources s ON s.id = vs.source
        JOIN idivm.views lower_view ON lower_view.state = s.relation
    )
    SELECT k.id FROM synchronous k;
END
$$;

-- Return the synchronous views that depend on a table, lower views first. Those at the commit include the shared views, as
-- negative numbers.
CREATE OR REPLACE FUNCTION idivm.duties(OUT source integer, OUT eager integer[], OUT on_commit integer[]) RETURNS SETOF record
    LANGUAGE sql STABLE
BEGIN ATOMIC
    WITH RECURSIVE reads(view, source, below) AS (
        SELECT vs.view, vs.source, lower_view.id
        FROM idivm.view_sources vs
        JOIN idivm.sources s ON s.id = vs.source
        LEFT JOIN idivm.views lower_view ON lower_view.state = s.relation
    ), depends(source, view, depth) AS (
        SELECT r.source, r.view, 0 FROM reads r WHERE r.below IS NULL
      UNION
        SELECT d.source, r.view, d.depth + 1 FROM depends d JOIN reads r ON r.below = d.view
    ), pending(source, view, depth, is_eager) AS (
        SELECT d.source, d.view, max(d.depth), d.view IN (SELECT idivm.synchronous_views('{eager}'))
        FROM depends d
        WHERE d.view IN (SELECT idivm.synchronous_views())
        GROUP BY d.source, d.view
      UNION ALL
        SELECT vs.source, -v.id, 0, false
        FROM idivm.views v JOIN idivm.view_sources vs ON vs.view = v.id
        WHERE idivm.is_shared(v) AND v.status <> 'building' AND v.id NOT IN (SELECT idivm.synchronous_views())
    )
    SELECT d.source,
           coalesce(array_agg(d.view ORDER BY d.depth, d.view) FILTER (WHERE d.is_eager), '{}'),
           coalesce(array_agg(d.view ORDER BY d.depth, d.view) FILTER (WHERE NOT d.is_eager), '{}')
    FROM pending d GROUP BY d.source;
END;

-- Refresh synchronous views one by one after one of them has failed. The write succeeds, and the failing views keep
-- their content.
CREATE OR REPLACE FUNCTION idivm.refresh_each(view_ids integer[]) RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    view_id integer;
    failed integer[] := '{}';
    view_name text;
    raises boolean;
    below text;
    state text;
    reason text;
    hint text;
    retry record;
BEGIN
    FOREACH view_id IN ARRAY view_ids LOOP
        SELECT coalesce(lower_view.relation::text, lower_view.name) INTO below
        FROM idivm.views_below(view_id) AS id JOIN idivm.views lower_view USING (id)
        WHERE id = ANY (failed) ORDER BY id LIMIT 1;
        IF FOUND THEN
            reason := idivm.note_error(view_id, '55000', format('it reads %s, which could not be refreshed', below), '');
            failed := failed || view_id;
            CONTINUE;
        END IF;
        BEGIN
            PERFORM idivm.refresh_one(view_id, true);
        EXCEPTION WHEN OTHERS THEN
            GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, reason = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
            SELECT coalesce(v.relation::text, v.name), v.options ->> 'on_error' = 'raise' INTO view_name, raises
            FROM idivm.views v WHERE v.id = view_id;
            IF idivm.ends_refresh(state) THEN
                RAISE;
            END IF;
            retry := idivm.recompute_after_error(view_id, true, state, reason, hint);
            CONTINUE WHEN retry.changed IS NOT NULL;
            IF raises THEN
                RAISE;
            END IF;
            IF NOT EXISTS (SELECT FROM idivm.view_errors e WHERE e.view = view_id) THEN
                RAISE WARNING 'the view % could not follow this change, and stays as it was: %', view_name, reason
                    USING HINT = 'idivm status shows the reason; idivm refresh tries again.';
            END IF;
            reason := idivm.note_error(view_id, state, reason, hint);
            failed := failed || view_id;
        END;
    END LOOP;
END
$$;
COMMENT ON FUNCTION idivm.refresh_each(integer[]) IS
    'brings up views that writers keep, and notes the reason of those that fail';

-- Lock synchronous views and refresh them, lower views first. A view that fails does not end the write.
CREATE OR REPLACE FUNCTION idivm.refresh_synchronous(view_ids integer[]) RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    view_id integer;
    in_order boolean := true;
    last integer := 0;
    locked boolean;
    applied bigint;
    drifted integer[];
    patience text := current_setting('lock_timeout');
    briefly text;
BEGIN
    FOREACH view_id IN ARRAY view_ids LOOP
        in_order := in_order AND last < view_id;
        last := view_id;
    END LOOP;
    FOREACH view_id IN ARRAY
        CASE WHEN in_order THEN view_ids ELSE idivm.ascending(view_ids) END
    LOOP
        locked := pg_advisory_xact_lock(idivm.lock_class(), view_id) IS NOT NULL;
    END LOOP;
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        -- PostgreSQL looks up functions as they are now, but shows rows as in the snapshot.
        IF EXISTS (
            SELECT FROM unnest(view_ids) AS pending (id)
            WHERE NOT EXISTS (SELECT FROM idivm.views v WHERE v.id = pending.id AND v.status <> 'building')
              AND to_regproc(format('idivm_state.%I', 'refresh_' || pending.id)) IS NOT NULL
        ) THEN
            RAISE EXCEPTION 'a synchronous view was created after this transaction took its snapshot'
                USING ERRCODE = 'serialization_failure', HINT = 'Run the transaction again.';
        END IF;
    END IF;
    -- The locks are taken outside of the subtransaction, because a failing subtransaction would release them.
    BEGIN
        -- A long wait for a table may be a deadlock: idivm.lock_readable waits for tables.
        briefly := set_config('lock_timeout', '10ms', true);
        drifted := idivm.drifted_among(view_ids);
        FOREACH view_id IN ARRAY view_ids LOOP
            applied := idivm.refresh_one(view_id, true, view_id = ANY (drifted));
        END LOOP;
        briefly := set_config('lock_timeout', patience, true);
        RETURN;
    EXCEPTION WHEN OTHERS THEN
        IF idivm.ends_refresh(sqlstate) AND sqlstate <> '55P03' THEN
            RAISE;
        END IF;
    END;
    PERFORM idivm.refresh_each(idivm.lock_readable(view_ids));
END
$$;

-- Return whether a deferred trigger may be queued. PostgreSQL forbids this, DEALLOCATE and some other commands in a
-- security-restricted operation: where an apply worker writes a table as its owner, or where REFRESH MATERIALIZED VIEW
-- calls a function that writes. DEALLOCATE of a missing name changes nothing.
CREATE OR REPLACE FUNCTION idivm.may_defer() RETURNS boolean
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DEALLOCATE "idivm: no such statement";
    RETURN true;
EXCEPTION
    WHEN insufficient_privilege THEN
        RETURN false;
    WHEN invalid_sql_statement_name THEN
        RETURN true;
END
$$;
COMMENT ON FUNCTION idivm.may_defer() IS 'whether this transaction may leave work to its commit at this point';

CREATE OR REPLACE FUNCTION idivm.statement_ends() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    done boolean := idivm.end_statement(tg_argv[0], tg_argv[1]) IS NULL;
BEGIN
    RETURN NULL;
END
$$;

-- The apply worker of a subscription changes row after row, without statements that begin and end, so synchronous views
-- are refreshed at its commit. Open statements end by themselves.
CREATE OR REPLACE FUNCTION idivm.row_changed() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    state record := idivm.writer();
    done boolean := state.open > 0
        OR idivm.end_statement_in_full('{}', tg_argv[0]::integer[]) IS NULL;
BEGIN
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION idivm.row_changed() IS 'row trigger of the tables of synchronous views in replica sessions';

CREATE OR REPLACE FUNCTION idivm.commit_begins() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    state record := idivm.writer();
    shared integer[] := idivm.ascending(state.queued || new.views);
    pending integer[] := '{}';
    log integer;
BEGIN
    IF NOT 0 > ALL (shared) THEN
        pending := idivm.in_order(ARRAY(SELECT id FROM unnest(shared) AS id WHERE id > 0));
        shared := ARRAY(SELECT id FROM unnest(shared) AS id WHERE id < 0);
    END IF;
    DELETE FROM idivm.commits c WHERE c.ctid = new.ctid;
    IF state.open > 0 THEN
        -- SET CONSTRAINTS ran within a statement: the end of the statement is early enough.
        PERFORM idivm.note_writer(state.open, state.pending || pending, state.later || shared, NULL);
    ELSE
        -- Changes after this, by another trigger at the commit, are queued again.
        PERFORM idivm.clear_writer();
        IF current_setting('session_replication_role') = 'replica' THEN
            pending := idivm.past_prepared(pending);
            PERFORM idivm.lock_eager_of(pending);
        END IF;
        IF pending <> '{}' THEN
            PERFORM idivm.refresh_synchronous(pending);
        END IF;
        PERFORM idivm.fold(id) FROM unnest(idivm.views_to_fold(shared)) AS id;
    END IF;
    -- Where nobody refreshes, writers collect logs: occasionally, and at the commit, because the emptied segment is
    -- locked until then. A transaction that may stay prepared for hours does not collect.
    FOREACH log IN ARRAY new.logs LOOP
        BEGIN
            PERFORM idivm.collect_source(log);
        EXCEPTION WHEN OTHERS THEN
            IF idivm.ends_refresh(sqlstate) AND sqlstate <> '55P03' THEN
                RAISE;
            END IF;
        END;
    END LOOP;
    RETURN NULL;
END
$$;

-- Return whether this session leaves shared views to other writers for now.
CREATE OR REPLACE FUNCTION idivm.leaves_folding() RETURNS boolean
    LANGUAGE sql STABLE
    RETURN coalesce(nullif(current_setting('idivm.fold_after', true), '')::bigint
                    > extract(epoch FROM clock_timestamp()) * 1000, false);
COMMENT ON FUNCTION idivm.leaves_folding() IS 'whether this session leaves shared views to other writers for now';

-- Leave shared views to other writers for 100 milliseconds, where there are many. The setting is for speed alone.
CREATE OR REPLACE FUNCTION idivm.leave_folding() RETURNS void
    LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM set_config('idivm.fold_after', (extract(epoch FROM clock_timestamp()) * 1000 + 100)::bigint::text, false);
END
$$;
COMMENT ON FUNCTION idivm.leave_folding() IS 'leaves shared views to other writers for 100 milliseconds';

-- Return the shared views that this commit folds, given as negative numbers. Below more than four, views take turns, so
-- that a commit costs the same below any number of views. The number of the transaction chooses them: a view that cannot
-- be folded now then delays no other one. Reads merge what waits. If more than 1,000 rows wait for one of the chosen
-- views, all views are folded.
CREATE OR REPLACE FUNCTION idivm.views_to_fold(shared integer[]) RETURNS integer[]
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    a_turn CONSTANT integer := 4;
    may_wait CONSTANT integer := 1000;
    views integer[] := ARRAY(SELECT -id FROM unnest(shared) AS id);
    chosen integer[];
    place integer;
    lag record;
    waiting integer;
BEGIN
    IF cardinality(views) <= a_turn THEN
        RETURN views;
    END IF;
    views := idivm.ascending(views);
    -- The turns start at any view, and the last one goes on with the first.
    place := mod(hashint8(pg_current_xact_id()::text::bigint)::bigint + 2147483648, cardinality(views));
    chosen := (views || views)[place + 1 : place + a_turn];
    SELECT vs.source, w.mark INTO lag
    FROM idivm.view_sources vs JOIN idivm.watermarks w ON w.view = vs.view WHERE vs.view = chosen[1];
    IF FOUND THEN
        EXECUTE format('SELECT count(*) FROM (SELECT FROM idivm_log.%I AS c WHERE c.xid >= $1 AND idivm.is_pending(c.xid, c.seq, $2, $3)'
                       ' LIMIT $4) AS pending', 's' || lag.source)
        INTO waiting USING pg_snapshot_xmin((lag.mark).snapshot), lag.mark, lag.source, may_wait + 1;
    END IF;
    RETURN CASE WHEN waiting > may_wait THEN views ELSE chosen END;
END
$$;
COMMENT ON FUNCTION idivm.views_to_fold(integer[]) IS 'the shared views that a commit folds: a few in turn where there are many';

-- Fold the pending changes of a shared view into its content at the commit of a writer, with the changes of this
-- transaction. If another transaction does so, or a refresh runs, leave them to it: reads merge them. Many concurrent
-- writers fold at most fifty times a second, so that each has little to do with it. A transaction with a fixed snapshot
-- would conflict with the others, and one that is prepared or has SET CONSTRAINTS within a function may hold the lock of
-- the view for long. Where the tables are needed, they are locked if nobody else writes them.
CREATE OR REPLACE FUNCTION idivm.fold(view_id integer) RETURNS bigint
    LANGUAGE plpgsql
AS $$
DECLARE
    own CONSTANT xid8 := pg_current_xact_id();
    seen CONSTANT pg_snapshot := pg_current_snapshot();
    stack text;
    source regclass;
    state text;
    reason text;
    hint text;
    bounded boolean;
BEGIN
    GET DIAGNOSTICS stack = PG_CONTEXT;
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable')
       OR current_query() ~* '\m(prepare|constraints)\M'
       OR current_setting('session_replication_role') = 'replica' AND current_setting('max_prepared_transactions') <> '0'
       OR stack ~ E'commit_begins\\(\\)[^\n]*\n' THEN
        RETURN NULL;
    END IF;
    IF pg_snapshot_xmin(seen) < own OR pg_snapshot_xmax(seen) > own THEN
        -- Other transactions write.
        PERFORM idivm.leave_folding();
        IF EXISTS (SELECT FROM idivm.watermarks w
                   WHERE w.view = view_id AND w.refreshed_at > clock_timestamp() - interval '20 milliseconds') THEN
            RETURN NULL;
        END IF;
    END IF;
    IF NOT pg_try_advisory_xact_lock(idivm.lock_class(), view_id) THEN
        RETURN NULL;
    END IF;
    FOREACH bounded IN ARRAY '{true, false}'::boolean[] LOOP
        BEGIN
            IF NOT bounded THEN
                FOR source IN
                    SELECT s.relation FROM idivm.view_sources vs JOIN idivm.sources s ON s.id = vs.source
                    WHERE vs.view = view_id ORDER BY s.relation
                LOOP
                    EXECUTE format('LOCK TABLE %s IN SHARE MODE NOWAIT', source);
                END LOOP;
            END IF;
            RETURN idivm.refresh_one(view_id, true, bounded => bounded);
        EXCEPTION WHEN OTHERS THEN
            GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, reason = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
            CONTINUE WHEN bounded AND state = 'IV002';
            IF NOT bounded AND state IN ('55P03', '42501') THEN
                -- A table is locked, or this role may not lock it. idivm serve, or any refresh, recomputes the view;
                -- reads run its query.
                PERFORM idivm.invalidate_unlocked(ARRAY[view_id]);
            ELSIF idivm.ends_refresh(state) THEN
                RAISE;
            ELSE
                reason := idivm.note_error(view_id, state, reason, hint);
            END IF;
            RETURN NULL;
        END;
    END LOOP;
END
$$;
COMMENT ON FUNCTION idivm.fold(integer) IS
    'folds the pending changes of a view that writers share into its content, unless another transaction does';

-- CREATE OR REPLACE cannot replace a constraint trigger.
DO $trigger$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = 'idivm.commits'::regclass AND tgname = 'commit_begins') THEN
        CREATE CONSTRAINT TRIGGER commit_begins AFTER INSERT ON idivm.commits
            DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION idivm.commit_begins();
        ALTER TABLE idivm.commits ENABLE ALWAYS TRIGGER commit_begins;
    END IF;
END
$trigger$;

-- Give the tables of synchronous views the triggers that their views need, and remove these from other tables. A table
-- is not touched if its views have not changed.
CREATE OR REPLACE FUNCTION idivm.sync_modes() RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    to_index integer[];
    to_drop regclass[];
    source integer;
    index regclass;
    duty record;
BEGIN
    to_index := ARRAY(
        SELECT DISTINCT vs.source FROM idivm.view_sources vs JOIN idivm.views v ON v.id = vs.view
        -- Somebody may have dropped a log, which the doctor creates again.
        WHERE to_regclass(format('idivm_log.%I', 's' || vs.source || '_a')) IS NOT NULL
          AND to_regclass(format('idivm_log.%I', 's' || vs.source || '_b')) IS NOT NULL
          AND (v.id IN (SELECT idivm.synchronous_views())
                   AND to_regclass(format('idivm_log.%I', 's' || vs.source || '_a_xid')) IS NULL
               OR v.read_from IS NOT NULL AND to_regclass(format('idivm_log.%I', 's' || vs.source || '_a_cut')) IS NULL)
        ORDER BY vs.source);
    -- Other tables need no index.
    to_drop := ARRAY(
        SELECT c.oid::regclass FROM pg_class c
        WHERE c.relnamespace = 'idivm_log'::regnamespace AND c.relkind = 'i' AND c.relname ~ '^s[0-9]+_[ab]_(xid|cut|[on]_)'
          AND substring(c.relname, '^s([0-9]+)')::integer NOT IN (
              SELECT vs.source FROM idivm.view_sources vs JOIN idivm.views v ON v.id = vs.view
              WHERE v.read_from IS NOT NULL
                 OR c.relname ~ '_xid$' AND v.id IN (SELECT idivm.synchronous_views()))
        ORDER BY c.oid);
    IF to_index <> '{}' OR to_drop <> '{}' THEN
        -- Writers write these logs.
        PERFORM idivm.hold_captures('{}', ARRAY(
            SELECT s.relation FROM idivm.sources s
            WHERE s.id = ANY (to_index)
               OR s.id IN (SELECT substring(c.relname, '^s([0-9]+)')::integer FROM pg_class c WHERE c.oid = ANY (to_drop))));
    END IF;
    FOREACH source IN ARRAY to_index LOOP
        PERFORM idivm.index_log(source);
    END LOOP;
    FOREACH index IN ARRAY to_drop LOOP
        EXECUTE format('DROP INDEX %s', index);
    END LOOP;
    FOR duty IN
        WITH wanted AS (
            SELECT m.member::oid AS member, m.source, d.eager, d.on_commit
            FROM idivm.duties() d
            JOIN idivm.source_members m ON m.source = d.source
            JOIN pg_class c ON c.oid = m.member
        ), present AS (
            SELECT t.tgrelid AS member, substring(t.tgname, '^idivm_([0-9]+)_upkeep$')::integer AS source,
                   encode(t.tgargs, 'escape') AS arguments
            FROM pg_trigger t
            -- Any role can create triggers with such names on its tables.
            WHERE t.tgname ~ '^idivm_[0-9]+_upkeep$' AND t.tgfoid = 'idivm.statement_ends'::regproc
        )
        SELECT coalesce(w.member, p.member)::regclass AS member, coalesce(w.source, p.source) AS source,
               w.member IS NULL AS gone, w.eager, w.on_commit
        FROM wanted w FULL JOIN present p ON p.member = w.member AND p.source = w.source
        WHERE p.arguments IS DISTINCT FROM w.eager::text || E'\\000' || w.on_commit::text || E'\\000'
        ORDER BY 1, 2
    LOOP
        PERFORM idivm.keep_by_triggers(duty.member, duty.source, duty.gone, duty.eager, duty.on_commit);
    END LOOP;
END
$$;
COMMENT ON FUNCTION idivm.sync_modes() IS 'gives tables the triggers that the modes of their views ask for';

-- Change the mode of a view from the end of this transaction on. Call this function in READ COMMITTED and right after a
-- refresh, because writers wait for the last refresh.
CREATE OR REPLACE FUNCTION idivm.set_mode(view_id integer, mode text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- Lock in the common order: deferred views, tables, synchronous views.
    PERFORM idivm.lock_views(ARRAY[view_id]);
    PERFORM idivm.hold_writers(ARRAY[view_id], mode = 'deferred');
    UPDATE idivm.views v SET maintain = mode, paused_mode = NULL WHERE v.id = view_id;
    PERFORM idivm.describe(v.relation) FROM idivm.views v WHERE v.id = view_id;
    PERFORM idivm.sync_modes();
    PERFORM idivm.start_keeping(view_id);
END
$$;

-- Refresh a view whose writers are held, and the views below it.
CREATE OR REPLACE FUNCTION idivm.start_keeping(view_id integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    below integer[] := ARRAY(SELECT idivm.refresh_order(ARRAY[view_id]));
    lower_view integer;
BEGIN
    PERFORM pg_advisory_xact_lock(idivm.lock_class(), id)
    FROM (SELECT id FROM unnest(below) AS id ORDER BY id) AS ordered;
    FOREACH lower_view IN ARRAY below LOOP
        PERFORM idivm.refresh_one(lower_view, false);
    END LOOP;
    -- A transaction with an older snapshot must fail when it changes these views; their watermarks make it fail.
    UPDATE idivm.watermarks w SET refreshed_at = clock_timestamp() WHERE w.view = ANY (below);
END
$$;

-- Remove the triggers of a view, however the view is dropped.
CREATE OR REPLACE FUNCTION idivm.views_went() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM idivm.sync_modes();
    DELETE FROM idivm.past_refreshes p WHERE NOT EXISTS (SELECT FROM idivm.views v WHERE v.id = p.view);
    DELETE FROM idivm.view_indexes i WHERE NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = i.relation);
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER views_went AFTER DELETE ON idivm.views
    FOR EACH STATEMENT EXECUTE FUNCTION idivm.views_went();

-- Return whether a synchronous view is behind, because something happened that no trigger sees.
CREATE OR REPLACE FUNCTION idivm.synchronous_are_behind(view_ids integer[]) RETURNS boolean
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    state record := idivm.writer();
BEGIN
    RETURN state.open = 0 AND cardinality((idivm.due_and_drifted(ARRAY(
        SELECT id FROM idivm.synchronous_views() AS id INTERSECT SELECT unnest(view_ids)))).due) > 0;
END
$$;

-- Give a table the triggers for its synchronous views, or remove them.
CREATE OR REPLACE FUNCTION idivm.keep_by_triggers(member regclass, source integer, gone boolean, eager integer[], on_commit integer[])
    RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    begins text := 'idivm_' || source || '_begin';
    -- Their names make them fire after capture.
    ends text := 'idivm_' || source || '_upkeep';
    row_changes text := 'idivm_' || source || '_upkeep_rows';
    named integer[];
BEGIN
    IF NOT idivm.owns(member) THEN
        -- The trigger may stay if it only names views that are gone.
        SELECT split_part(a.arguments, E'\\000', 1)::integer[] || split_part(a.arguments, E'\\000', 2)::integer[] INTO named
        FROM pg_trigger t CROSS JOIN LATERAL (SELECT encode(t.tgargs, 'escape') AS arguments) AS a
        WHERE t.tgrelid = member AND t.tgname = ends AND t.tgfoid = 'idivm.statement_ends'::regproc;
        IF coalesce(eager || on_commit, '{}') <@ named AND NOT EXISTS (
            SELECT FROM idivm.views v WHERE v.id = ANY (named) AND v.id <> ALL (coalesce(eager || on_commit, '{}'))
        ) THEN
            RETURN;
        END IF;
    END IF;
    IF gone THEN
        EXECUTE format('DROP TRIGGER %I ON %s', ends, member);
        EXECUTE format('DROP TRIGGER IF EXISTS %I ON %s', begins, member);
        EXECUTE format('DROP TRIGGER IF EXISTS %I ON %s', row_changes, member);
        RETURN;
    END IF;
    EXECUTE format('CREATE OR REPLACE TRIGGER %I BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s'
                   ' FOR EACH STATEMENT EXECUTE FUNCTION idivm.statement_begins(%L)', begins, member, eager);
    EXECUTE format('CREATE OR REPLACE TRIGGER %I AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s'
                   ' FOR EACH STATEMENT EXECUTE FUNCTION idivm.statement_ends(%L, %L)',
                   ends, member, eager, on_commit);
    EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %I', member, begins);
    EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %I', member, ends);
    IF (SELECT c.relkind <> 'p' FROM pg_class c WHERE c.oid = member) THEN
        EXECUTE format('CREATE OR REPLACE TRIGGER %I AFTER INSERT OR UPDATE OR DELETE ON %s'
                       ' FOR EACH ROW EXECUTE FUNCTION idivm.row_changed(%L)',
                       row_changes, member, idivm.in_order(eager || on_commit));
        EXECUTE format('ALTER TABLE %s ENABLE REPLICA TRIGGER %I', member, row_changes);
    END IF;
END
$$;

-- Return the tables of synchronous views on which a trigger of the modes is missing or does not always fire.
CREATE OR REPLACE FUNCTION idivm.broken_duties(OUT member regclass, OUT source integer) RETURNS SETOF record
    LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT m.member, m.source
    FROM idivm.duties() d
    JOIN idivm.source_members m ON m.source = d.source
    JOIN pg_class c ON c.oid = m.member
    WHERE (SELECT count(*) FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
           WHERE t.tgrelid = m.member AND t.tgqual IS NULL AND p.pronamespace = 'idivm'::regnamespace
             AND t.tgenabled = CASE t.tgname
                     WHEN 'idivm_' || m.source || '_begin' THEN 'A'
                     WHEN 'idivm_' || m.source || '_upkeep' THEN 'A'
                     WHEN 'idivm_' || m.source || '_upkeep_rows' THEN 'R'
                 END)
          < CASE c.relkind WHEN 'p' THEN 2 ELSE 3 END;
END;

-- Refresh eager views, and queue on_commit views, once all open statements have ended, because the triggers of a
-- statement may run within another statement.
CREATE OR REPLACE FUNCTION idivm.end_statement_in_full(pending integer[], later integer[]) RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    state record := idivm.writer();
    done boolean;
BEGIN
    IF state.pending <> '{}' THEN
        pending := idivm.in_order(state.pending || pending);
    END IF;
    IF pending <> '{}' AND idivm.is_apply_worker() THEN
        -- TRUNCATE, and the statements of triggers that fire in a worker. It may have prepared a transaction that holds
        -- the locks of these views, and it commits this transaction before it ends the prepared one.
        later := idivm.ascending(pending || later);
        pending := '{}';
    END IF;
    later := state.later || later;
    IF state.open > 1 THEN
        done := idivm.note_writer(state.open - 1, pending, later, state.queued) IS NULL;
        RETURN;
    END IF;
    IF state.open = 0 AND later <@ state.queued AND pending = '{}' THEN
        RETURN;
    END IF;
    IF state.queued IS NULL AND pending = '{}' AND later <> '{}' AND 0 > ALL (later) AND idivm.leaves_folding() THEN
        done := idivm.clear_writer() IS NULL;
        RETURN;
    END IF;
    done := idivm.note_writer(0, '{}', '{}', coalesce(state.queued, '{}') || later) IS NULL;
    IF state.queued IS NULL OR NOT later <@ state.queued THEN
        IF idivm.may_defer() THEN
            INSERT INTO idivm.commits (views) VALUES (later);
        ELSE
            pending := idivm.past_prepared(idivm.in_order(pending || ARRAY(SELECT id FROM unnest(later) AS id WHERE id > 0)));
            done := idivm.clear_writer() IS NULL;
            -- The transaction continues to write while it holds the locks of these views, and other views may become
            -- pending. So it takes all locks now, in the common order.
            done := pending = '{}'
                OR idivm.hold_still('{}', '', ARRAY(SELECT idivm.synchronous_views()),
                                    idivm.writers_take_turns()) IS NULL;
        END IF;
    END IF;
    IF pending <> '{}' THEN
        done := idivm.refresh_synchronous(pending) IS NULL;
    END IF;
END
$$;
COMMENT ON FUNCTION idivm.end_statement_in_full(integer[], integer[]) IS
    'brings up the views that are kept with a statement, or notes that they are pending';

CREATE OR REPLACE FUNCTION idivm.end_statement(pending text, later text) RETURNS void
    LANGUAGE sql
    RETURN idivm.end_statement_in_full(pending::integer[], later::integer[]);
COMMENT ON FUNCTION idivm.end_statement(text, text) IS
    'end_statement_in_full, called by the triggers of captured tables';

-- Partitions that are attached and detached.
--
-- If a superuser has created the event trigger, capture follows the partitions of a table at once. Otherwise idivm
-- refresh installs capture on new partitions, and until then each refresh recomputes the views of the table.

-- Give a new partition the capture of another partition: copies of its functions and triggers. The functions do not
-- know the columns of the partition, so they look them up by name until idivm refresh creates them again.
CREATE OR REPLACE FUNCTION idivm.capture_like(source integer, model regclass, model_number integer, member regclass, number integer)
    RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    part record;
    place text := format(' ON %s ', model);
    written text;
BEGIN
    FOR part IN
        SELECT p.oid, p.proname, regexp_replace(p.proname, '[0-9]+$', number::text) AS new_name, r.rolname AS owner
        FROM pg_proc p JOIN pg_roles r ON r.oid = p.proowner
        WHERE p.pronamespace = 'idivm_log'::regnamespace AND p.prorettype = 'trigger'::regtype
          AND p.proname ~ ('^s' || source || '_[a-z]+_' || model_number || '$')
    LOOP
        EXECUTE replace(pg_get_functiondef(part.oid), format('FUNCTION idivm_log.%I()', part.proname),
                        format('FUNCTION idivm_log.%I()', part.new_name));
        EXECUTE format('ALTER FUNCTION idivm_log.%I() OWNER TO %I', part.new_name, part.owner);
    END LOOP;
    FOR part IN
        -- An event trigger runs this as a superuser, and the owner of the table can create triggers with the same names.
        -- Their conditions, columns and arguments are texts that may contain the name of the table.
        SELECT t.oid, t.tgname, t.tgenabled FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
        WHERE t.tgrelid = model AND t.tgparentid = 0 AND t.tgname ~ ('^idivm_' || source || '_(insert|update|delete|truncate|rows)$')
          AND p.pronamespace IN ('idivm'::regnamespace, 'idivm_log'::regnamespace)
          AND t.tgqual IS NULL AND t.tgattr = '' AND t.tgconstraint = 0
          AND encode(t.tgargs, 'escape') ~ E'^([0-9]*\\\\000)*$'
    LOOP
        written := pg_get_triggerdef(part.oid);
        CONTINUE WHEN strpos(written, place) = 0;
        written := overlay(written PLACING format(' ON %s ', member) FROM strpos(written, place) FOR length(place));
        written := replace(written, format('_%s()', model_number), format('_%s()', number));
        written := replace(written, format('(''%s'', ''%s''', source, model_number), format('(''%s'', ''%s''', source, number));
        EXECUTE written;
        IF part.tgenabled IN ('A', 'R') THEN
            EXECUTE format('ALTER TABLE %s ENABLE %s TRIGGER %I', member,
                           CASE part.tgenabled WHEN 'A' THEN 'ALWAYS' ELSE 'REPLICA' END, part.tgname);
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION idivm.capture_like(integer, regclass, integer, regclass, integer) IS
    'captures a table as another member of the same source is captured';

-- Remove capture from tables that are no longer partitions, and install it on new partitions.
CREATE OR REPLACE FUNCTION idivm.sync_partitions(source integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    root regclass := (SELECT s.relation FROM idivm.sources s WHERE s.id = sync_partitions.source);
    child record;
    model record;
    trigger_name name;
    routine regprocedure;
BEGIN
    FOR child IN
        SELECT m.member, m.number, c.oid IS NOT NULL AS is_there
        FROM idivm.source_members m LEFT JOIN pg_class c ON c.oid = m.member
        WHERE m.source = sync_partitions.source AND m.member NOT IN (SELECT idivm.descendants(root)) ORDER BY m.number
    LOOP
        FOR trigger_name IN
            SELECT t.tgname FROM pg_trigger t
            WHERE child.is_there AND t.tgrelid = child.member AND t.tgparentid = 0
              AND t.tgname ~ ('^idivm_' || source || '_')
        LOOP
            EXECUTE format('DROP TRIGGER %I ON %s', trigger_name, child.member);
        END LOOP;
        FOR routine IN
            SELECT p.oid FROM pg_proc p
            WHERE p.pronamespace = 'idivm_log'::regnamespace AND p.prorettype = 'trigger'::regtype
              AND p.proname ~ ('^s' || source || '_[a-z]+_' || child.number || '$')
        LOOP
            EXECUTE format('DROP FUNCTION %s', routine);
        END LOOP;
        DELETE FROM idivm.source_members m WHERE m.source = sync_partitions.source AND m.number = child.number;
    END LOOP;
    FOR child IN
        INSERT INTO idivm.source_members (source, member, number, file)
        SELECT sync_partitions.source, d, (SELECT max(m.number) FROM idivm.source_members m WHERE m.source = sync_partitions.source)
                                          + row_number() OVER (ORDER BY d), c.relfilenode
        FROM idivm.descendants(root) AS d JOIN pg_class c ON c.oid = d
        WHERE d NOT IN (SELECT m.member FROM idivm.source_members m WHERE m.source = sync_partitions.source)
        RETURNING member, number
    LOOP
        -- The functions of a partitioned table are correct for every partition, but slower.
        SELECT m.member, m.number INTO model
        FROM idivm.source_members m JOIN pg_class c ON c.oid = m.member
        WHERE m.source = sync_partitions.source AND idivm.carries_capture(m.source, m.member)
        ORDER BY c.relkind = (SELECT n.relkind FROM pg_class n WHERE n.oid = child.member) DESC, m.number LIMIT 1;
        PERFORM idivm.capture_like(sync_partitions.source, model.member, model.number, child.member, child.number);
    END LOOP;
END
$$;
COMMENT ON FUNCTION idivm.sync_partitions(integer) IS
    'has capture follow the partitions of a table that came or went';

CREATE OR REPLACE FUNCTION idivm.follow_partitions() RETURNS event_trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    root record;
BEGIN
    FOR root IN
        SELECT s.id, s.relation FROM idivm.sources s JOIN pg_class c ON c.oid = s.relation
        WHERE c.relkind = 'p' AND idivm.members_differ(s.id) ORDER BY s.id
    LOOP
        BEGIN
            PERFORM idivm.sync_partitions(root.id);
            PERFORM idivm.note_lost(root.id);
            -- Nobody logged the rows of an attached or detached partition. The change is noted at the commit, because a
            -- statement may be open.
            INSERT INTO idivm.commits (views)
            SELECT d.eager || d.on_commit FROM idivm.duties() d WHERE d.source = root.id;
        EXCEPTION WHEN OTHERS THEN
            IF idivm.ends_refresh(sqlstate) THEN
                RAISE;
            END IF;
            RAISE WARNING 'capture of % could not follow its partitions: %', root.relation, sqlerrm
                USING HINT = 'idivm refresh has it follow them; until then its views are recomputed.';
        END;
    END LOOP;
    IF FOUND THEN
        BEGIN
            PERFORM idivm.sync_modes();
        EXCEPTION WHEN OTHERS THEN
            IF idivm.ends_refresh(sqlstate) THEN
                RAISE;
            END IF;
            RAISE WARNING 'the triggers of eager and on_commit views could not follow the partitions: %', sqlerrm
                USING HINT = 'idivm refresh has them follow.';
        END;
    END IF;
END
$$;
COMMENT ON FUNCTION idivm.follow_partitions() IS
    'event trigger that has capture and eager views follow partitions that come and go';

CREATE OR REPLACE PROCEDURE idivm.watch_partitions()
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_event_trigger WHERE evtname = 'idivm_follow_partitions') THEN
        CREATE EVENT TRIGGER idivm_follow_partitions ON ddl_command_end
            WHEN TAG IN ('ALTER TABLE', 'CREATE TABLE', 'DROP TABLE')
            EXECUTE FUNCTION idivm.follow_partitions();
    END IF;
END
$$;
COMMENT ON PROCEDURE idivm.watch_partitions() IS
    'makes the event trigger that has capture follow partitions that come and go; needs a superuser';

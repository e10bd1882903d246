-- Locks: the order in which refreshes, writers and collections take them.

-- Take the locks of a refresh of these views. The transaction should take its snapshot afterwards.
-- Synchronous views are skipped: they have nothing pending in any snapshot, and their writers should not wait.
CREATE OR REPLACE FUNCTION idivm.lock_views(view_ids integer[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    ordered integer[] := ARRAY(SELECT id FROM idivm.refresh_order(view_ids) AS id);
BEGIN
    PERFORM idivm.lock_apart(ordered, ARRAY(SELECT id FROM idivm.synchronous_views() AS id));
    -- A writer that refreshed a shared view after that snapshot would make the refresh fail.
    UPDATE idivm.watermarks w
    SET quiet_until = clock_timestamp() + interval '1 second' + 2 * (
        SELECT sum(other.seconds) FROM idivm.watermarks other WHERE other.view = ANY (ordered)) * interval '1 second'
    FROM idivm.views v
    WHERE v.id = w.view AND idivm.is_shared(v) AND v.id = ANY (ordered);
END
$$;

-- Take the lock that the writers of all eager views share. A writer takes it before its first statement locks anything.
CREATE OR REPLACE FUNCTION idivm.lock_eager() RETURNS void
    LANGUAGE sql
    RETURN pg_catalog.pg_advisory_xact_lock(idivm.lock_class(), '-2147483648'::pg_catalog.int4);
COMMENT ON FUNCTION idivm.lock_eager() IS 'waits until no other transaction writes tables of eager views';

-- Return whether there is an eager view that writers do not share, so that some writers take the eager lock.
CREATE OR REPLACE FUNCTION idivm.writers_take_turns() RETURNS boolean
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN EXISTS (SELECT FROM idivm.views v WHERE v.maintain = 'eager' AND v.read_from IS NULL);
END
$$;
COMMENT ON FUNCTION idivm.writers_take_turns() IS 'whether writers of eager views run one at a time';

-- An apply worker writes rows without statements, and refreshes eager views at its commit.
CREATE OR REPLACE FUNCTION idivm.lock_eager_of(view_ids integer[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF EXISTS (SELECT FROM idivm.synchronous_views('{eager}') AS id WHERE id = ANY (view_ids)) THEN
        PERFORM idivm.lock_eager();
    END IF;
END
$$;

-- Return whether this session applies changes of a publisher. Such a session refreshes synchronous views at its
-- commit, and takes no locks of views before.
CREATE OR REPLACE FUNCTION idivm.is_apply_worker() RETURNS boolean
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN current_setting('session_replication_role') = 'replica'
        AND EXISTS (SELECT FROM pg_stat_get_subscription(NULL) s WHERE s.pid = pg_backend_pid());
END
$$;
COMMENT ON FUNCTION idivm.is_apply_worker() IS 'whether this session is a worker of a subscription';

-- Mark views as invalid, so that the next refresh rebuilds them. Skip views whose rows another transaction has locked,
-- because the caller must not wait.
CREATE OR REPLACE FUNCTION idivm.invalidate_unlocked(view_ids integer[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    WITH free AS MATERIALIZED (
        SELECT v.id FROM idivm.views v WHERE v.id = ANY (view_ids) AND v.status = 'ready' FOR NO KEY UPDATE SKIP LOCKED
    )
    UPDATE idivm.views v SET status = 'invalid' FROM free WHERE v.id = free.id;
END
$$;
COMMENT ON FUNCTION idivm.invalidate_unlocked(integer[]) IS 'marks views as invalid, except those whose rows another transaction has locked';

-- Return which of these pending views an apply worker refreshes. It refreshes none while a transaction that it has
-- prepared itself holds a lock of synchronous views: the publisher ends that transaction later, so the worker would
-- wait for ever. The views become invalid, and the next writer or refresh rebuilds them. Nobody can read them
-- meanwhile, because the worker commits this transaction before the prepared one.
CREATE OR REPLACE FUNCTION idivm.past_prepared(pending integer[]) RETURNS integer[]
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF current_setting('max_prepared_transactions') = '0' OR NOT EXISTS (
        SELECT FROM pg_stat_get_subscription(NULL) s
        JOIN pg_prepared_xacts p ON starts_with(p.gid, format('pg_gid_%s_', s.subid)) AND p.database = current_database()
        JOIN pg_locks own ON own.locktype = 'transactionid' AND own.transactionid = p.transaction AND own.pid IS NULL
        JOIN pg_locks l ON l.virtualtransaction = own.virtualtransaction AND l.pid IS NULL AND l.locktype = 'advisory'
            AND l.classid = idivm.lock_class()::oid AND l.objsubid = 2
        WHERE s.pid = pg_backend_pid()
          AND l.objid IN (SELECT id::oid FROM idivm.synchronous_views() AS id UNION ALL SELECT (-2147483648)::integer::oid)
    ) THEN
        RETURN pending;
    END IF;
    PERFORM idivm.invalidate_unlocked(pending);
    RETURN '{}';
END
$$;

-- Return whether one of these sessions waits for this transaction, directly or indirectly.
CREATE OR REPLACE FUNCTION idivm.wait_for_this(pids integer[]) RETURNS boolean
    LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    WITH RECURSIVE waiting(pid) AS (
        SELECT unnest(wait_for_this.pids)
      UNION
        SELECT blocker FROM waiting w CROSS JOIN LATERAL unnest(pg_blocking_pids(w.pid)) AS blocker
    )
    SELECT EXISTS (SELECT FROM waiting w WHERE w.pid = pg_backend_pid());
END;

-- Return whether a transaction that has locked a table against readers, or waits to do so, waits for this transaction.
CREATE OR REPLACE FUNCTION idivm.waits_for_this(relation regclass) RETURNS boolean
    LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp
    RETURN idivm.wait_for_this(ARRAY(
        SELECT l.pid FROM pg_locks l
        WHERE l.locktype = 'relation' AND l.mode = 'AccessExclusiveLock' AND l.pid <> pg_backend_pid()
          AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
          AND l.relation IN (SELECT idivm.descendants(waits_for_this.relation))));

-- Take the lock of a synchronous view. If the view is no longer synchronous, do not wait for its lock: a refresh holds
-- it, and may wait for a lock that this transaction holds. A fixed snapshot does not show this. There, the function
-- does not wait in the lock queue, and fails with 40001 when the holder waits for this transaction.
CREATE OR REPLACE FUNCTION idivm.lock_synchronous(view_id integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    patience interval := nullif(current_setting('lock_timeout'), '0')::interval;
    began timestamptz := clock_timestamp();
BEGIN
    WHILE NOT pg_try_advisory_xact_lock(idivm.lock_class(), view_id) LOOP
        IF current_setting('transaction_isolation') NOT IN ('repeatable read', 'serializable') THEN
            PERFORM pg_advisory_xact_lock(idivm.lock_class(), view_id) FROM idivm.synchronous_views() AS id WHERE id = view_id;
            RETURN;
        ELSIF idivm.wait_for_this(ARRAY(
            SELECT l.pid FROM pg_locks l
            WHERE l.locktype = 'advisory' AND l.granted AND l.classid = idivm.lock_class()::oid AND l.objid = view_id::oid
              AND l.objsubid = 2 AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())))
        THEN
            RAISE EXCEPTION 'another session has refreshed or changed these views meanwhile'
                USING ERRCODE = 'serialization_failure', HINT = 'Run the transaction again.';
        ELSIF clock_timestamp() > began + patience THEN
            RAISE EXCEPTION 'canceling statement due to lock timeout' USING ERRCODE = 'lock_not_available';
        END IF;
        PERFORM pg_sleep(0.002);
    END LOOP;
END
$$;

-- Lock a table without waiting in the lock queue. A transaction that has locked the table may wait for this one, and
-- PostgreSQL would cancel either of them. This function then fails with lock_not_available, and also after `late_at`.
CREATE OR REPLACE FUNCTION idivm.lock_unqueued(relation regclass, mode text, late_at timestamptz DEFAULT NULL) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    LOOP
        BEGIN
            EXECUTE format('LOCK TABLE %s IN %s MODE NOWAIT', relation, mode);
            RETURN;
        EXCEPTION WHEN lock_not_available THEN
            IF clock_timestamp() > late_at OR idivm.waits_for_this(relation) THEN
                RAISE;
            END IF;
        END;
        PERFORM pg_sleep(0.01);
    END LOOP;
END
$$;

-- Return the rights of which one is needed to lock a table against writers.
CREATE OR REPLACE FUNCTION idivm.locking_rights() RETURNS text
    LANGUAGE sql STABLE
    RETURN 'UPDATE, DELETE, TRUNCATE'
           || CASE WHEN pg_catalog.current_setting('server_version_num')::pg_catalog.int4 >= 170000 THEN ', MAINTAIN' ELSE '' END;

-- Return tables with their partitions and inheritance children, each of which is then locked alone: LOCK TABLE of a parent
-- holds some children while it waits for another. Parents come first. If this role may not lock all of them, the table is
-- returned without them.
CREATE OR REPLACE FUNCTION idivm.each_alone(tables regclass[], rights text) RETURNS regclass[]
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
    RETURN ARRAY(
        SELECT member
        FROM unnest(tables) WITH ORDINALITY AS r (root, place) CROSS JOIN LATERAL (
            SELECT array_agg(d ORDER BY d <> root, d) AS members,
                   bool_and(c.relkind IN ('r', 'p') AND (pg_has_role(c.relowner, 'USAGE') OR has_table_privilege(c.oid, rights)))
                       AS lockable
            FROM idivm.descendants(root) AS d JOIN pg_class c ON c.oid = d) AS tree
        CROSS JOIN LATERAL unnest(CASE WHEN lockable THEN members ELSE ARRAY[root] END) WITH ORDINALITY AS m (member, number)
        ORDER BY place, number);

-- Lock tables in a mode, and synchronous views, until the end of the transaction. Writers take such locks in the
-- order of their statements. To avoid deadlocks, this function waits for one lock at a time and releases all others
-- meanwhile, except the locks that everybody takes in the same order: the eager lock, then synchronous views by ID.
-- If writers follow each other so closely that one of the locks is always taken, it waits for the tables in order,
-- with the eager lock only for a moment.
-- It locks the tables `to_read` as a query would lock them later, so that no query waits for a TRUNCATE whose
-- transaction waits for one of these views. With `eager`, it takes the eager lock first. A wait for a table then
-- delays all writers of eager views, so it soon gives up the wait and tries again.
CREATE OR REPLACE FUNCTION idivm.hold_still(tables regclass[], mode text, synchronous integer[] DEFAULT '{}',
                                            eager boolean DEFAULT false, beside regclass[] DEFAULT '{}',
                                            to_read regclass[] DEFAULT '{}') RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    in_order boolean := tables = '{}' AND to_read = '{}';
    is_tree boolean;
    roots CONSTANT regclass[] := tables;
    roots_beside CONSTANT regclass[] := beside;
    roots_to_read CONSTANT regclass[] := to_read;
    locked regclass[];
    -- The tables that are locked with their children; NULL if all are.
    whole regclass[];
    patience text := current_setting('lock_timeout');
    is_patient boolean := patience <> '0' OR NOT idivm.writers_take_turns();
    relation regclass;
    view_id integer;
    late regclass;
    late_view integer;
    waits boolean;
    late_at timestamptz;
    request record;
BEGIN
    FOR attempt IN 1..200 LOOP
        IF attempt = 1 THEN
            EXIT WHEN is_patient AND cardinality(tables) = 1 AND synchronous = '{}' AND NOT eager AND to_read = '{}'
                AND NOT (SELECT c.relhassubclass FROM pg_class c WHERE c.oid = tables[1]);
        ELSIF attempt = 2 THEN
            -- A table may be waited for from here on.
            is_tree := EXISTS (SELECT FROM pg_class c WHERE c.oid = ANY (roots || roots_beside || roots_to_read) AND c.relhassubclass);
        END IF;
        IF is_tree THEN
            tables := idivm.each_alone(roots, idivm.locking_rights());
            beside := idivm.each_alone(roots_beside, idivm.locking_rights());
            to_read := idivm.each_alone(roots_to_read, 'SELECT');
            locked := tables || beside || to_read;
            whole := ARRAY(SELECT r FROM unnest(locked) AS r JOIN pg_inherits i ON i.inhparent = r AND i.inhrelid <> ALL (locked));
        END IF;
        BEGIN
            waits := is_patient;
            IF late IS NOT NULL THEN
                IF NOT is_patient THEN
                    PERFORM set_config('lock_timeout', '50ms', true);
                END IF;
                EXECUTE format('LOCK TABLE %s %s IN %s MODE', CASE WHEN late <> ALL (whole) THEN 'ONLY' END, late,
                                                                 CASE WHEN late = ANY (to_read) THEN 'ACCESS SHARE'
                                                                      WHEN late = ANY (beside) THEN 'ROW EXCLUSIVE'
                                                                      ELSE mode END);
                PERFORM set_config('lock_timeout', '0', true) WHERE NOT is_patient;
            ELSIF late_view IS NOT NULL THEN
                PERFORM idivm.lock_synchronous(late_view);
            ELSIF eager THEN
                PERFORM idivm.lock_eager();
            END IF;
            waits := false;
            IF eager AND NOT (late IS NULL AND late_view IS NULL)
               AND NOT pg_try_advisory_xact_lock(idivm.lock_class(), '-2147483648'::integer) THEN
                late := NULL;
                late_view := NULL;
                RAISE lock_not_available;
            END IF;
            FOREACH relation IN ARRAY to_read LOOP
                late := relation;
                EXECUTE format('LOCK TABLE %s %s IN ACCESS SHARE MODE NOWAIT',
                               CASE WHEN relation <> ALL (whole) THEN 'ONLY' END, relation);
            END LOOP;
            FOREACH relation IN ARRAY beside LOOP
                late := relation;
                EXECUTE format('LOCK TABLE %s %s IN ROW EXCLUSIVE MODE NOWAIT',
                               CASE WHEN relation <> ALL (whole) THEN 'ONLY' END, relation);
            END LOOP;
            FOREACH relation IN ARRAY tables LOOP
                late := relation;
                EXECUTE format('LOCK TABLE %s %s IN %s MODE NOWAIT',
                               CASE WHEN relation <> ALL (whole) THEN 'ONLY' END, relation, mode);
            END LOOP;
            late := NULL;
            FOR view_id IN SELECT id FROM unnest(synchronous) AS id ORDER BY id LOOP
                IF in_order THEN
                    waits := true;
                    PERFORM idivm.lock_synchronous(view_id);
                ELSIF NOT pg_try_advisory_xact_lock(idivm.lock_class(), view_id) THEN
                    late_view := view_id;
                    RAISE lock_not_available;
                END IF;
            END LOOP;
            RETURN;
        EXCEPTION
            WHEN undefined_table OR invalid_schema_name THEN
                -- Another session renamed or moved a table after its name was read.
                late := NULL;
                late_view := NULL;
            WHEN lock_not_available THEN
                IF waits THEN
                    -- This was the session's own lock_timeout.
                    RAISE;
                END IF;
        END;
    END LOOP;
    IF eager THEN
        PERFORM idivm.lock_eager();
        -- All writers of eager views wait for this transaction now.
        late_at := clock_timestamp()
                   + least(nullif(patience, '0')::interval, current_setting('deadlock_timeout')::interval / 2);
    END IF;
    FOR request IN
        SELECT r AS name, 'ACCESS SHARE' AS wanted FROM unnest(roots_to_read) AS r
        UNION ALL SELECT r, 'ROW EXCLUSIVE' FROM unnest(roots_beside) AS r
        UNION ALL SELECT r, mode FROM unnest(roots) AS r
    LOOP
        IF eager THEN
            PERFORM idivm.lock_unqueued(request.name, request.wanted, late_at);
        ELSE
            EXECUTE format('LOCK TABLE %s IN %s MODE', request.name, request.wanted);
        END IF;
    END LOOP;
    PERFORM idivm.lock_synchronous(id) FROM (SELECT id FROM unnest(synchronous) AS id ORDER BY id) AS ordered;
END
$$;

-- Lock the tables of synchronous views for reading, and return the views that this transaction can refresh now. It
-- holds the locks of these views. A transaction that has locked one of the tables with TRUNCATE or DDL may wait for
-- such a lock, so waiting for that table would be a deadlock. The views of this table then stay as they are: the
-- change is in the log, and the other transaction refreshes the views when it gets their locks. This function never
-- waits in the lock queue, because the other transaction would detect the deadlock and fail.
CREATE OR REPLACE FUNCTION idivm.lock_readable(view_ids integer[]) RETURNS integer[]
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    patience interval := current_setting('lock_timeout')::interval;
    began timestamptz := clock_timestamp();
    busy regclass;
    blocked integer[];
BEGIN
    LOOP
        BEGIN
            FOR busy IN
                SELECT DISTINCT s.relation
                FROM idivm.view_sources vs
                JOIN idivm.sources s ON s.id = vs.source
                JOIN pg_class c ON c.oid = s.relation
                WHERE vs.view = ANY (view_ids) AND c.relkind IN ('r', 'p') AND has_table_privilege(c.oid, 'SELECT')
                  AND NOT EXISTS (SELECT FROM pg_locks l WHERE l.pid = pg_backend_pid() AND l.granted
                                  AND l.locktype = 'relation' AND l.relation = c.oid)
                ORDER BY 1
            LOOP
                EXECUTE format('LOCK TABLE %s IN ACCESS SHARE MODE NOWAIT', busy);
            END LOOP;
            RETURN view_ids;
        EXCEPTION
            WHEN undefined_table OR invalid_schema_name THEN
                -- Another session renamed or moved the table after its name was read.
                CONTINUE;
            WHEN lock_not_available THEN
                NULL;
        END;
        IF idivm.waits_for_this(busy) THEN
            blocked := ARRAY(
                SELECT id FROM unnest(view_ids) AS id
                WHERE EXISTS (SELECT FROM idivm.refresh_order(ARRAY[id]) AS below
                              JOIN idivm.view_sources vs ON vs.view = below
                              JOIN idivm.sources s ON s.id = vs.source
                              WHERE s.relation = busy));
            RAISE WARNING '% cannot show this change yet, because another transaction has locked % and waits for this one',
                (SELECT string_agg(coalesce(v.relation::text, v.name), ', ' ORDER BY v.id) FROM idivm.views v WHERE v.id = ANY (blocked)), busy
                USING HINT = 'The other transaction, or the next refresh, brings the change. No action is needed.';
            view_ids := ARRAY(SELECT id FROM unnest(view_ids) WITH ORDINALITY AS v (id, place)
                              WHERE id <> ALL (blocked) ORDER BY place);
        ELSIF patience > '0' AND clock_timestamp() > began + patience THEN
            RAISE EXCEPTION 'canceling statement due to lock timeout' USING ERRCODE = 'lock_not_available';
        ELSE
            PERFORM pg_sleep(0.01);
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION idivm.lock_readable(integer[]) IS
    'locks the tables of synchronous views for reading, and returns the views that can be refreshed without a deadlock';

-- Return which of these tables have writers that take the eager lock.
CREATE OR REPLACE FUNCTION idivm.written_in_turn(tables regclass[]) RETURNS regclass[]
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
    RETURN ARRAY(
        SELECT r FROM unnest(tables) AS r
        -- The owner of a table can create triggers with the same name.
        WHERE EXISTS (SELECT FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
                      WHERE t.tgrelid = r AND p.pronamespace = 'idivm'::regnamespace AND p.proname = 'statement_begins'
                        AND t.tgname ~ '^idivm_[0-9]+_begin$' AND t.tgenabled = 'A'
                        AND encode(t.tgargs, 'escape') <> E'{}\\000')
        ORDER BY r);

-- Protect the tables and synchronous views that a refresh reads from changes, until the end of the transaction. The
-- eager lock excludes the writers that take it; a table lock excludes the others.
CREATE OR REPLACE FUNCTION idivm.hold_sources(tables regclass[], synchronous integer[] DEFAULT '{}',
                                              to_read regclass[] DEFAULT '{}') RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    beside regclass[] := '{}';
    now regclass[];
    any_eager boolean := idivm.writers_take_turns();
BEGIN
    IF NOT any_eager AND cardinality(tables) = 1 AND synchronous = '{}' AND to_read = '{}' THEN
        -- There is no order of locks to mind, unless the table has partitions or children.
        IF NOT (SELECT c.relhassubclass FROM pg_class c WHERE c.oid = tables[1]) THEN
            EXECUTE format('LOCK TABLE %s IN SHARE MODE', tables[1]);
            RETURN;
        END IF;
    END IF;
    IF any_eager THEN
        beside := idivm.written_in_turn(tables);
    END IF;
    LOOP
        PERFORM idivm.hold_still(ARRAY(SELECT r FROM unnest(tables) AS r WHERE r <> ALL (beside) ORDER BY r), 'SHARE', synchronous,
                                 any_eager AND (beside <> '{}' OR synchronous <> '{}'), beside, to_read);
        EXIT WHEN beside = '{}';
        -- A mode may have changed before the tables were locked.
        now := idivm.written_in_turn(tables);
        EXIT WHEN beside <@ now;
        beside := now;
    END LOOP;
    IF EXISTS (SELECT FROM unnest(synchronous) AS id WHERE NOT pg_try_advisory_xact_lock(idivm.lock_class(), id)) THEN
        RAISE EXCEPTION 'the mode of these views was changed meanwhile' USING ERRCODE = 'serialization_failure';
    END IF;
END
$$;

-- Wait for the open writers of the tables below some views, and exclude new writers until the end of the
-- transaction. Writers lock tables before synchronous views, so this function does the same.
CREATE OR REPLACE FUNCTION idivm.hold_writers(view_ids integer[], readers boolean DEFAULT false) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM idivm.hold_still(
        ARRAY(SELECT DISTINCT s.relation
              FROM idivm.refresh_order(view_ids) AS id
              JOIN idivm.view_sources vs ON vs.view = id
              JOIN idivm.sources s ON s.id = vs.source
              JOIN pg_class c ON c.oid = s.relation
              WHERE NOT EXISTS (SELECT FROM idivm.views lower_view WHERE lower_view.state = s.relation)
                -- Users may drop a view although they may not lock its tables.
                AND (NOT readers OR pg_has_role(c.relowner, 'USAGE')
                     OR has_table_privilege(c.oid, idivm.locking_rights()))
              ORDER BY s.relation),
        CASE WHEN readers THEN 'ACCESS EXCLUSIVE' ELSE 'SHARE ROW EXCLUSIVE' END);
END
$$;

-- Lock the tables whose capture is about to change, before the first change: a transaction that held one of them while
-- it waits for another could be in a deadlock with a writer. These are the `wanted` tables, and the tables that only
-- these views read and that are not `kept`. Everybody locks them before idivm.sources.
CREATE OR REPLACE FUNCTION idivm.hold_captures(view_ids integer[], wanted regclass[] DEFAULT '{}', kept regclass[] DEFAULT '{}')
    RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    lost regclass[] := ARRAY(
        SELECT s.relation FROM idivm.sources s
        WHERE s.relation <> ALL (kept) AND idivm.owns(s.relation)
          AND EXISTS (SELECT FROM idivm.view_sources vs WHERE vs.source = s.id AND vs.view = ANY (view_ids))
          AND NOT EXISTS (SELECT FROM idivm.view_sources vs WHERE vs.source = s.id AND vs.view <> ALL (view_ids))
          AND NOT EXISTS (SELECT FROM idivm.views lower_view WHERE lower_view.state = s.relation));
    tables regclass[] := ARRAY(
        SELECT DISTINCT c.oid::regclass FROM unnest(wanted || lost) AS r JOIN pg_class c ON c.oid = r
        WHERE c.relkind IN ('r', 'p') AND (idivm.owns(c.oid) OR has_table_privilege(c.oid, idivm.locking_rights()))
        ORDER BY 1);
BEGIN
    IF tables <> '{}' THEN
        PERFORM idivm.hold_still(tables, CASE WHEN tables && lost THEN 'ACCESS EXCLUSIVE' ELSE 'SHARE ROW EXCLUSIVE' END);
    END IF;
END
$$;

-- Return whether the statement that calls a refresh may itself have changed tables of these views. Its rows are in
-- the table, but reach the log only when the statement ends. A refresh now would see these rows in joins, and the
-- next refresh would count them again. PostgreSQL does not show the open statements of a session, so the evidence
-- is a running trigger, or a calling statement whose text changes data.
CREATE OR REPLACE FUNCTION idivm.is_mid_statement(view_ids integer[], callers text) RETURNS boolean
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    query text;
BEGIN
    IF pg_current_xact_id_if_assigned() IS NULL THEN
        RETURN false;
    END IF;
    query := regexp_replace(current_query(), E'^(\\s|--[^\\n]*\\n|/\\*.*?\\*/)+', '');
    RETURN (pg_trigger_depth() > 0
             OR callers ~* E'"\\s*((insert|update|delete|merge)\\M|with\\M[^"]*\\m(insert|update|delete|merge)\\M)'
             -- The refresh may be one of several statements in one text.
             OR query ~* E'^(insert|update|delete|merge|copy|explain|with\\M.*\\m(insert|update|delete|merge))\\M'
                AND query !~ E';\\s*\\S')
        AND EXISTS (
            SELECT FROM pg_locks l
            WHERE l.pid = pg_backend_pid() AND l.granted AND l.locktype = 'relation' AND l.mode = 'RowExclusiveLock'
              AND l.relation IN (
                  SELECT m.member FROM idivm.view_sources vs
                  JOIN idivm.sources s ON s.id = vs.source
                  JOIN idivm.source_members m ON m.source = s.id
                  WHERE vs.view = ANY (view_ids)
                    AND NOT EXISTS (SELECT FROM idivm.views lower_view WHERE lower_view.state = s.relation)));
END
$$;

-- Fail if the statement that calls a refresh may itself have changed tables of these views. Callers first check
-- that their transaction has changed anything, so that few sessions load this function.
CREATE OR REPLACE FUNCTION idivm.refuse_mid_statement(view_ids integer[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    callers text;
BEGIN
    GET DIAGNOSTICS callers = PG_CONTEXT;
    IF idivm.is_mid_statement(view_ids, callers) THEN
        RAISE EXCEPTION 'a view cannot be refreshed by a statement that may have changed its tables'
            USING ERRCODE = 'object_in_use',
                  HINT = 'Refresh it after the statement; or create it WITH (maintain = eager), which shows '
                         'each statement''s changes, or WITH (maintain = on_commit).';
    END IF;
END
$$;

-- Protect the tables of a view from changes that no snapshot hides. TRUNCATE and ALTER TABLE replace a table's file
-- for every snapshot: a table that was emptied meanwhile looks empty, although the log does not say so yet. A table
-- is locked before its partitions and inheritance children, in the order of TRUNCATE, so that the two do not
-- deadlock. Such a TRUNCATE waits for synchronous views. A transaction that holds them does not wait in the lock queue
-- and fails when the other one waits for it.
CREATE OR REPLACE FUNCTION idivm.pin_tables(view_id integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    patience interval := nullif(current_setting('lock_timeout'), '0')::interval;
    began timestamptz := clock_timestamp();
    in_queue boolean := false;
    pinned record;
BEGIN
    LOOP
        BEGIN
            FOR pinned IN
                SELECT m.member::regclass AS name, c.oid, nullif(c.relfilenode, 0) AS file, c.relkind = 'p' AS is_parted
                FROM idivm.view_sources vs
                JOIN idivm.sources s ON s.id = vs.source
                JOIN idivm.source_members m ON m.source = vs.source
                JOIN pg_class c ON c.oid = m.member
                WHERE vs.view = view_id AND c.relkind IN ('r', 'm', 'p')
                ORDER BY m.member <> s.relation, c.relkind <> 'p', c.oid
            LOOP
                -- A dropped table has nothing to lock.
                IF pg_relation_filenode(pinned.oid) IS NOT NULL
                   OR pinned.is_parted AND to_regclass(pinned.name::text) IS NOT NULL THEN
                    EXECUTE format('LOCK TABLE ONLY %s IN ACCESS SHARE MODE %s', pinned.name,
                                   CASE WHEN NOT in_queue THEN 'NOWAIT' END);
                END IF;
                IF pg_relation_filenode(pinned.oid) IS DISTINCT FROM pinned.file THEN
                    RAISE EXCEPTION 'the table % was truncated or rewritten after this transaction took its snapshot',
                        pinned.name
                        USING ERRCODE = 'serialization_failure', HINT = 'Run the transaction again.';
                END IF;
            END LOOP;
            RETURN;
        EXCEPTION
            WHEN undefined_table THEN
                RAISE EXCEPTION 'a table was dropped after this transaction took its snapshot'
                    USING ERRCODE = 'serialization_failure', HINT = 'Run the transaction again.';
            WHEN lock_not_available THEN
                IF in_queue OR clock_timestamp() > began + patience THEN
                    RAISE;
                END IF;
        END;
        in_queue := NOT EXISTS (
            SELECT FROM pg_locks l
            WHERE l.pid = pg_backend_pid() AND l.locktype = 'advisory' AND l.classid = idivm.lock_class()::oid AND l.objsubid = 2
              AND l.objid IN (SELECT id::oid FROM idivm.synchronous_views() AS id UNION ALL SELECT (-2147483648)::integer::oid));
        CONTINUE WHEN in_queue;
        IF idivm.waits_for_this(pinned.name) THEN
            RAISE EXCEPTION 'another transaction has locked % and waits for this one', pinned.name
                USING ERRCODE = 'serialization_failure', HINT = 'Run the transaction again.';
        END IF;
        PERFORM pg_sleep(0.01);
    END LOOP;
END
$$;
COMMENT ON FUNCTION idivm.pin_tables(integer) IS
    'locks a view''s tables against what no snapshot hides, and fails if it has happened since this one';

-- Fail under REPEATABLE READ if another refresh has committed since the snapshot. Under READ COMMITTED the lock of
-- the view is enough.
CREATE OR REPLACE FUNCTION idivm.claim_watermark(view_id integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    PERFORM FROM idivm.watermarks w WHERE w.view = view_id FOR NO KEY UPDATE;
    PERFORM idivm.pin_tables(view_id);
END
$$;

-- Take the locks of a refresh of these views, except synchronous views. Return whether another session held any of
-- them or has made a view synchronous. Writers wait for the lock of a synchronous view, so this transaction must not
-- wait for another lock while it holds one. Only the holder of a view's lock changes its mode. So this function looks
-- at the modes before each wait and at the end; if a view is synchronous now, it releases all locks and takes those of
-- the other views again. A fixed snapshot does not show the new mode: there, the function releases all locks before it
-- waits, and then fails with 40001 if it needs several.
CREATE OR REPLACE FUNCTION idivm.lock_apart(view_ids integer[], synchronous integer[]) RETURNS boolean
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    apart integer[] := ARRAY(SELECT id FROM unnest(view_ids) AS id WHERE id <> ALL (synchronous) ORDER BY id);
    snapshot_is_fixed boolean := current_setting('transaction_isolation') IN ('repeatable read', 'serializable');
    view_id integer;
    waited boolean := false;
BEGIN
    IF pg_current_xact_id_if_assigned() IS NOT NULL THEN
        PERFORM idivm.refuse_mid_statement(apart);
    END IF;
    LOOP
        BEGIN
            FOREACH view_id IN ARRAY apart LOOP
                CONTINUE WHEN pg_try_advisory_xact_lock(idivm.lock_class(), view_id);
                IF snapshot_is_fixed OR EXISTS (SELECT FROM idivm.synchronous_views() AS id WHERE id = ANY (apart)) THEN
                    RAISE EXCEPTION USING ERRCODE = 'IV001', MESSAGE = 'these locks must not be held meanwhile';
                END IF;
                waited := pg_advisory_xact_lock(idivm.lock_class(), view_id) IS NOT NULL;
            END LOOP;
            IF NOT snapshot_is_fixed THEN
                IF EXISTS (SELECT FROM idivm.synchronous_views() AS id WHERE id = ANY (apart)) THEN
                    RAISE EXCEPTION USING ERRCODE = 'IV001', MESSAGE = 'these views are synchronous now';
                END IF;
            END IF;
            RETURN waited;
        EXCEPTION WHEN SQLSTATE 'IV001' THEN
            waited := true;
        END;
        IF snapshot_is_fixed THEN
            PERFORM pg_advisory_xact_lock(idivm.lock_class(), view_id);
            IF cardinality(apart) > 1 THEN
                RAISE EXCEPTION 'another session has refreshed or changed these views meanwhile'
                    USING ERRCODE = 'serialization_failure';
            END IF;
            RETURN true;
        END IF;
        apart := ARRAY(SELECT id FROM unnest(apart) AS id WHERE id NOT IN (SELECT idivm.synchronous_views()) ORDER BY id);
    END LOOP;
END
$$;

-- Wait for the sessions that use the logs of some sources before dropping the first log. A collection reads the
-- numbers of a log before its rows, and may look at other logs of a view.
CREATE OR REPLACE FUNCTION idivm.hold_logs(sources integer[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(idivm.lock_class(), -source)
    FROM (SELECT source FROM unnest(sources) AS source ORDER BY source) AS ordered;
END
$$;

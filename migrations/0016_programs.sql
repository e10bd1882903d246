-- What a refresh costs beside its program, once more. A program asks by itself what the logs have for
-- its view, with the names of the logs in it.

-- A constant for the planner, which may put it into plans: no plan outlives its session, and no
-- session its cluster. It is not for indexes, or whatever else is stored.
CREATE FUNCTION idivm.cluster_of_session() RETURNS bigint
    LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (SELECT system_identifier FROM pg_control_system());
END
$$;

-- As before, with the cluster as a constant.
CREATE OR REPLACE FUNCTION idivm.is_foreign(w idivm.watermarks) RETURNS boolean
    LANGUAGE sql STABLE
    RETURN coalesce(w.cluster <> idivm.cluster_of_session()
                    OR pg_snapshot_xmax((w.mark).snapshot) > pg_snapshot_xmax(pg_current_snapshot()), true);

-- Whether partitions or heirs of a captured table came or went.
CREATE FUNCTION idivm.members_differ(source integer) RETURNS boolean
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM idivm.sources s WHERE s.id = members_differ.source AND EXISTS (
            (SELECT d FROM idivm.descendants(s.relation) d
             EXCEPT SELECT m.member FROM idivm.source_members m WHERE m.source = s.id)
            UNION ALL
            (SELECT m.member FROM idivm.source_members m WHERE m.source = s.id
             EXCEPT SELECT d FROM idivm.descendants(s.relation) d)));
END
$$;

-- As before, in one statement: of each table, whether it is gone or capture is off, whether partitions
-- or heirs came or went, whether its key is gone, and whether a crash has emptied it.
CREATE OR REPLACE FUNCTION idivm.has_drifted(view_id integer) RETURNS boolean
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM idivm.view_sources vs
        JOIN idivm.sources s ON s.id = vs.source
        JOIN idivm.source_members m ON m.source = vs.source
        LEFT JOIN pg_class c ON c.oid = m.member
        WHERE vs.view = view_id AND (
            c.oid IS NOT NULL
            AND (SELECT count(*) FROM pg_trigger t
                 WHERE t.tgrelid = m.member AND t.tgenabled = 'A'
                   AND t.tgname IN ('idivm_' || m.source || '_insert', 'idivm_' || m.source || '_update',
                                    'idivm_' || m.source || '_delete', 'idivm_' || m.source || '_truncate')) <> 4
            OR (m.member <> s.relation OR c.relhassubclass) AND idivm.members_differ(s.id)
            OR m.member = s.relation AND s.keyed AND NOT EXISTS (
                SELECT FROM pg_index i
                WHERE i.indrelid = s.relation AND i.indisunique AND i.indisvalid
                  AND i.indpred IS NULL AND i.indexprs IS NULL
                  AND (SELECT count(*) FROM idivm.source_columns k WHERE k.source = s.id AND k.in_key) = i.indnkeyatts
                  AND NOT EXISTS (
                      SELECT FROM idivm.source_columns k
                      WHERE k.source = s.id AND k.in_key AND k.attnum <> ALL (i.indkey[:i.indnkeyatts - 1]::smallint[])))
            OR c.relpersistence = 'u' AND NOT EXISTS (SELECT FROM idivm.witnesses w WHERE w.view = view_id))
    ) OR EXISTS (
        SELECT FROM idivm.inlined_views i
        WHERE i.view = view_id AND i.signature IS DISTINCT FROM idivm.signature(i.relation)
    );
END
$$;

-- Programs ---------------------------------------------------------------------------------------

ALTER TABLE idivm.views ADD COLUMN asks boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN idivm.views.asks IS 'the refresh function looks at the logs by itself, as those of older versions do not';

-- Makes room for a refresh function that does, whatever form there is.
CREATE FUNCTION idivm.replace_program(view_id integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    program regprocedure;
BEGIN
    FOR program IN
        SELECT p.oid FROM pg_proc p
        WHERE p.pronamespace = 'idivm_state'::regnamespace AND p.proname = 'refresh_' || view_id
    LOOP
        EXECUTE format('DROP FUNCTION %s', program);
    END LOOP;
    UPDATE idivm.views v SET asks = true WHERE v.id = view_id AND NOT v.asks;
END
$$;

-- Keeps the tables of a view as the snapshot of this transaction has them. What TRUNCATE and ALTER
-- TABLE do to a file is seen through every snapshot: a table that was emptied since looks empty, while
-- the log does not say so yet.
CREATE FUNCTION idivm.pin_tables(view_id integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    one record;
BEGIN
    FOR one IN
        SELECT m.member::regclass AS name, c.oid, nullif(c.relfilenode, 0) AS file
        FROM idivm.view_sources vs
        JOIN idivm.source_members m ON m.source = vs.source
        JOIN pg_class c ON c.oid = m.member
        WHERE vs.view = view_id AND c.relkind IN ('r', 'm') ORDER BY c.oid
    LOOP
        -- Of a table that was dropped there is nothing to lock.
        IF pg_relation_filenode(one.oid) IS NOT NULL THEN
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
COMMENT ON FUNCTION idivm.pin_tables(integer) IS
    'locks a view''s tables against what no snapshot hides, and fails if it has happened since this one';

-- What a refresh under REPEATABLE READ makes sure of: it fails if another one has committed since the
-- snapshot. Under READ COMMITTED the view's lock is enough.
CREATE FUNCTION idivm.claim_watermark(view_id integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM FROM idivm.watermarks w WHERE w.view = view_id FOR NO KEY UPDATE;
    PERFORM idivm.pin_tables(view_id);
END
$$;

-- Runs a program from before programs looked at the logs by themselves, and looks for it.
CREATE FUNCTION idivm.run_older(view_id integer, since idivm.watermark, rebuild boolean,
                                OUT changed bigint, OUT kind "char", OUT marks jsonb)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v idivm.views;
BEGIN
    SELECT * INTO v FROM idivm.views one WHERE one.id = view_id;
    SELECT * INTO kind, marks FROM idivm.pending_of(view_id, since);
    IF rebuild OR idivm.has_drifted(view_id) THEN
        kind := 'R';
    END IF;
    IF kind IS NULL AND NOT v.moving THEN
        RETURN;
    END IF;
    PERFORM idivm.claim_watermark(view_id);
    IF kind = 'C' AND v.strategy = 'recompute' AND NOT v.moving AND idivm.pending_cancels(view_id) THEN
        changed := 0;
        RETURN;
    END IF;
    EXECUTE format('SELECT idivm_state.%I($1, $2)', 'refresh_' || view_id)
    INTO changed USING since, kind IS NOT DISTINCT FROM 'R';
END
$$;

-- As before, but the view's program looks at the logs, and says what they had and what it consumed of
-- this transaction's own statements. Its callers have pinned the search_path.
CREATE OR REPLACE FUNCTION idivm.bring_up(view_id integer, by_writer boolean) RETURNS bigint
    LANGUAGE plpgsql
AS $$
DECLARE
    v record;
    done record;
    snapshot pg_snapshot;
    started timestamptz := clock_timestamp();
    took double precision;
    outcome text;
BEGIN
    -- One that a DROP ... CASCADE took apart is left to idivm.sweep().
    -- Of a relation that is gone, has_table_privilege knows nothing.
    SELECT one.name, one.moving, one.asks, w.mark, w.refreshes,
           one.status = 'invalid' OR idivm.is_foreign(w) AS anew,
           has_table_privilege(one.state, 'SELECT') IS NULL AS lost
    INTO v
    FROM idivm.views one LEFT JOIN idivm.watermarks w ON w.view = one.id
    WHERE one.id = view_id AND one.status <> 'building'
      AND has_table_privilege(one.definition, 'SELECT') IS NOT NULL;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF v.lost THEN
        RAISE EXCEPTION 'the table that holds the content of % is gone', v.name
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'idivm doctor makes it again; DROP VIEW by idivm removes the view.';
    END IF;
    snapshot := pg_current_snapshot();
    IF v.asks THEN
        EXECUTE format('SELECT * FROM idivm_state.%I($1, $2)', 'refresh_' || view_id)
        INTO done USING v.mark, v.anew;
    ELSE
        SELECT * INTO done FROM idivm.run_older(view_id, v.mark, v.anew);
    END IF;
    IF done.kind IS NULL AND NOT v.moving THEN
        RETURN NULL;
    END IF;
    IF done.kind = 'R' THEN
        -- What a watermark from elsewhere calls pending leaves out one's own changes.
        done.marks := idivm.own_marks(view_id);
    END IF;
    took := extract(epoch FROM clock_timestamp() - started);
    UPDATE idivm.watermarks w
    SET mark = ROW(snapshot, pg_current_xact_id(), done.marks)::idivm.watermark, cluster = idivm.cluster_of_session(),
        refreshed_at = clock_timestamp(), refreshes = w.refreshes + 1, changed = done.changed,
        seconds = took, total_seconds = w.total_seconds + took
    WHERE w.view = view_id;
    IF done.kind = 'R' THEN
        PERFORM idivm.settle(view_id);
        -- What has drifted may drift back, and then this content would be wrong unnoticed.
        outcome := CASE WHEN idivm.has_drifted(view_id) THEN 'invalid' ELSE 'ready' END;
        UPDATE idivm.views one SET status = outcome WHERE one.id = view_id AND one.status <> outcome;
    END IF;
    IF by_writer AND v.refreshes % 256 = 255 AND current_setting('max_prepared_transactions') = '0' THEN
        INSERT INTO idivm.commits (views, logs)
        VALUES ('{}', ARRAY(SELECT vs.source FROM idivm.view_sources vs WHERE vs.view = view_id));
    END IF;
    RETURN done.changed;
END
$$;

-- Around programs --------------------------------------------------------------------------------
--
-- An expression costs a tenth of a statement, so what can be one is.

CREATE FUNCTION idivm.ascending(numbers integer[]) RETURNS integer[]
    LANGUAGE sql IMMUTABLE
    RETURN ARRAY(SELECT DISTINCT n FROM unnest(numbers) AS n ORDER BY n);

-- As before, but nothing is asked of the catalog under READ COMMITTED; as above, the search_path is
-- the caller's.
CREATE OR REPLACE FUNCTION idivm.bring_up_kept(view_ids integer[]) RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    view_id integer;
    in_order boolean := true;
    last integer := 0;
    locked boolean;
    applied bigint;
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
        -- Functions are looked up as they are now, rows as the snapshot has them.
        IF EXISTS (
            SELECT FROM unnest(view_ids) AS due (id)
            WHERE NOT EXISTS (SELECT FROM idivm.views v WHERE v.id = due.id AND v.status <> 'building')
              AND to_regproc(format('idivm_state.%I', 'refresh_' || due.id)) IS NOT NULL
        ) THEN
            RAISE EXCEPTION 'a view that is kept up to date was created after this transaction took its snapshot'
                USING ERRCODE = 'serialization_failure', HINT = 'Run the transaction again.';
        END IF;
    END IF;
    FOREACH view_id IN ARRAY view_ids LOOP
        applied := idivm.bring_up(view_id, true);
    END LOOP;
END
$$;

-- As before.
CREATE OR REPLACE FUNCTION idivm.statement_begins() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    remembered text := set_config(
        'idivm.open', (coalesce(nullif(current_setting('idivm.open', true), ''), '0')::integer + 1)::text, true);
BEGIN
    RETURN NULL;
END
$$;

-- As before.
CREATE OR REPLACE FUNCTION idivm.statement_ends() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    still_open integer := idivm.open_statements() - 1;
    remembered integer[] := idivm.remembered_views('idivm.due');
    due integer[] := tg_argv[0]::integer[];
    later integer[] := tg_argv[1]::integer[];
    queued integer[];
    set text;
    done boolean;
BEGIN
    set := set_config('idivm.open', greatest(still_open, 0)::text, true);
    IF remembered <> '{}' THEN
        due := idivm.in_order(remembered || due);
    END IF;
    IF later <> '{}' THEN
        later := idivm.remembered_views('idivm.later') || later;
        set := set_config('idivm.later', later::text, true);
    ELSE
        later := idivm.remembered_views('idivm.later');
    END IF;
    IF still_open > 0 THEN
        set := set_config('idivm.due', due::text, true);
        RETURN NULL;
    END IF;
    IF remembered <> '{}' THEN
        set := set_config('idivm.due', '', true);
    END IF;
    IF due <> '{}' THEN
        done := idivm.bring_up_kept(due) IS NULL;
    END IF;
    IF later <> '{}' THEN
        set := set_config('idivm.later', '', true);
        queued := idivm.remembered_views('idivm.queued');
        IF NOT later <@ queued THEN
            set := set_config('idivm.queued', (queued || later)::text, true);
            INSERT INTO idivm.commits (views) VALUES (later);
        END IF;
    END IF;
    RETURN NULL;
END
$$;

-- Modes: views that are brought up to date within the transactions that change their tables, after
-- each statement (eager) or once at the commit (on_commit).
--
-- A view is kept when it is eager or on_commit, or when such a view reads it. What makes the modes
-- right is one rule: who commits a change to a source of a kept view has taken the lock of that
-- view and holds it until the commit is done. Hence whoever holds the lock sees sources that stand
-- still, whatever snapshots its statements take, and needs no lock on the tables.

-- The first two conditions follow from the third: own changes are not older than their snapshot's
-- xmin either. They let an index find the few rows that matter, and the planner expect few.
CREATE OR REPLACE FUNCTION idivm.is_pending(change_xid xid8, change_seq bigint, since idivm.watermark, source integer)
    RETURNS boolean
    LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT change_xid >= pg_snapshot_xmin(since.snapshot)
           AND change_xid <= '18446744073709551615'::xid8
           AND CASE
                   WHEN change_xid = since.own_xid
                       THEN change_seq > coalesce((since.own_marks ->> source::text)::bigint, 0)
                   ELSE NOT pg_visible_in_snapshot(change_xid, since.snapshot)
               END;
END;

-- The kept views: those in one of these modes, and every maintained view that they read.
CREATE FUNCTION idivm.kept_views(modes text[] DEFAULT '{eager,on_commit}') RETURNS SETOF integer
    LANGUAGE sql STABLE
BEGIN ATOMIC
    WITH RECURSIVE kept(id) AS (
        SELECT v.id FROM idivm.views v WHERE v.maintain = ANY (modes) AND v.status <> 'building'
      UNION
        SELECT lower_view.id
        FROM kept k
        JOIN idivm.view_sources vs ON vs.view = k.id
        JOIN idivm.sources s ON s.id = vs.source
        JOIN idivm.views lower_view ON lower_view.state = s.relation
    )
    SELECT id FROM kept;
END;

-- What a change of a table makes due: the kept views that depend on it, lower ones first.
CREATE FUNCTION idivm.duties(OUT source integer, OUT eager integer[], OUT on_commit integer[]) RETURNS SETOF record
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
    ), due(source, view, depth, is_eager) AS (
        SELECT d.source, d.view, max(d.depth), d.view IN (SELECT idivm.kept_views('{eager}'))
        FROM depends d
        WHERE d.view IN (SELECT idivm.kept_views())
        GROUP BY d.source, d.view
    )
    SELECT d.source,
           coalesce(array_agg(d.view ORDER BY d.depth, d.view) FILTER (WHERE d.is_eager), '{}'),
           coalesce(array_agg(d.view ORDER BY d.depth, d.view) FILTER (WHERE NOT d.is_eager), '{}')
    FROM due d GROUP BY d.source;
END;

-- The same as before, with a plan that is made once a session: writers ask after every statement.
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
    );
END
$$;

-- A view in reach of this one, or itself, whose content changes while no table does.
CREATE FUNCTION idivm.moving_part(view_id integer) RETURNS text
    LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT v.name FROM idivm.refresh_order(ARRAY[view_id]) AS id
    JOIN idivm.views v USING (id) WHERE v.moving LIMIT 1;
END;

-- Bringing views up -----------------------------------------------------------------------------

-- What the log of a source of a kept view has for it: as a function of the source's own, so that
-- its plan is made once a session.
CREATE FUNCTION idivm.create_due(source integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    base text := 's' || source;
BEGIN
    EXECUTE format('CREATE INDEX IF NOT EXISTS %I ON idivm_log.%I (xid)', base || '_a_xid', base || '_a');
    EXECUTE format('CREATE INDEX IF NOT EXISTS %I ON idivm_log.%I (xid)', base || '_b_xid', base || '_b');
    EXECUTE format(
        'CREATE OR REPLACE FUNCTION idivm_log.%I(since idivm.watermark, OUT pending bigint, OUT truncated boolean, OUT own bigint)'
        ' LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS %L',
        base || '_due',
        format('BEGIN
    SELECT count(*), coalesce(bool_or(c.op = ''T''), false), max(c.seq) FILTER (WHERE c.xid = pg_current_xact_id())
    INTO pending, truncated, own
    FROM idivm_log.%I AS c WHERE idivm.is_pending(c.xid, c.seq, since, %s);
END', base, source));
END
$$;

-- Brings one view up to date and gives the rows changed, or NULL if there was nothing to do. The
-- caller has its lock, and sees its sources standing still. With `by_writer` the view is kept.
CREATE FUNCTION idivm.bring_up(view_id integer, by_writer boolean) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    moves boolean;
    invalid boolean;
    incremental boolean;
    kind "char";
    before idivm.watermarks;
    after idivm.watermark;
    started timestamptz := clock_timestamp();
    applied bigint := 0;
    took double precision;
    outcome text;
    source integer;
    log record;
    marks jsonb;
BEGIN
    -- One that a DROP ... CASCADE took apart is left to idivm.sweep().
    SELECT v.moving, v.status = 'invalid', v.strategy <> 'recompute' INTO moves, invalid, incremental
    FROM idivm.views v JOIN pg_class c ON c.oid = v.definition
    WHERE v.id = view_id AND v.status <> 'building';
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF by_writer THEN
        SELECT * INTO before FROM idivm.watermarks w WHERE w.view = view_id;
        IF invalid OR before.cluster <> idivm.cluster() OR idivm.has_drifted(view_id) THEN
            kind := 'R';
        END IF;
        marks := CASE WHEN (before.mark).own_xid = pg_current_xact_id() THEN (before.mark).own_marks END;
        FOR source IN SELECT vs.source FROM idivm.view_sources vs WHERE vs.view = view_id LOOP
            EXECUTE format('SELECT * FROM idivm_log.%I($1)', 's' || source || '_due') INTO log USING before.mark;
            IF log.pending > 0 THEN
                kind := CASE WHEN log.truncated OR kind = 'R' THEN 'R' ELSE 'C' END;
            END IF;
            IF log.own IS NOT NULL THEN
                marks := coalesce(marks, '{}') || jsonb_build_object(source, log.own);
            END IF;
        END LOOP;
    ELSE
        kind := idivm.pending_kind(view_id);
        marks := idivm.own_marks(view_id);
    END IF;
    IF kind IS NULL AND NOT moves THEN
        RETURN NULL;
    END IF;
    -- Fails under REPEATABLE READ when another refresh has committed since the snapshot.
    SELECT * INTO before FROM idivm.watermarks w WHERE w.view = view_id FOR NO KEY UPDATE;
    after := ROW(pg_current_snapshot(), pg_current_xact_id(), marks)::idivm.watermark;
    -- An incremental program finds out by itself whether the changes cancel.
    IF by_writer OR incremental OR moves OR kind = 'R' OR NOT idivm.pending_cancels(view_id) THEN
        EXECUTE format('SELECT idivm_state.%I($1, $2)', 'refresh_' || view_id)
        INTO applied
        USING before.mark, kind IS NOT DISTINCT FROM 'R';
    END IF;
    took := extract(epoch FROM clock_timestamp() - started);
    UPDATE idivm.watermarks w
    SET mark = after, cluster = CASE WHEN kind = 'R' THEN idivm.cluster() ELSE w.cluster END,
        refreshed_at = clock_timestamp(), refreshes = w.refreshes + 1, changed = applied,
        seconds = took, total_seconds = w.total_seconds + took
    WHERE w.view = view_id;
    IF kind = 'R' OR NOT by_writer THEN
        -- What has drifted may drift back, and then this content would be wrong unnoticed.
        outcome := CASE WHEN idivm.has_drifted(view_id) THEN 'invalid' ELSE 'ready' END;
        UPDATE idivm.views v SET status = outcome WHERE v.id = view_id AND v.status <> outcome;
    END IF;
    IF by_writer AND before.refreshes % 256 = 255 AND current_setting('max_prepared_transactions') = '0' THEN
        INSERT INTO idivm.commits (views, logs)
        VALUES ('{}', ARRAY(SELECT vs.source FROM idivm.view_sources vs WHERE vs.view = view_id));
    END IF;
    RETURN applied;
END
$$;

-- Locks kept views and brings them up, lower ones first.
CREATE FUNCTION idivm.bring_up_kept(view_ids integer[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    view_id integer;
BEGIN
    PERFORM pg_advisory_xact_lock(idivm.lock_class(), id)
    FROM (SELECT DISTINCT id FROM unnest(view_ids) AS id ORDER BY id) AS ordered;
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') AND EXISTS (
        -- Functions are looked up as they are now, rows as the snapshot has them.
        SELECT FROM unnest(view_ids) AS due (id)
        WHERE NOT EXISTS (SELECT FROM idivm.views v WHERE v.id = due.id AND v.status <> 'building')
          AND to_regproc(format('idivm_state.%I', 'refresh_' || due.id)) IS NOT NULL
    ) THEN
        RAISE EXCEPTION 'a view that is kept up to date was created after this transaction took its snapshot'
            USING ERRCODE = 'serialization_failure', HINT = 'Run the transaction again.';
    END IF;
    FOREACH view_id IN ARRAY view_ids LOOP
        PERFORM idivm.bring_up(view_id, true);
    END LOOP;
END
$$;

-- The views of a list with each once, lower ones first; those that the snapshot does not know stay,
-- for bring_up_kept to find out.
CREATE FUNCTION idivm.in_order(view_ids integer[]) RETURNS integer[]
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    due integer[] := ARRAY(SELECT DISTINCT id FROM unnest(view_ids) AS id);
BEGIN
    IF cardinality(due) > 1 THEN
        due := ARRAY(
            SELECT d.id FROM unnest(due) AS d (id)
            LEFT JOIN idivm.refresh_order(due) WITH ORDINALITY AS o (id, place) ON o.id = d.id
            ORDER BY o.place, d.id);
    END IF;
    RETURN due;
END
$$;

-- The triggers -----------------------------------------------------------------------------------
--
-- While a statement on a table of a kept view is under way, its rows may be in the table and not yet
-- in the log; and within it others run, of foreign keys and of users' triggers, or beside it in one
-- WITH. So statements are counted as they begin and end, and views are brought up when none is left
-- open. The count is a setting of the transaction, and goes back with a savepoint.
--
--   idivm.open     statements begun and not ended
--   idivm.due      views to bring up when the last of them ends
--   idivm.later    views to bring up at the commit, not queued yet
--   idivm.queued   views queued to be brought up at the commit

CREATE FUNCTION idivm.remembered_views(setting text) RETURNS integer[]
    LANGUAGE sql STABLE
    RETURN coalesce(nullif(current_setting(setting, true), ''), '{}')::integer[];

CREATE FUNCTION idivm.open_statements() RETURNS integer
    LANGUAGE sql STABLE
    RETURN coalesce(nullif(current_setting('idivm.open', true), ''), '0')::integer;

-- Runs as the writer, who need not be allowed to use this schema.
CREATE FUNCTION idivm.statement_begins() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM set_config('idivm.open',
                       (coalesce(nullif(current_setting('idivm.open', true), ''), '0')::integer + 1)::text, true);
    RETURN NULL;
END
$$;

-- Inserting a row queues the trigger below, which deletes it again.
CREATE UNLOGGED TABLE idivm.commits (
    views integer[] NOT NULL,
    logs integer[] NOT NULL DEFAULT '{}'
);
COMMENT ON TABLE idivm.commits IS 'for each open transaction, the views to bring up at its commit, and the logs to collect';

CREATE FUNCTION idivm.statement_ends() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    still_open integer := idivm.open_statements() - 1;
    remembered integer[] := idivm.remembered_views('idivm.due');
    due integer[] := tg_argv[0]::integer[];
    later integer[] := tg_argv[1]::integer[];
    queued integer[];
BEGIN
    PERFORM set_config('idivm.open', greatest(still_open, 0)::text, true);
    IF remembered <> '{}' THEN
        due := idivm.in_order(remembered || due);
    END IF;
    IF later <> '{}' THEN
        later := idivm.remembered_views('idivm.later') || later;
        PERFORM set_config('idivm.later', later::text, true);
    ELSE
        later := idivm.remembered_views('idivm.later');
    END IF;
    IF still_open > 0 THEN
        PERFORM set_config('idivm.due', due::text, true);
        RETURN NULL;
    END IF;
    IF remembered <> '{}' THEN
        PERFORM set_config('idivm.due', '', true);
    END IF;
    IF due <> '{}' THEN
        PERFORM idivm.bring_up_kept(due);
    END IF;
    IF later <> '{}' THEN
        PERFORM set_config('idivm.later', '', true);
        queued := idivm.remembered_views('idivm.queued');
        IF NOT later <@ queued THEN
            PERFORM set_config('idivm.queued', (queued || later)::text, true);
            INSERT INTO idivm.commits (views) VALUES (later);
        END IF;
    END IF;
    RETURN NULL;
END
$$;

CREATE FUNCTION idivm.commit_begins() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    due integer[] := idivm.in_order(idivm.remembered_views('idivm.queued') || new.views);
    log integer;
BEGIN
    -- What changes after this, by another trigger at the commit, is queued anew.
    PERFORM set_config('idivm.queued', '', true);
    DELETE FROM idivm.commits c WHERE c.ctid = new.ctid;
    IF idivm.open_statements() > 0 THEN
        -- SET CONSTRAINTS within a statement: its end is soon enough.
        PERFORM set_config('idivm.due', (idivm.remembered_views('idivm.due') || due)::text, true);
    ELSE
        PERFORM idivm.bring_up_kept(due);
    END IF;
    -- Where nobody refreshes, writers collect: now and then, and at the commit, as the emptied
    -- segment is locked until its end. One that may stay prepared for hours does not.
    FOREACH log IN ARRAY new.logs LOOP
        BEGIN
            PERFORM idivm.collect_source(log);
        EXCEPTION WHEN object_in_use OR lock_not_available THEN
            NULL;
        END;
    END LOOP;
    RETURN NULL;
END
$$;

CREATE CONSTRAINT TRIGGER commit_begins AFTER INSERT ON idivm.commits
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION idivm.commit_begins();
ALTER TABLE idivm.commits ENABLE ALWAYS TRIGGER commit_begins;

-- Gives the tables of kept views the triggers that their duties ask for, and takes them off others.
-- A table of which no duty has changed is not touched.
CREATE FUNCTION idivm.sync_modes() RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    one record;
    source integer;
BEGIN
    FOR source IN
        SELECT DISTINCT vs.source FROM idivm.view_sources vs
        WHERE vs.view IN (SELECT idivm.kept_views())
          AND to_regclass(format('idivm_log.%I', 's' || vs.source || '_a_xid')) IS NULL
        ORDER BY vs.source
    LOOP
        PERFORM idivm.create_due(source);
    END LOOP;
    -- Others pay nothing for an index.
    FOR one IN
        SELECT c.oid::regclass AS index FROM pg_class c
        WHERE c.relnamespace = 'idivm_log'::regnamespace AND c.relname ~ '^s[0-9]+_[ab]_xid$'
          AND substring(c.relname, '^s([0-9]+)')::integer NOT IN (
              SELECT vs.source FROM idivm.view_sources vs WHERE vs.view IN (SELECT idivm.kept_views()))
    LOOP
        EXECUTE format('DROP INDEX %s', one.index);
    END LOOP;
    FOR one IN
        WITH wanted AS (
            SELECT m.member::oid AS member, m.source, d.eager, d.on_commit
            FROM idivm.duties() d
            JOIN idivm.source_members m ON m.source = d.source
            JOIN pg_class c ON c.oid = m.member
        ), present AS (
            SELECT t.tgrelid AS member, substring(t.tgname, '^idivm_([0-9]+)_upkeep$')::integer AS source,
                   encode(t.tgargs, 'escape') AS arguments
            FROM pg_trigger t WHERE t.tgname ~ '^idivm_[0-9]+_upkeep$'
        )
        SELECT coalesce(w.member, p.member)::regclass AS member, coalesce(w.source, p.source) AS source,
               w.member IS NULL AS gone, w.eager, w.on_commit
        FROM wanted w FULL JOIN present p ON p.member = w.member AND p.source = w.source
        WHERE p.arguments IS DISTINCT FROM w.eager::text || E'\\000' || w.on_commit::text || E'\\000'
        ORDER BY 1, 2
    LOOP
        IF one.gone THEN
            EXECUTE format('DROP TRIGGER %I ON %s', 'idivm_' || one.source || '_upkeep', one.member);
            EXECUTE format('DROP TRIGGER IF EXISTS %I ON %s', 'idivm_' || one.source || '_begin', one.member);
        ELSE
            -- By its name the second fires after capture.
            EXECUTE format('CREATE OR REPLACE TRIGGER %I BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s'
                           ' FOR EACH STATEMENT EXECUTE FUNCTION idivm.statement_begins()',
                           'idivm_' || one.source || '_begin', one.member);
            EXECUTE format('CREATE OR REPLACE TRIGGER %I AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s'
                           ' FOR EACH STATEMENT EXECUTE FUNCTION idivm.statement_ends(%L, %L)',
                           'idivm_' || one.source || '_upkeep', one.member, one.eager, one.on_commit);
            EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %I', one.member, 'idivm_' || one.source || '_begin');
            EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %I', one.member, 'idivm_' || one.source || '_upkeep');
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION idivm.sync_modes() IS 'gives tables the triggers that the modes of their views ask for';

-- Waits for the open writers of the tables below some views, and keeps new ones out until the end of
-- the transaction. Writers take tables before the locks of kept views, and so must who does both.
CREATE FUNCTION idivm.hold_writers(view_ids integer[], readers boolean DEFAULT false) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    relation regclass;
BEGIN
    FOR relation IN
        SELECT DISTINCT s.relation
        FROM idivm.refresh_order(view_ids) AS id
        JOIN idivm.view_sources vs ON vs.view = id
        JOIN idivm.sources s ON s.id = vs.source
        JOIN pg_class c ON c.oid = s.relation
        WHERE NOT EXISTS (SELECT FROM idivm.views lower_view WHERE lower_view.state = s.relation)
        ORDER BY s.relation
    LOOP
        EXECUTE format('LOCK TABLE %s IN %s MODE', relation,
                       CASE WHEN readers THEN 'ACCESS EXCLUSIVE' ELSE 'SHARE ROW EXCLUSIVE' END);
    END LOOP;
END
$$;

-- Gives a view another mode from the end of this transaction on. Run it in READ COMMITTED, with the
-- view refreshed a moment ago: writers wait while it is brought up for the last time.
CREATE FUNCTION idivm.set_mode(view_id integer, mode text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    kept integer[] := ARRAY(SELECT idivm.kept_views());
    below integer[] := ARRAY(SELECT idivm.refresh_order(ARRAY[view_id]));
BEGIN
    -- In the order of everybody: views that are not kept, tables, views that are.
    PERFORM pg_advisory_xact_lock(idivm.lock_class(), id)
    FROM (SELECT id FROM unnest(below) AS id WHERE id <> ALL (kept) ORDER BY id) AS ordered;
    PERFORM idivm.hold_writers(ARRAY[view_id], mode = 'deferred');
    UPDATE idivm.views v SET maintain = mode WHERE v.id = view_id;
    PERFORM idivm.sync_modes();
    PERFORM idivm.start_keeping(view_id);
END
$$;

-- Brings up a view, and those below, whose writers are held.
CREATE FUNCTION idivm.start_keeping(view_id integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    below integer[] := ARRAY(SELECT idivm.refresh_order(ARRAY[view_id]));
    lower_view integer;
BEGIN
    PERFORM pg_advisory_xact_lock(idivm.lock_class(), id)
    FROM (SELECT id FROM unnest(below) AS id ORDER BY id) AS ordered;
    FOREACH lower_view IN ARRAY below LOOP
        PERFORM idivm.bring_up(lower_view, false);
    END LOOP;
    -- A transaction whose snapshot is older must fail when it comes to change these views, and it
    -- finds out by their watermarks.
    UPDATE idivm.watermarks w SET refreshed_at = clock_timestamp() WHERE w.view = ANY (below);
END
$$;

-- A view that goes takes its duties along, in whatever way it goes.
CREATE FUNCTION idivm.views_went() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM idivm.sync_modes();
    RETURN NULL;
END
$$;
CREATE TRIGGER views_went AFTER DELETE ON idivm.views
    FOR EACH STATEMENT EXECUTE FUNCTION idivm.views_went();

REVOKE EXECUTE ON FUNCTION idivm.bring_up(integer, boolean), idivm.bring_up_kept(integer[]),
    idivm.statement_begins(), idivm.statement_ends(), idivm.commit_begins() FROM PUBLIC;

-- Refreshes --------------------------------------------------------------------------------------

-- Whether one of these views is kept and yet behind: something happened that no trigger sees.
CREATE FUNCTION idivm.kept_are_behind(view_ids integer[]) RETURNS boolean
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT idivm.open_statements() = 0 AND EXISTS (
        SELECT FROM idivm.kept_views() AS id
        WHERE id = ANY (view_ids) AND idivm.pending_kind(id) IS NOT NULL)
$$;

-- Takes the locks of a refresh of these views; the transaction's snapshot is best taken afterwards.
-- Kept views have nothing pending in any snapshot, and their writers are not to wait for refreshes.
CREATE OR REPLACE FUNCTION idivm.lock_views(view_ids integer[]) RETURNS void
    LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$
    SELECT pg_advisory_xact_lock(idivm.lock_class(), id)
    FROM (SELECT id FROM idivm.refresh_order(view_ids) AS id
          WHERE id NOT IN (SELECT idivm.kept_views()) ORDER BY id) AS ordered
$$;

CREATE OR REPLACE FUNCTION idivm.refresh_views(view_ids integer[])
    RETURNS TABLE (view_id integer, changed bigint, seconds double precision)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    ordered integer[];
    kept integer[];
    behind boolean;
    snapshot_is_fixed boolean := current_setting('transaction_isolation') IN ('repeatable read', 'serializable');
    one_cut boolean := false;
    started timestamptz;
    relation regclass;
BEGIN
    PERFORM idivm.lock_views(view_ids);
    ordered := ARRAY(SELECT idivm.refresh_order(view_ids));
    kept := ARRAY(SELECT idivm.kept_views());
    IF snapshot_is_fixed THEN
        PERFORM idivm.refuse_recycled_log(ordered);
    END IF;
    behind := idivm.kept_are_behind(ordered);
    IF behind THEN
        -- What is mended below is to reach the kept views above.
        ordered := ARRAY(SELECT idivm.refresh_order(view_ids || kept));
    END IF;

    FOREACH view_id IN ARRAY ordered LOOP
        started := clock_timestamp();
        changed := 0;
        IF (behind OR view_id <> ALL (kept))
           AND (idivm.pending_kind(view_id) IS NOT NULL
                OR EXISTS (SELECT FROM idivm.views v WHERE v.id = view_id AND v.moving)) THEN
            IF NOT one_cut AND NOT snapshot_is_fixed THEN
                -- Each statement below would see a later state: hold the writers of all tables
                -- until this transaction ends, so that the group is one cut and no change is
                -- both in a state and still pending.
                FOR relation IN
                    SELECT DISTINCT s.relation
                    FROM idivm.view_sources vs
                    JOIN idivm.sources s ON s.id = vs.source
                    WHERE vs.view = ANY (ordered) AND vs.view <> ALL (kept)
                      AND NOT EXISTS (SELECT FROM idivm.views lower_view WHERE lower_view.state = s.relation)
                    ORDER BY s.relation
                LOOP
                    EXECUTE format('LOCK TABLE %s IN SHARE MODE', relation);
                END LOOP;
            END IF;
            IF NOT one_cut AND (behind OR NOT snapshot_is_fixed) THEN
                PERFORM pg_advisory_xact_lock(idivm.lock_class(), id)
                FROM (SELECT id FROM unnest(kept) AS id WHERE id = ANY (ordered) ORDER BY id) AS kept_ones;
            END IF;
            one_cut := true;
            changed := coalesce(idivm.bring_up(view_id, false), 0);
        END IF;
        seconds := extract(epoch FROM clock_timestamp() - started);
        RETURN NEXT;
    END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION idivm.sweep() RETURNS integer
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    view_id integer;
    swept integer := 0;
BEGIN
    FOR view_id IN
        SELECT v.id
        FROM idivm.refresh_order(ARRAY(SELECT id FROM idivm.views)) WITH ORDINALITY AS o (id, place)
        JOIN idivm.views v USING (id)
        WHERE v.status = 'building'
           OR NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = v.relation)
           OR NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = v.definition)
           OR NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = v.state)
        ORDER BY o.place DESC
    LOOP
        IF view_id IN (SELECT idivm.kept_views()) THEN
            PERFORM idivm.hold_writers(ARRAY[view_id], true);
        END IF;
        IF pg_try_advisory_xact_lock(idivm.lock_class(), view_id) THEN
            PERFORM idivm.forget(view_id);
            swept := swept + 1;
        END IF;
    END LOOP;
    RETURN swept;
END
$$;

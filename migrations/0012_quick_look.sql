-- What a refresh asks before and after its program, asked once.

-- As before, but what was consumed long ago, as most of a log may be, is told by one comparison; only
-- truncations and a transaction's own statements are looked for in all pending rows, while for the rest
-- the first such row is enough: `pending` is 0 or 1. And whether there is anything for a view is told by
-- a function that stops there.
CREATE OR REPLACE FUNCTION idivm.create_due(source integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    base text := 's' || source;
    pending text := format('FROM idivm_log.%I AS c
    WHERE c.xid >= (SELECT pg_snapshot_xmin((since).snapshot)) AND idivm.is_pending(c.xid, c.seq, since, %s)', base, source);
BEGIN
    EXECUTE format(
        'CREATE OR REPLACE FUNCTION idivm_log.%I(since idivm.watermark, OUT pending bigint, OUT truncated boolean, OUT own bigint)'
        ' LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS %L',
        base || '_due',
        format('BEGIN
    pending := (EXISTS (SELECT %1$s))::integer;
    truncated := pending > 0 AND EXISTS (SELECT %1$s AND c.op = ''T'');
    IF pending > 0 AND pg_current_xact_id_if_assigned() IS NOT NULL THEN
        own := (SELECT max(c.seq) %1$s AND c.xid = pg_current_xact_id_if_assigned());
    END IF;
END', pending));
    EXECUTE format(
        'CREATE OR REPLACE FUNCTION idivm_log.%I(since idivm.watermark) RETURNS boolean'
        ' LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS %L',
        base || '_any', format('BEGIN
    RETURN EXISTS (SELECT %s);
END', pending));
END
$$;

-- Whether there is anything to do for a view.
CREATE FUNCTION idivm.is_due(view_id integer) RETURNS boolean
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    w idivm.watermarks;
    source integer;
    due boolean;
BEGIN
    IF EXISTS (SELECT FROM idivm.views v WHERE v.id = view_id AND (v.moving OR v.status = 'invalid')) THEN
        RETURN true;
    END IF;
    SELECT * INTO w FROM idivm.watermarks WHERE view = view_id;
    FOR source IN SELECT vs.source FROM idivm.view_sources vs WHERE vs.view = view_id LOOP
        IF to_regproc(format('idivm_log.%I', 's' || source || '_any')) IS NULL THEN
            -- A source from before every one had it.
            PERFORM idivm.create_due(source);
        END IF;
        EXECUTE format('SELECT idivm_log.%I($1)', 's' || source || '_any') INTO due USING w.mark;
        IF due THEN
            RETURN true;
        END IF;
    END LOOP;
    RETURN idivm.is_foreign(w) OR idivm.has_drifted(view_id);
END
$$;

-- As before, and whether capture is off somewhere, or an unlogged table was emptied; in steps, so that
-- what is rarely asked costs nothing.
CREATE OR REPLACE FUNCTION idivm.has_drifted(view_id integer) RETURNS boolean
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF EXISTS (
        SELECT FROM idivm.inlined_views i
        WHERE i.view = view_id AND i.signature IS DISTINCT FROM idivm.signature(i.relation)
    ) THEN
        RETURN true;
    END IF;
    IF EXISTS (
        SELECT FROM idivm.view_sources vs
        JOIN idivm.sources s ON s.id = vs.source
        JOIN pg_class c ON c.oid = s.relation
        WHERE vs.view = view_id
          AND (c.relhassubclass
               OR EXISTS (SELECT FROM idivm.source_members m WHERE m.source = s.id AND m.member <> s.relation))
    ) THEN
        IF EXISTS (
            SELECT FROM idivm.view_sources vs
            JOIN idivm.sources s ON s.id = vs.source
            JOIN pg_class c ON c.oid = s.relation
            WHERE vs.view = view_id AND EXISTS (
                (SELECT d FROM idivm.descendants(s.relation) d
                 EXCEPT SELECT m.member FROM idivm.source_members m WHERE m.source = s.id)
                UNION ALL
                (SELECT m.member FROM idivm.source_members m WHERE m.source = s.id
                 EXCEPT SELECT d FROM idivm.descendants(s.relation) d))
        ) THEN
            RETURN true;
        END IF;
    END IF;
    IF EXISTS (
        SELECT FROM idivm.view_sources vs
        JOIN idivm.sources s ON s.id = vs.source
        WHERE vs.view = view_id AND s.keyed AND NOT EXISTS (
            SELECT FROM pg_index i
            WHERE i.indrelid = s.relation AND i.indisunique AND i.indisvalid
              AND i.indpred IS NULL AND i.indexprs IS NULL
              AND (SELECT count(*) FROM idivm.source_columns k WHERE k.source = s.id AND k.in_key) = i.indnkeyatts
              AND NOT EXISTS (
                  SELECT FROM idivm.source_columns k
                  WHERE k.source = s.id AND k.in_key AND k.attnum <> ALL (i.indkey[:i.indnkeyatts - 1]::smallint[])))
    ) THEN
        RETURN true;
    END IF;
    IF EXISTS (
        SELECT FROM idivm.view_sources vs
        JOIN idivm.source_members m ON m.source = vs.source
        JOIN pg_class c ON c.oid = m.member
        LEFT JOIN pg_trigger t ON t.tgrelid = m.member AND t.tgenabled = 'A'
             AND t.tgname IN ('idivm_' || m.source || '_insert', 'idivm_' || m.source || '_update',
                              'idivm_' || m.source || '_delete', 'idivm_' || m.source || '_truncate')
        WHERE vs.view = view_id GROUP BY m.source, m.member HAVING count(t.oid) <> 4
    ) THEN
        RETURN true;
    END IF;
    RETURN NOT EXISTS (SELECT FROM idivm.witnesses w WHERE w.view = view_id)
       AND EXISTS (
           SELECT FROM idivm.view_sources vs
           JOIN idivm.source_members m ON m.source = vs.source
           JOIN pg_class c ON c.oid = m.member
           WHERE vs.view = view_id AND c.relpersistence = 'u');
END
$$;

-- As before, but it looks for drifts once. Nothing drifts meanwhile that would make a change applied
-- to what was right wrong: the tables are locked or the snapshot is fixed.
CREATE OR REPLACE FUNCTION idivm.bring_up(view_id integer, by_writer boolean) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v record;
    kind "char";
    before idivm.watermarks;
    after idivm.watermark;
    started timestamptz := clock_timestamp();
    applied bigint := 0;
    took double precision;
    outcome text;
    marks jsonb;
BEGIN
    -- One that a DROP ... CASCADE took apart is left to idivm.sweep().
    SELECT one.name, one.status, one.strategy, one.moving, one.state INTO v
    FROM idivm.views one JOIN pg_class c ON c.oid = one.definition
    WHERE one.id = view_id AND one.status <> 'building';
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = v.state) THEN
        RAISE EXCEPTION 'the table that holds the content of % is gone', v.name
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'idivm doctor makes it again; DROP VIEW by idivm removes the view.';
    END IF;
    SELECT * INTO before FROM idivm.watermarks w WHERE w.view = view_id;
    SELECT * INTO kind, marks FROM idivm.pending_of(view_id, before.mark);
    IF kind = 'R' OR v.status = 'invalid' OR idivm.is_foreign(before) OR idivm.has_drifted(view_id) THEN
        kind := 'R';
        -- What a watermark from elsewhere calls pending leaves out one's own changes.
        marks := idivm.own_marks(view_id);
    END IF;
    IF kind IS NULL AND NOT v.moving THEN
        RETURN NULL;
    END IF;
    -- Fails under REPEATABLE READ when another refresh has committed since the snapshot.
    SELECT * INTO before FROM idivm.watermarks w WHERE w.view = view_id FOR NO KEY UPDATE;
    after := ROW(pg_current_snapshot(), pg_current_xact_id(), marks)::idivm.watermark;
    -- An incremental program finds out by itself whether the changes cancel.
    IF by_writer OR v.strategy <> 'recompute' OR v.moving OR kind = 'R' OR NOT idivm.pending_cancels(view_id) THEN
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
    IF kind = 'R' THEN
        PERFORM idivm.settle(view_id);
        -- What has drifted may drift back, and then this content would be wrong unnoticed.
        outcome := CASE WHEN idivm.has_drifted(view_id) THEN 'invalid' ELSE 'ready' END;
        UPDATE idivm.views one SET status = outcome WHERE one.id = view_id AND one.status <> outcome;
    END IF;
    IF by_writer AND before.refreshes % 256 = 255 AND current_setting('max_prepared_transactions') = '0' THEN
        INSERT INTO idivm.commits (views, logs)
        VALUES ('{}', ARRAY(SELECT vs.source FROM idivm.view_sources vs WHERE vs.view = view_id));
    END IF;
    RETURN applied;
END
$$;

-- As before, but whether to lock the tables is asked by `idivm.is_due`.
CREATE OR REPLACE FUNCTION idivm.refresh_views(view_ids integer[])
    RETURNS TABLE (view_id integer, changed bigint, seconds double precision)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    ordered integer[];
    kept integer[];
    behind boolean;
    snapshot_is_fixed boolean := current_setting('transaction_isolation') IN ('repeatable read', 'serializable');
    one_cut boolean;
    started timestamptz;
    relation regclass;
BEGIN
    PERFORM idivm.lock_views(view_ids);
    ordered := ARRAY(SELECT id FROM idivm.refresh_order(view_ids) AS id);
    kept := ARRAY(SELECT id FROM idivm.kept_views() AS id);
    IF snapshot_is_fixed THEN
        PERFORM idivm.refuse_recycled_log(ordered);
    END IF;
    behind := idivm.kept_are_behind(ordered);
    IF behind THEN
        -- What is mended below is to reach the kept views above.
        ordered := ARRAY(SELECT id FROM idivm.refresh_order(view_ids || kept) AS id);
    END IF;
    one_cut := snapshot_is_fixed AND NOT behind;

    FOREACH view_id IN ARRAY ordered LOOP
        started := clock_timestamp();
        changed := 0;
        IF behind OR view_id <> ALL (kept) THEN
            IF NOT one_cut AND idivm.is_due(view_id) THEN
                IF NOT snapshot_is_fixed THEN
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
                PERFORM pg_advisory_xact_lock(idivm.lock_class(), id)
                FROM (SELECT id FROM unnest(kept) AS id WHERE id = ANY (ordered) ORDER BY id) AS kept_ones;
                one_cut := true;
            END IF;
            IF one_cut THEN
                changed := coalesce(idivm.bring_up(view_id, false), 0);
            END IF;
        END IF;
        seconds := extract(epoch FROM clock_timestamp() - started);
        RETURN NEXT;
    END LOOP;
END
$$;

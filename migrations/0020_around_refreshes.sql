-- What a refresh asks before its programs: once, and where the answer mostly is.

-- As before, but that anything is pending is mostly told by the last pages: those before them hold what
-- was consumed long ago, and are read where the last ones say nothing.
CREATE OR REPLACE FUNCTION idivm.create_due(source integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    base text := 's' || source;
    pending text := format('c.xid >= (SELECT pg_snapshot_xmin((since).snapshot)) AND idivm.is_pending(c.xid, c.seq, since, %s)', source);
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
END', format('FROM idivm_log.%I AS c
    WHERE %s', base, pending)));
    EXECUTE format(
        'CREATE OR REPLACE FUNCTION idivm_log.%I(since idivm.watermark) RETURNS boolean'
        ' LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS %L',
        base || '_any', format('DECLARE
    late_a tid := idivm.last_page(%2$L);
    late_b tid := idivm.last_page(%3$L);
BEGIN
    RETURN EXISTS (SELECT FROM %2$s AS c WHERE c.ctid >= late_a AND %4$s)
        OR EXISTS (SELECT FROM %3$s AS c WHERE c.ctid >= late_b AND %4$s)
        OR EXISTS (SELECT FROM idivm_log.%1$I AS c WHERE %4$s);
END', base, format('idivm_log.%I', base || '_a'), format('idivm_log.%I', base || '_b'), pending));
END
$$;

-- Where the last page of a table begins.
CREATE FUNCTION idivm.last_page(relation regclass) RETURNS tid
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN format('(%s,0)', greatest(pg_relation_size(relation) / current_setting('block_size')::integer - 1, 0));
END
$$;
COMMENT ON FUNCTION idivm.last_page(regclass) IS 'the least position on the last page of a table';

-- As before, but longer logs are asked first, and empty ones not at all.
CREATE OR REPLACE FUNCTION idivm.is_due(view_id integer) RETURNS boolean
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    one record;
    log record;
    due boolean;
BEGIN
    SELECT v.moving OR v.status = 'invalid' AS anew, w AS watermark INTO one
    FROM idivm.views v LEFT JOIN idivm.watermarks w ON w.view = v.id WHERE v.id = view_id;
    IF one.anew THEN
        RETURN true;
    END IF;
    FOR log IN
        SELECT vs.source, pg_relation_size(to_regclass('idivm_log.s' || vs.source || '_a'))
                          + pg_relation_size(to_regclass('idivm_log.s' || vs.source || '_b')) AS bytes
        FROM idivm.view_sources vs WHERE vs.view = view_id ORDER BY bytes DESC NULLS FIRST
    LOOP
        EXIT WHEN log.bytes = 0;
        IF to_regproc(format('idivm_log.%I', 's' || log.source || '_any')) IS NULL THEN
            -- A source from before every one had it.
            PERFORM idivm.create_due(log.source);
        END IF;
        EXECUTE format('SELECT idivm_log.%I($1)', 's' || log.source || '_any')
        INTO due USING (one.watermark).mark;
        IF due THEN
            RETURN true;
        END IF;
    END LOOP;
    RETURN idivm.is_foreign(one.watermark) OR idivm.has_drifted(view_id);
END
$$;

-- Takes the locks of a refresh of these views but for those that are kept, and says whether any of them
-- was held by somebody else.
CREATE FUNCTION idivm.lock_apart(view_ids integer[], kept integer[]) RETURNS boolean
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    apart integer[] := ARRAY(SELECT id FROM unnest(view_ids) AS id WHERE id <> ALL (kept) ORDER BY id);
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
    FOREACH view_id IN ARRAY apart LOOP
        IF NOT pg_try_advisory_xact_lock(idivm.lock_class(), view_id) THEN
            waited := pg_advisory_xact_lock(idivm.lock_class(), view_id) IS NOT NULL;
        END IF;
    END LOOP;
    RETURN waited;
END
$$;

-- As before, by the function above.
CREATE OR REPLACE FUNCTION idivm.lock_views(view_ids integer[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    PERFORM idivm.lock_apart(ARRAY(SELECT id FROM idivm.refresh_order(view_ids) AS id),
                             ARRAY(SELECT id FROM idivm.kept_views() AS id));
END
$$;

-- As before, but what there is to refresh is asked again only after waiting for it, and whether kept
-- views are behind only if any is among them.
CREATE OR REPLACE FUNCTION idivm.refresh_views(view_ids integer[])
    RETURNS TABLE (view_id integer, changed bigint, seconds double precision)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    ordered integer[] := ARRAY(SELECT id FROM idivm.refresh_order(view_ids) AS id);
    kept integer[] := ARRAY(SELECT id FROM idivm.kept_views() AS id);
    behind boolean;
    snapshot_is_fixed boolean := current_setting('transaction_isolation') IN ('repeatable read', 'serializable');
    one_cut boolean;
    started timestamptz;
    relation regclass;
BEGIN
    IF idivm.lock_apart(ordered, kept) THEN
        ordered := ARRAY(SELECT id FROM idivm.refresh_order(view_ids) AS id);
        kept := ARRAY(SELECT id FROM idivm.kept_views() AS id);
    END IF;
    IF snapshot_is_fixed THEN
        PERFORM idivm.refuse_recycled_log(ordered);
    END IF;
    behind := kept && ordered AND idivm.kept_are_behind(ordered);
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

-- What serving and eager views ask for beside what refreshes do.

-- Whether to compute the states of a view anew takes less time than so many accesses. Before a large
-- diff was measured, an access is taken for a row that is read: only applying such a diff teaches
-- what it costs, while a view that is computed anew in doubt meets an even larger one afterwards.
CREATE FUNCTION idivm.is_cheaper_anew(view_id integer, accesses double precision) RETURNS boolean
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    known idivm.costs;
BEGIN
    SELECT * INTO known FROM idivm.costs c WHERE c.view = view_id;
    RETURN accesses * coalesce(known.access_seconds, known.row_seconds, 1)
         > idivm.rows_to_read(view_id) * coalesce(known.row_seconds, known.access_seconds / 4, 1);
END
$$;

-- Remembers what a refresh took: one of so many accesses or, without them, one that computed anew.
-- Each of the latter makes accesses look cheaper, so that what one slow refresh said of them does not
-- stand for ever.
CREATE FUNCTION idivm.note_cost(view_id integer, accesses double precision, begun timestamptz) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    seconds double precision := extract(epoch FROM clock_timestamp() - begun);
    by_access double precision := seconds / accesses;
    by_row double precision;
BEGIN
    IF accesses IS NULL THEN
        by_row := seconds / nullif(idivm.rows_to_read(view_id), 0);
        -- A few rows tell nothing but what a statement costs.
        IF by_row IS NULL OR seconds < 0.01 THEN
            RETURN;
        END IF;
    END IF;
    INSERT INTO idivm.costs AS c VALUES (view_id, by_access, by_row)
    ON CONFLICT (view) DO UPDATE
    SET access_seconds = coalesce((c.access_seconds + excluded.access_seconds) / 2, excluded.access_seconds,
                                  0.9 * c.access_seconds),
        row_seconds = coalesce((c.row_seconds + excluded.row_seconds) / 2, excluded.row_seconds, c.row_seconds);
END
$$;

-- Whether the statement that calls a refresh may itself have changed these views' tables. Rows that
-- it has changed are in the table and not yet in the log, where they come at its end: a refresh now
-- would meet them in the joins, and the next one count them once more. PostgreSQL does not say what
-- statements are open, so the signs are: a trigger; a caller whose text is that of a change.
CREATE FUNCTION idivm.is_mid_statement(view_ids integer[], callers text) RETURNS boolean
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
             -- Of several statements in one text the refresh may be one.
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

CREATE OR REPLACE FUNCTION idivm.lock_views(view_ids integer[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    apart integer[] := ARRAY(SELECT id FROM idivm.refresh_order(view_ids) AS id
                             WHERE id NOT IN (SELECT kept FROM idivm.kept_views() AS kept) ORDER BY id);
    callers text;
BEGIN
    GET DIAGNOSTICS callers = PG_CONTEXT;
    IF idivm.is_mid_statement(apart, callers) THEN
        RAISE EXCEPTION 'a view cannot be refreshed by a statement that may have changed its tables'
            USING ERRCODE = 'object_in_use',
                  HINT = 'Refresh it after the statement; or create it WITH (maintain = eager), which shows '
                         'each statement''s changes, or WITH (maintain = on_commit).';
    END IF;
    PERFORM pg_advisory_xact_lock(idivm.lock_class(), id) FROM unnest(apart) AS id;
END
$$;

-- What the triggers around a statement and the head of every program do, in less time.

-- As before, but every name says its schema, so that nothing has to be set and set back: the writer
-- need not be allowed to use this schema.
CREATE OR REPLACE FUNCTION idivm.statement_begins() RETURNS trigger
    LANGUAGE plpgsql
AS $$
DECLARE
    open pg_catalog.text := pg_catalog.current_setting('idivm.open', true);
    remembered pg_catalog.text := pg_catalog.set_config(
        'idivm.open',
        CASE WHEN pg_catalog.length(open) OPERATOR(pg_catalog.>) 0
             THEN (open::pg_catalog.int4 OPERATOR(pg_catalog.+) 1)::pg_catalog.text ELSE '1' END,
        true);
BEGIN
    RETURN NULL;
END
$$;
ALTER FUNCTION idivm.statement_begins() RESET search_path;

-- As before, but most of it is in a function that has a form in C.
CREATE OR REPLACE FUNCTION idivm.statement_ends() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    done boolean := idivm.end_statement(tg_argv[0], tg_argv[1]) IS NULL;
BEGIN
    RETURN NULL;
END
$$;

-- The views that are kept with the statement, and those that are kept with the transaction, are
-- brought up once all statements that are open have ended, as the triggers of one may be among what
-- another does.
CREATE FUNCTION idivm.end_statement_in_full(due integer[], later integer[]) RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    still_open integer := idivm.open_statements() - 1;
    remembered integer[] := idivm.remembered_views('idivm.due');
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
        RETURN;
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
END
$$;
COMMENT ON FUNCTION idivm.end_statement_in_full(integer[], integer[]) IS
    'brings up the views that are kept with a statement, or notes that they are due';
REVOKE EXECUTE ON FUNCTION idivm.end_statement_in_full(integer[], integer[]) FROM PUBLIC;

-- As before, with two functions more.
CREATE OR REPLACE PROCEDURE idivm.plain_upkeep()
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $plain$
BEGIN
    CREATE OR REPLACE FUNCTION idivm.has_drifted(view_id integer) RETURNS boolean
        LANGUAGE sql
        RETURN idivm.looks_drifted(view_id);
    CREATE OR REPLACE FUNCTION idivm.run_program(view_id integer, since idivm.watermark, rebuild boolean,
                                                 OUT changed bigint, OUT kind "char", OUT marks jsonb)
        LANGUAGE plpgsql
    AS $$
    BEGIN
        EXECUTE pg_catalog.format('SELECT * FROM idivm_state.%I($1, $2)', 'refresh_' || view_id)
        INTO changed, kind, marks USING since, rebuild;
    END
    $$;
    CREATE OR REPLACE FUNCTION idivm.has_entries(one regclass, other regclass) RETURNS boolean
        LANGUAGE sql
        RETURN pg_catalog.pg_relation_size(one) > 0 OR pg_catalog.pg_relation_size(other) > 0;
    CREATE OR REPLACE FUNCTION idivm.end_statement(due text, later text) RETURNS void
        LANGUAGE sql
        RETURN idivm.end_statement_in_full(due::integer[], later::integer[]);
    COMMENT ON FUNCTION idivm.has_drifted(integer) IS
        'whether what a view reads is no longer what it was planned for';
    COMMENT ON FUNCTION idivm.run_program(integer, idivm.watermark, boolean) IS
        'calls the refresh function of a view';
    COMMENT ON FUNCTION idivm.has_entries(regclass, regclass) IS
        'whether there is anything in one of the two segments of a log';
    COMMENT ON FUNCTION idivm.end_statement(text, text) IS
        'end_statement_in_full, called by the triggers of captured tables';
    REVOKE EXECUTE ON FUNCTION idivm.run_program(integer, idivm.watermark, boolean),
        idivm.end_statement(text, text) FROM PUBLIC;
END
$plain$;
CALL idivm.plain_upkeep();

-- Around a refresh -------------------------------------------------------------------------------

-- Locks the views of a refresh that no writer keeps up to date, in an order that all have in common.
CREATE FUNCTION idivm.lock_apart(view_ids integer[], kept integer[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    apart integer[] := view_ids;
    view_id integer;
    callers text;
    locked boolean;
BEGIN
    IF kept <> '{}' OR cardinality(view_ids) > 1 THEN
        apart := ARRAY(SELECT id FROM unnest(view_ids) AS id WHERE id <> ALL (kept) ORDER BY id);
    END IF;
    GET DIAGNOSTICS callers = PG_CONTEXT;
    IF idivm.is_mid_statement(apart, callers) THEN
        RAISE EXCEPTION 'a view cannot be refreshed by a statement that may have changed its tables'
            USING ERRCODE = 'object_in_use',
                  HINT = 'Refresh it after the statement; or create it WITH (maintain = eager), which shows '
                         'each statement''s changes, or WITH (maintain = on_commit).';
    END IF;
    FOREACH view_id IN ARRAY apart LOOP
        locked := pg_advisory_xact_lock(idivm.lock_class(), view_id) IS NOT NULL;
    END LOOP;
END
$$;
REVOKE EXECUTE ON FUNCTION idivm.lock_apart(integer[], integer[]) FROM PUBLIC;

-- As before.
CREATE OR REPLACE FUNCTION idivm.lock_views(view_ids integer[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    PERFORM idivm.lock_apart(ARRAY(SELECT id FROM idivm.refresh_order(view_ids) AS id),
                             ARRAY(SELECT id FROM idivm.kept_views() AS id));
END
$$;

-- As before, but which views are concerned is asked once: those that are locked are those that are
-- refreshed.
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
    done boolean;
BEGIN
    done := idivm.lock_apart(ordered, kept) IS NULL;
    IF snapshot_is_fixed THEN
        PERFORM idivm.refuse_recycled_log(ordered);
    END IF;
    behind := kept <> '{}' AND idivm.kept_are_behind(ordered);
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
                IF kept <> '{}' THEN
                    PERFORM pg_advisory_xact_lock(idivm.lock_class(), id)
                    FROM (SELECT id FROM unnest(kept) AS id WHERE id = ANY (ordered) ORDER BY id) AS kept_ones;
                END IF;
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

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

-- Create and change maintained views in SQL, from any client and inside a transaction.
--
-- SQL cannot plan a view: the orchestrator does. Until then the view is an ordinary view of its query, with a row
-- in idivm.unplanned_views. Each read computes the query, so the content is correct in every mode, writes cost
-- nothing and cannot fail, and PostgreSQL gives readers and the owner the rights as for any view. An orchestrator
-- then replaces the query by the stored content under the same name (orchestrator/runtime/unplanned.py).
--
-- All functions run with the rights of their caller. The argument `path` is the caller's search_path. It resolves
-- the names in a query; all other names are resolved under the pinned path.

-- Return the options of a view, with a pattern for the values of each (orchestrator/frontend/options.py).
CREATE OR REPLACE FUNCTION idivm.option_patterns() RETURNS TABLE (name text, pattern text)
    LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    VALUES
        ('maintain', '^(deferred|eager|on_commit|on_read)$'),
        ('strategy', '^(auto|id|tuple|recursive|viewtree|skew|recompute)$'),
        ('cache', '^(auto|on|off)$'),
        ('minimise', '^(on|off)$'),
        ('create_indexes', '^(on|off)$'),
        ('updatable', ''),
        ('staleness', '^\d+(\.\d+)? ?(ms|s|min|h|days?)$'),
        ('schedule', idivm.schedule_pattern()),
        ('refresh_group', ''),
        ('gate', ''),
        ('feed', '^(on|off)$'),
        ('feed_keep', '^\d+(\.\d+)? ?(ms|s|min|h|days?)$'),
        ('feed_hold', '^\d+(\.\d+)? ?(ms|s|min|h|days?)$'),
        ('log_limit', '^\d+ ?(kb|mb|gb|tb)$'),
        ('on_log_limit', '^(warn|refresh|rebuild)$'),
        ('representation', '^(listing|factorized)$'),
        ('inputs', ''),
        ('ranked', ''),
        ('relation', '^(view|table)$'),
        ('variable_order', ''),
        ('epsilon', ''),
        ('partition', '^(single|double)$'),
        ('static', ''),
        ('append_only', ''),
        ('factorizable', ''),
        ('initialise', '^(postgresql|spark)$'),
        ('on_drop', '^(note|restore)$'),
        ('on_error', '^(continue|raise)$'),
        ('shared', '^(auto|off)$'),
        ('common_join', '^(on|off)$');
END;
COMMENT ON FUNCTION idivm.option_patterns() IS 'the options of maintained views, with a pattern of their values';

-- Return the options as idivm.views stores them, in lower case and checked, without NULL values.
CREATE OR REPLACE FUNCTION idivm.checked_options(options jsonb) RETURNS jsonb
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    given record;
    refused record;
    checked jsonb := '{}';
BEGIN
    FOR given IN
        SELECT o.key, o.value, p.name, p.pattern
        FROM jsonb_each_text(options) AS o LEFT JOIN idivm.option_patterns() AS p ON p.name = o.key
        WHERE o.value IS NOT NULL
    LOOP
        IF given.name IS NULL THEN
            RAISE invalid_parameter_value USING
                MESSAGE = format('There is no option %L; a maintained view takes %s.', given.key,
                                 (SELECT string_agg(p.name, ', ') FROM idivm.option_patterns() AS p));
        ELSIF lower(given.value) !~ given.pattern THEN
            RAISE invalid_parameter_value USING
                MESSAGE = format('%s = %s is not available; %s', given.key, given.value, CASE
                    WHEN given.key IN ('staleness', 'feed_keep', 'feed_hold') THEN 'write a number with ms, s, min, h or days, as in 500ms.'
                    WHEN given.key = 'schedule' THEN 'write an interval, as in 10 s or 5 min, or five fields as cron has them, as in 0 3 * * *.'
                    WHEN given.key = 'log_limit' THEN 'write a whole number with kB, MB, GB or TB, as in 500MB.'
                    ELSE 'it can be ' || replace(trim(given.pattern, '^()$'), '|', ' or ') || '.' END);
        END IF;
        checked := checked || jsonb_build_object(
            given.key, CASE given.pattern WHEN '' THEN given.value ELSE lower(given.value) END);
    END LOOP;
    IF checked ->> 'maintain' = 'on_read' THEN
        SELECT o.name, o.why INTO refused
        FROM (VALUES (checked ->> 'feed' = 'on', 'feed = on', 'show changes before a refresh adds them to the feed'),
                     (checked ->> 'relation' = 'table', 'relation = table', 'show changes that no refresh has written to the table yet'),
                     (checked ->> 'append_only' <> '', 'append_only', 'show pending updates and deletes too'),
                     (checked ->> 'inputs' <> '', 'inputs', 'merge pending changes with rows that are stored'),
                     (checked ->> 'ranked' <> '', 'ranked', 'merge pending changes with rows that are stored')) AS o (given, name, why)
        WHERE o.given LIMIT 1;
        IF FOUND THEN
            RAISE invalid_parameter_value USING
                MESSAGE = format('%s is not available with maintain = on_read, whose reads %s', refused.name, refused.why),
                HINT = 'Choose another mode.';
        END IF;
    END IF;
    PERFORM idivm.check_timing(checked);
    RETURN checked;
END
$$;
COMMENT ON FUNCTION idivm.checked_options(jsonb) IS 'checks the options of a view; an error names the wrong option';

-- Return the session's values of the settings that a result may depend on (orchestrator/planning/view.py).
CREATE OR REPLACE FUNCTION idivm.session_settings() RETURNS jsonb
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT jsonb_object_agg(s.name, s.setting) FROM pg_settings s
    WHERE s.name IN ('DateStyle', 'IntervalStyle', 'TimeZone', 'bytea_output', 'default_text_search_config',
                     'lc_monetary', 'lc_numeric', 'lc_time', 'xmlbinary')
$$;

-- Return a view and the plain views that it reads directly or through other plain views.
CREATE OR REPLACE FUNCTION idivm.relations_below(view regclass) RETURNS SETOF oid
    LANGUAGE sql STABLE ROWS 3 SET search_path = pg_catalog, pg_temp SET work_mem = '64kB'
AS $$
    WITH RECURSIVE below(relation) AS (
        SELECT view::oid
      UNION
        SELECT c.oid
        FROM below b
        JOIN pg_rewrite r ON r.ev_class = b.relation
        JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid AND d.refclassid = 'pg_class'::regclass
        JOIN pg_class c ON c.oid = d.refobjid AND c.relkind IN ('v', 'r')
    )
    SELECT b.relation FROM below b
$$;
COMMENT ON FUNCTION idivm.relations_below(regclass) IS 'a view and the views and tables that it reads, directly or through views';

-- Return a volatile function that a view calls directly or through plain views. pg_depend does not contain calls
-- of built-in functions, so the function searches the stored query for the OIDs of functions.
CREATE OR REPLACE FUNCTION idivm.volatile_call(view regclass) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT p.proname || '()'
    FROM idivm.relations_below(view) AS below
    -- LATERAL keeps PostgreSQL from reading the rules of all other views.
    CROSS JOIN LATERAL (SELECT r.ev_action FROM pg_rewrite r WHERE r.ev_class = below OFFSET 0) AS r
    CROSS JOIN LATERAL regexp_matches(r.ev_action::text, ':(?:funcid|opfuncid|aggfnoid|winfnoid) (\d+)', 'g') AS called (number)
    JOIN pg_proc p ON p.oid = called.number[1]::oid AND p.provolatile = 'v'
    ORDER BY p.proname LIMIT 1
$$;
COMMENT ON FUNCTION idivm.volatile_call(regclass) IS 'a volatile function that a view calls, or NULL';

-- Return the options of a view in the form that CREATE OR REPLACE VIEW must repeat, such as security_barrier.
CREATE OR REPLACE FUNCTION idivm.options_clause(relation regclass) RETURNS text
    LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT coalesce(' WITH (' || string_agg(format('%I = %L', o.option_name, o.option_value), ', ') || ')', '')
    FROM pg_class c CROSS JOIN LATERAL pg_options_to_table(c.reloptions) AS o
    WHERE c.oid = relation;
END;
COMMENT ON FUNCTION idivm.options_clause(regclass) IS 'the options of a view, in the form that CREATE OR REPLACE VIEW must repeat';

-- Turn a relation into an ordinary view of a query that refuses writes like a maintained view. With the
-- parentheses, several statements by mistake are a syntax error; in any case they run with the rights of the caller.
-- `of_user` is what messages call it, if not by its own name.
CREATE OR REPLACE FUNCTION idivm.show_query(relation text, columns text[], query text, path text, replacing boolean, of_user text DEFAULT NULL)
    RETURNS regclass
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    statement text := format(
        E'CREATE %sVIEW %s%s%s AS (\n%s\n)', CASE WHEN replacing THEN 'OR REPLACE ' END, relation,
        (SELECT ' (' || string_agg(quote_ident(c.name), ', ' ORDER BY c.place) || ')'
         FROM unnest(columns) WITH ORDINALITY AS c (name, place)),
        CASE WHEN replacing THEN idivm.options_clause(relation::regclass) END,
        rtrim(query, E'; \t\r\n'));
    view regclass;
    called text;
    stream text;
BEGIN
    PERFORM set_config('search_path', path, true);
    IF pg_my_temp_schema() = 0 THEN
        EXECUTE statement;
    ELSE
        BEGIN
            EXECUTE statement;
        EXCEPTION WHEN invalid_table_definition THEN
            IF sqlerrm NOT LIKE '%temporary%' THEN
                RAISE;
            END IF;
            RAISE feature_not_supported USING
                MESSAGE = format('%s reads a temporary table, which no other session can see', coalesce(of_user, relation)),
                HINT = 'Make the table a permanent one.';
        END;
    END IF;
    PERFORM set_config('search_path', 'pg_catalog, pg_temp', true);
    view := relation::regclass;
    IF idivm.has_streams() THEN
        stream := (SELECT min(below::regclass::text) FROM idivm.relations_below(view) AS below WHERE idivm.lacks_rows(below));
    END IF;
    IF stream IS NOT NULL THEN
        RAISE feature_not_supported USING
            MESSAGE = format('%s reads the stream %s, whose rows are in files, so that SQL alone cannot create it',
                             coalesce(of_user, relation), stream),
            HINT = 'Create it by idivm sql or in Python, which read the files.';
    END IF;
    called := idivm.volatile_call(view);
    IF called IS NOT NULL THEN
        RAISE feature_not_supported USING
            MESSAGE = format('the query of %s calls %s, whose result changes with every call, so that no stored content can be right',
                             coalesce(of_user, relation), called),
            HINT = 'Leave it out, or compute it when the view is read. A function of yours whose result depends on its'
                   ' arguments alone can be declared: ALTER FUNCTION ... IMMUTABLE.';
    END IF;
    EXECUTE format('CREATE OR REPLACE TRIGGER idivm_maintained INSTEAD OF INSERT OR UPDATE OR DELETE ON %s'
                   ' FOR EACH ROW EXECUTE FUNCTION idivm.refuse_write()', view);
    RETURN view;
END
$$;
COMMENT ON FUNCTION idivm.show_query(text, text[], text, text, boolean, text) IS
    'turns a relation into an ordinary view of a query, until an orchestrator plans it';

-- Return the full name of a relation that a caller with this search_path creates.
CREATE OR REPLACE FUNCTION idivm.name_to_create(name text, path text) RETURNS text
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    parts text[] := parse_ident(name);
BEGIN
    IF cardinality(parts) = 1 THEN
        PERFORM set_config('search_path', path, true);
        parts := ARRAY[pg_catalog.current_schema()::pg_catalog.text, parts[1]];
        PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    END IF;
    IF cardinality(parts) > 2 OR parts[1] IS NULL THEN
        RAISE invalid_schema_name USING
            MESSAGE = format('no schema to create %s in: write schema.name', name);
    ELSIF parts[1] IN ('idivm', 'idivm_def', 'idivm_feed', 'idivm_load', 'idivm_log', 'idivm_state') THEN
        RAISE invalid_schema_name USING
            MESSAGE = format('the schema %s is idivm''s own; create %s in another one', parts[1], parts[2]);
    END IF;
    RETURN format('%I.%I', parts[1], parts[2]);
END
$$;
COMMENT ON FUNCTION idivm.name_to_create(text, text) IS 'the full name of a relation that a caller with a search_path creates';

CREATE OR REPLACE FUNCTION idivm.create_view(
    name text, query text, maintain text DEFAULT NULL, strategy text DEFAULT NULL, staleness text DEFAULT NULL,
    options jsonb DEFAULT '{}', if_not_exists boolean DEFAULT false, with_data boolean DEFAULT true,
    path text DEFAULT pg_catalog.current_setting('search_path'), relation text DEFAULT NULL)
    RETURNS regclass
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    wanted jsonb := idivm.checked_options(
        options || jsonb_strip_nulls(jsonb_build_object('maintain', maintain, 'strategy', strategy, 'staleness', staleness, 'relation', create_view.relation)));
    qualified_name text := idivm.name_to_create(name, path);
    view regclass;
BEGIN
    IF to_regclass(qualified_name) IS NOT NULL THEN
        IF if_not_exists THEN
            RAISE NOTICE '% exists already, skipping', qualified_name;
            RETURN qualified_name::regclass;
        END IF;
        RAISE duplicate_table USING
            MESSAGE = format('%s exists already', qualified_name),
            HINT = 'Choose another name, drop it first, or use idivm.replace_view.';
    END IF;
    view := idivm.show_query(qualified_name, NULL, query, path, false);
    PERFORM idivm.ask_for_plan(view, wanted, idivm.session_settings(), with_data);
    IF idivm.schedule_of(wanted) IS NOT NULL THEN
        PERFORM idivm.follow_schedule(view);
    END IF;
    RETURN view;
END
$$;
COMMENT ON FUNCTION idivm.create_view(text, text, text, text, text, jsonb, boolean, boolean, text, text) IS
    'creates a view, which computes its query until the next orchestrator plans it';

-- Refuse to store anything about the view of another role.
CREATE OR REPLACE FUNCTION idivm.check_unplanned() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    view regclass := CASE WHEN tg_op = 'DELETE' THEN old.relation ELSE new.relation END;
BEGIN
    IF (idivm.owns(view) AND (tg_op <> 'UPDATE' OR new.relation = old.relation)) IS NOT TRUE
       AND NOT idivm.may_change_catalog() THEN
        RAISE insufficient_privilege USING MESSAGE = format('must be owner of view %s', view);
    END IF;
    RETURN CASE WHEN tg_op = 'DELETE' THEN old ELSE new END;
END
$$;
COMMENT ON FUNCTION idivm.check_unplanned() IS 'lets each role write the rows of its own views in idivm.unplanned_views';

CREATE OR REPLACE TRIGGER check_owner BEFORE INSERT OR UPDATE OR DELETE ON idivm.unplanned_views
    FOR EACH ROW EXECUTE FUNCTION idivm.check_unplanned();

-- Record that a view waits for an orchestrator.
CREATE OR REPLACE FUNCTION idivm.ask_for_plan(view regclass, options jsonb, settings jsonb, with_data boolean DEFAULT true)
    RETURNS void
    LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$
    INSERT INTO idivm.unplanned_views (relation, options, settings, with_data) VALUES (view, options, settings, with_data)
    ON CONFLICT (relation) DO UPDATE
    SET options = excluded.options, settings = excluded.settings, with_data = excluded.with_data, paused = false,
        asked_at = excluded.asked_at, refusal = NULL, refused_at = NULL;
    SELECT idivm.describe(view);
$$;

-- Return whether a view waits to be planned. A view created WITH NO DATA is planned at its first refresh.
CREATE OR REPLACE FUNCTION idivm.plan_at_refresh(view regclass) RETURNS boolean
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM idivm.unplanned_views u WHERE u.relation = view) THEN
        RETURN false;
    END IF;
    UPDATE idivm.unplanned_views u SET with_data = true
    WHERE u.relation = view AND NOT u.with_data AND (idivm.owns(view) OR idivm.may_change_catalog());
    RETURN EXISTS (SELECT FROM idivm.unplanned_views u WHERE u.relation = view);
END
$$;

-- Return whether `idivm serve` is running for this database: it holds this lock.
CREATE OR REPLACE FUNCTION idivm.is_served() RETURNS boolean
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT EXISTS (
        SELECT FROM pg_locks l
        WHERE l.locktype = 'advisory' AND l.classid = idivm.lock_class()::oid AND l.objid = 0 AND l.objsubid = 2
          AND l.granted AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))
$$;
COMMENT ON FUNCTION idivm.is_served() IS 'whether idivm serve is running for this database';

CREATE OR REPLACE PROCEDURE idivm.create_view_now(
    name text, query text, maintain text DEFAULT NULL, strategy text DEFAULT NULL, staleness text DEFAULT NULL,
    options jsonb DEFAULT '{}', if_not_exists boolean DEFAULT false, wait interval DEFAULT '5 min',
    path text DEFAULT pg_catalog.current_setting('search_path'), relation text DEFAULT NULL)
    LANGUAGE plpgsql
AS $$
DECLARE
    created pg_catalog.regclass := idivm.create_view(name, query, maintain, strategy, staleness, options, if_not_exists,
                                                     path => path, relation => relation);
    until pg_catalog.timestamptz := pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) wait;
    refused pg_catalog.text;
BEGIN
    COMMIT;
    LOOP
        SELECT u.refusal INTO refused FROM idivm.unplanned_views u WHERE u.relation OPERATOR(pg_catalog.=) created;
        EXIT WHEN NOT FOUND;
        IF refused IS NOT NULL THEN
            RAISE WARNING '% computes its query at every read, as it could not be planned: %', created, refused;
            EXIT;
        ELSIF NOT idivm.is_served() THEN
            RAISE NOTICE '% computes its query at every read, as no orchestrator serves this database', created
                USING HINT = 'Run idivm serve, or idivm plan once.';
            EXIT;
        ELSIF pg_catalog.clock_timestamp() OPERATOR(pg_catalog.>) until THEN
            RAISE NOTICE '% was not planned within %, and computes its query at every read until it is', created, wait;
            EXIT;
        END IF;
        COMMIT;
        PERFORM pg_catalog.pg_sleep(0.02);
    END LOOP;
END
$$;
COMMENT ON PROCEDURE idivm.create_view_now(text, text, text, text, text, jsonb, boolean, interval, text, text) IS
    'creates a view, commits, and waits until an orchestrator has planned the view';

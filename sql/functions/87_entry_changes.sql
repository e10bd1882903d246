-- Change, pause, drop and explain views in SQL; 85_entry.sql creates them.

-- Return the ID of a planned view, or NULL. Fail if idivm does not maintain the view or the caller may not change
-- it.
CREATE OR REPLACE FUNCTION idivm.own_view(view regclass) RETURNS integer
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    view_id integer := idivm.view_id(view);
BEGIN
    IF NOT idivm.owns(view) THEN
        RAISE insufficient_privilege USING MESSAGE = format('must be owner of view %s', view);
    END IF;
    RETURN view_id;
END
$$;

-- Return whether the caller may change the catalog. Other roles leave such changes to the next orchestrator.
CREATE OR REPLACE FUNCTION idivm.may_change_catalog() RETURNS boolean
    LANGUAGE sql STABLE
    RETURN pg_catalog.has_table_privilege('idivm.views', 'INSERT, UPDATE, DELETE');

CREATE OR REPLACE FUNCTION idivm.refuse_guest(doing text, view regclass) RETURNS void
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT idivm.may_change_catalog() THEN
        RAISE insufficient_privilege USING
            MESSAGE = format('only the owner of idivm''s catalog may %s %s', doing, view),
            HINT = format('Ask the role %s.', (SELECT n.nspowner::regrole FROM pg_namespace n WHERE n.nspname = 'idivm'));
    END IF;
END
$$;

-- Return the maintained views that read a planned view directly or indirectly, upper views first.
CREATE OR REPLACE FUNCTION idivm.views_above(view_id integer) RETURNS integer[]
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    WITH RECURSIVE above(id, depth) AS (
        SELECT view_id, 0
      UNION
        SELECT v.id, a.depth + 1 FROM above a JOIN idivm.views v ON a.id IN (SELECT idivm.views_below(v.id))
    )
    SELECT coalesce(array_agg(deepest.id ORDER BY deepest.depth DESC, deepest.id DESC), '{}')
    FROM (SELECT a.id, max(a.depth) AS depth FROM above a WHERE a.depth > 0 GROUP BY a.id) AS deepest
$$;

-- Return the names of some planned views for a sentence.
CREATE OR REPLACE FUNCTION idivm.names_of(view_ids integer[]) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT string_agg(coalesce(v.relation::text, v.name), ', ' ORDER BY v.id) FROM idivm.views v WHERE v.id = ANY (view_ids)
$$;

-- Keep refreshes and writers away from views that are about to be dropped.
CREATE OR REPLACE FUNCTION idivm.hold_views(view_ids integer[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    synchronous integer[] := ARRAY(SELECT idivm.synchronous_views());
BEGIN
    PERFORM idivm.lock_apart(view_ids, synchronous);
    PERFORM idivm.hold_writers(ARRAY(SELECT id FROM unnest(view_ids) AS id WHERE id = ANY (synchronous)), true);
    PERFORM idivm.hold_captures(view_ids);
END
$$;

CREATE OR REPLACE FUNCTION idivm.drop_view(
    name text, if_exists boolean DEFAULT false, cascade boolean DEFAULT false,
    path text DEFAULT pg_catalog.current_setting('search_path'))
    RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    view regclass;
    view_id integer;
    above integer[] := '{}';
BEGIN
    PERFORM set_config('search_path', path, true);
    view := to_regclass(name);
    PERFORM set_config('search_path', 'pg_catalog, pg_temp', true);
    IF view IS NULL THEN
        IF if_exists THEN
            RAISE NOTICE '% does not exist, skipping', name;
            RETURN;
        END IF;
        RAISE undefined_table USING MESSAGE = format('there is no view %s', name);
    END IF;
    view_id := idivm.own_view(view);
    IF view_id IS NOT NULL THEN
        above := idivm.views_above(view_id);
        IF above <> '{}' AND NOT cascade THEN
            RAISE dependent_objects_still_exist USING
                MESSAGE = format('the maintained views %s read %s', idivm.names_of(above), view),
                HINT = 'Drop them first, or use cascade => true.';
        END IF;
        IF idivm.may_change_catalog() THEN
            PERFORM idivm.hold_views(above || view_id);
            PERFORM idivm.uninstall(id) FROM unnest(above) AS id;
        END IF;
    END IF;
    DELETE FROM idivm.unplanned_views u WHERE u.relation = view;
    EXECUTE format('DROP %s %s %s', idivm.kind_of(view), view, CASE WHEN cascade THEN 'CASCADE' END);
    IF idivm.may_change_catalog() THEN
        PERFORM idivm.uninstall(view_id);
        PERFORM idivm.drop_orphans();
    ELSE
        PERFORM idivm.sync_schedules();
    END IF;
END
$$;
COMMENT ON FUNCTION idivm.drop_view(text, boolean, boolean, text) IS 'drops a maintained view';

-- Refuse a query that reads maintained views which read the view.
CREATE OR REPLACE FUNCTION idivm.refuse_circle(view regclass, above integer[]) RETURNS void
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    query regclass := coalesce((SELECT idivm.waiting_query(u) FROM idivm.unplanned_views u WHERE u.relation = view), view);
BEGIN
    IF EXISTS (SELECT FROM idivm.relations_below(query) AS below JOIN idivm.views v ON v.relation = below AND v.id = ANY (above)) THEN
        RAISE invalid_recursion USING
            MESSAGE = format('%s cannot read the maintained views %s, which read %s', view, idivm.names_of(above), view);
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION idivm.refuse_columns(view regclass, above integer[]) RETURNS void
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE invalid_table_definition USING
        MESSAGE = format('%s cannot lose, rename or retype columns while the maintained views %s read it', view, idivm.names_of(above)),
        HINT = 'Add columns at the end, or drop these views first.';
END
$$;

-- Give a table the columns of the query that it waits for.
CREATE OR REPLACE FUNCTION idivm.shape_waiting(view regclass, above integer[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM idivm.shape_table(view::text, idivm.waiting_query(u)) FROM idivm.unplanned_views u WHERE u.relation = view;
EXCEPTION WHEN dependent_objects_still_exist OR feature_not_supported THEN
    IF above <> '{}' THEN
        PERFORM idivm.refuse_columns(view, above);
    END IF;
    RAISE;
END
$$;

-- Turn a view into an ordinary view of a query, which the next orchestrator plans. The maintained views above it
-- become ordinary views of their queries too, because their content belongs to the former query. The caller must
-- own them, as for every change of a view. Tables that show views stay tables (59_waiting_tables.sql).
CREATE OR REPLACE FUNCTION idivm.unplan(view regclass, columns text[], query text, options jsonb, settings jsonb, path text)
    RETURNS regclass
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    view_id integer := idivm.own_view(view);
    above integer[] := '{}';
    tables regclass[];
    reader idivm.views;
    original record;
    relation text := view;
    properties text[];
    former oid;
    refusal text;
BEGIN
    IF view_id IS NOT NULL THEN
        above := idivm.views_above(view_id);
        IF idivm.may_change_catalog() THEN
            PERFORM idivm.hold_views(above || view_id);
        END IF;
    END IF;
    -- Lower views first.
    tables := ARRAY(
        SELECT r.relation FROM (
            SELECT view AS relation, 0 AS place
            UNION ALL SELECT v.relation, -array_position(above, v.id) - 1 FROM idivm.views v WHERE v.id = ANY (above)) AS r
        WHERE idivm.kind_of(r.relation) = 'TABLE' ORDER BY r.place = 0 DESC, r.place);
    PERFORM idivm.refuse_table(tables);
    FOR reader IN SELECT v.* FROM idivm.views v WHERE v.id = ANY (above) LOOP
        refusal := CASE WHEN NOT idivm.owns(reader.relation) THEN format('must be owner of view %s', reader.relation)
                        ELSE idivm.distrusted(reader.definition, coalesce(reader.types, '{}'), current_user::regrole) END;
        IF refusal IS NOT NULL THEN
            RAISE insufficient_privilege USING
                MESSAGE = format('%s reads %s and cannot be planned again: %s', reader.relation, view, refusal);
        END IF;
        CONTINUE WHEN EXISTS (SELECT FROM idivm.unplanned_views u WHERE u.relation = reader.relation);
        original := idivm.query_of(reader);
        IF reader.relation = ANY (tables) THEN
            PERFORM idivm.wait_as_table(reader.relation, original.columns, original.query, reader.options,
                                        reader.settings || idivm.session_settings(), 'pg_catalog, pg_temp');
            CONTINUE;
        END IF;
        PERFORM idivm.ask_for_plan(reader.relation, reader.options, reader.settings || idivm.session_settings());
        PERFORM idivm.show_query(reader.relation::text, original.columns, original.query, 'pg_catalog, pg_temp', true);
    END LOOP;
    IF view = ANY (tables) THEN
        PERFORM idivm.wait_as_table(view, columns, query, options, settings, path);
        PERFORM idivm.refuse_circle(view, above);
        PERFORM idivm.shape_waiting(view, above);
        PERFORM idivm.uninstall(id, true) FROM unnest(above || view_id) AS id;
        PERFORM idivm.show_waiting(waiting) FROM unnest(tables) AS waiting;
        RETURN view;
    END IF;
    -- This precedes the change of the query, so that the event trigger for maintained views lets it pass.
    PERFORM idivm.ask_for_plan(view, options, settings);
    BEGIN
        PERFORM idivm.show_query(relation, columns, query, path, true);
    EXCEPTION WHEN invalid_table_definition THEN
        IF above <> '{}' THEN
            PERFORM idivm.refuse_columns(view, above);
        END IF;
        -- The columns differ: only a view that no other relation reads can be dropped and created again.
        DELETE FROM idivm.unplanned_views u WHERE u.relation = view;
        properties := ARRAY(SELECT idivm.properties_of(view, 'VIEW'));
        former := view;
        EXECUTE format('DROP VIEW %s', view);
        view := idivm.show_query(relation, columns, query, path, false);
        IF idivm.may_change_catalog() THEN
            UPDATE idivm_feed.feeds f SET relation = unplan.view WHERE f.relation = former;
        END IF;
        PERFORM idivm.give_properties(view, former, properties);
        PERFORM idivm.ask_for_plan(view, options, settings);
    END;
    PERFORM idivm.refuse_circle(view, above);
    IF view_id IS NOT NULL AND idivm.may_change_catalog() THEN
        -- Upper views first, because they capture the content of the lower views.
        PERFORM idivm.uninstall(id, true) FROM unnest(above || view_id) AS id;
    END IF;
    PERFORM idivm.show_waiting(waiting) FROM unnest(tables) AS waiting;
    RETURN view;
END
$$;
COMMENT ON FUNCTION idivm.unplan(regclass, text[], text, jsonb, jsonb, text) IS
    'turns a view, and the maintained views that read it, into ordinary views until an orchestrator plans them';

CREATE OR REPLACE FUNCTION idivm.replace_view(
    view regclass, query text, maintain text DEFAULT NULL, strategy text DEFAULT NULL, staleness text DEFAULT NULL,
    options jsonb DEFAULT '{}', path text DEFAULT pg_catalog.current_setting('search_path'), relation text DEFAULT NULL)
    RETURNS regclass
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    view_id integer := idivm.own_view(view);
    wanted jsonb := idivm.checked_options(
        options || jsonb_strip_nulls(jsonb_build_object('maintain', maintain, 'strategy', strategy, 'staleness', staleness, 'relation', relation)));
BEGIN
    RETURN idivm.unplan(view, NULL, query, idivm.options_of(view, view_id) || wanted, idivm.session_settings(), path);
END
$$;
COMMENT ON FUNCTION idivm.replace_view(regclass, text, text, text, text, jsonb, text, text) IS
    'replaces the query of a view; options that are not given stay';

-- Return the options that a view was created with.
CREATE OR REPLACE FUNCTION idivm.options_of(view regclass, view_id integer) RETURNS jsonb
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN coalesce((SELECT u.options FROM idivm.unplanned_views u WHERE u.relation = view),
                    (SELECT v.options FROM idivm.views v WHERE v.id = view_id));
END
$$;

CREATE OR REPLACE FUNCTION idivm.alter_view(
    view regclass, maintain text DEFAULT NULL, strategy text DEFAULT NULL, staleness text DEFAULT NULL,
    options jsonb DEFAULT '{}', name text DEFAULT NULL, schema text DEFAULT NULL, owner regrole DEFAULT NULL,
    relation text DEFAULT NULL)
    RETURNS regclass
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    -- These options need no new plan.
    light CONSTANT text[] := '{maintain,staleness,schedule,refresh_group,gate,feed,feed_keep,feed_hold,log_limit,on_log_limit,initialise,on_drop,on_error}';
    view_id integer := idivm.own_view(view);
    wanted jsonb := idivm.checked_options(
        options || jsonb_strip_nulls(jsonb_build_object('maintain', maintain, 'strategy', strategy, 'staleness', staleness, 'relation', relation)));
    mode text := wanted ->> 'maintain';
    v idivm.views;
    original record;
BEGIN
    PERFORM idivm.check_timing(idivm.options_of(view, view_id) || wanted);
    IF wanted = '{}' THEN
    ELSIF EXISTS (SELECT FROM idivm.unplanned_views u WHERE u.relation = view) THEN
        UPDATE idivm.unplanned_views u
        SET options = u.options || wanted, asked_at = clock_timestamp(), refusal = NULL, refused_at = NULL
        WHERE u.relation = view;
    ELSE
        SELECT * INTO v FROM idivm.views planned WHERE planned.id = view_id;
        -- A view whose reads merge changes has another relation, which the orchestrator creates.
        IF idivm.may_change_catalog() AND wanted - light = '{}'
           AND (mode = v.maintain OR mode <> 'on_read' AND v.read_from IS NULL) IS NOT FALSE
           AND NOT (v.read_from IS NOT NULL AND wanted ?| '{feed,on_error}') THEN
            IF mode <> v.maintain THEN
                PERFORM idivm.change_mode(view, view_id, mode);
            END IF;
            UPDATE idivm.views planned SET options = planned.options || wanted WHERE planned.id = view_id;
            PERFORM idivm.check_gate(view_id);
            IF wanted ? 'feed' THEN
                PERFORM idivm.hold_views(ARRAY[view_id]);
                PERFORM idivm.set_feed(view_id);
            END IF;
        ELSE
            original := idivm.query_of(v);
            PERFORM idivm.unplan(view, original.columns, original.query, v.options || wanted,
                                 v.settings || idivm.session_settings(), 'pg_catalog, pg_temp');
        END IF;
    END IF;
    IF wanted ? 'schedule' THEN
        PERFORM idivm.follow_schedule(view);
    END IF;
    IF name IS NOT NULL THEN
        EXECUTE format('ALTER TABLE %s RENAME TO %I', view, name);
    END IF;
    IF schema IS NOT NULL THEN
        EXECUTE format('ALTER TABLE %s SET SCHEMA %I', view, schema);
    END IF;
    IF owner IS NOT NULL THEN
        EXECUTE format('ALTER TABLE %s OWNER TO %s', view, owner);
        PERFORM idivm.hand_over(view_id);
    END IF;
    RETURN view;
END
$$;
COMMENT ON FUNCTION idivm.alter_view(regclass, text, text, text, jsonb, text, text, regrole, text) IS
    'changes the options of a view, or its name, schema or owner';

-- Change the mode of a planned view in this transaction: at its end, the content is up to date in the new mode.
CREATE OR REPLACE FUNCTION idivm.change_mode(view regclass, view_id integer, mode text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE feature_not_supported USING
            MESSAGE = format('the mode of %s can only be changed in a READ COMMITTED transaction', view);
    END IF;
    IF mode <> 'deferred' AND idivm.time_dependent_part(view_id) IS NOT NULL THEN
        RAISE feature_not_supported USING
            MESSAGE = format('the content of %s changes while no table does, so that no write can maintain it', idivm.time_dependent_part(view_id)),
            HINT = 'Leave the view deferred, and refresh it.';
    END IF;
    PERFORM idivm.set_mode(view_id, mode);
    PERFORM idivm.refuse_synchronous_cut();
END
$$;

-- Pause a view: only a refresh that names the view, or a refresh of a view above it, changes it. A view that waits
-- to be planned continues to wait.
CREATE OR REPLACE FUNCTION idivm.pause_view(view regclass) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    view_id integer := idivm.own_view(view);
    before record;
    mode text;
BEGIN
    UPDATE idivm.unplanned_views u SET paused = true WHERE u.relation = view;
    IF FOUND THEN
        RETURN;
    END IF;
    PERFORM idivm.refuse_guest('pause', view);
    SELECT v.maintain, v.read_from IS NOT NULL AS merges INTO before
    FROM idivm.views v WHERE v.id = view_id AND v.paused_mode IS NULL;
    mode := before.maintain;
    -- A read that merges changes is current, whoever refreshes the view.
    IF mode <> 'deferred' AND NOT before.merges THEN
        PERFORM idivm.change_mode(view, view_id, 'deferred');
    END IF;
    UPDATE idivm.views v SET paused_mode = mode WHERE v.id = view_id AND v.paused_mode IS NULL;
END
$$;
COMMENT ON FUNCTION idivm.pause_view(regclass) IS 'stops the refreshes of a view until idivm.resume_view';

CREATE OR REPLACE FUNCTION idivm.resume_view(view regclass) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    view_id integer := idivm.own_view(view);
    mode text;
    merges boolean;
BEGIN
    UPDATE idivm.unplanned_views u SET paused = false, asked_at = clock_timestamp() WHERE u.relation = view;
    IF FOUND THEN
        RETURN;
    END IF;
    PERFORM idivm.refuse_guest('resume', view);
    UPDATE idivm.views v SET paused_mode = NULL
    FROM idivm.views before
    WHERE v.id = view_id AND before.id = v.id AND before.paused_mode IS NOT NULL
    RETURNING before.paused_mode, before.read_from IS NOT NULL INTO mode, merges;
    IF mode <> 'deferred' AND NOT merges THEN
        PERFORM idivm.change_mode(view, view_id, mode);
    END IF;
END
$$;
COMMENT ON FUNCTION idivm.resume_view(regclass) IS 'ends a pause by idivm.pause_view';

-- Return the text of a stored plan with its characters beyond ASCII, which the catalog stores as escapes
-- (orchestrator/catalog/ascii_json.py). If the database or the client has another encoding than UTF-8, each
-- becomes a question mark.
CREATE OR REPLACE FUNCTION idivm.plan_text(stored text) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT replace(CASE WHEN getdatabaseencoding() = 'UTF8' AND pg_client_encoding() IN ('UTF8', 'SQL_ASCII')
                       THEN unistr(regexp_replace(replace(plain.text, E'\\', E'\\\\'), '%([0-9a-f]{4})', E'\\\\\\1', 'g'))
                       ELSE regexp_replace(plain.text, '%[0-9a-f]{4}', '?', 'g') END, E'\x01', '%')
    FROM (SELECT replace(stored, '%%', E'\x01') AS text) AS plain
$$;
COMMENT ON FUNCTION idivm.plan_text(text) IS 'the text of a stored plan as people read it';

-- Return a short description of how a view is maintained; `idivm explain` shows more.
CREATE OR REPLACE FUNCTION idivm.explain(view regclass) RETURNS text
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    view_id integer := idivm.view_id(view);
    waiting idivm.unplanned_views;
BEGIN
    SELECT * INTO waiting FROM idivm.unplanned_views u WHERE u.relation = view;
    IF FOUND THEN
        RETURN concat_ws(
            E'\n', format(CASE WHEN waiting.number IS NULL THEN '%s: not planned yet; every read computes its query'
                               ELSE '%s: not planned yet; its rows are from %s, until idivm.refresh computes them anew' END,
                          view, date_trunc('second', waiting.filled_at)),
            'options: ' || (SELECT string_agg(format('%s = %s', o.key, o.value), ', ')
                            FROM jsonb_each_text(waiting.options) AS o),
            format('waiting since %s', date_trunc('second', waiting.asked_at)),
            'the last attempt to plan it failed: ' || waiting.refusal);
    END IF;
    RETURN (
        SELECT concat_ws(
            E'\n', format('%s: %s, strategy %s', view, v.maintain, v.strategy), idivm.plan_text(v.plan -> 'definition' ->> 'algebra'),
            (SELECT string_agg(format('%s %s: %s', CASE WHEN (r ->> 'taken')::boolean THEN '+' ELSE '-' END,
                                      r ->> 'strategy', idivm.plan_text(r ->> 'because')), E'\n')
             FROM jsonb_array_elements(v.plan -> 'evidence' -> 'reasons') AS r))
        FROM idivm.views v WHERE v.id = view_id);
END
$$;
COMMENT ON FUNCTION idivm.explain(regclass) IS 'returns the plan of a view and the reasons for it';

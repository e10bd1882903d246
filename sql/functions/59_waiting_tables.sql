-- Views that users read as tables and that SQL changes (idivm.replace_view, idivm.alter_view): until an orchestrator
-- plans them, the table itself stays, with all that is on it. It has the rows of the new query when the statement ends,
-- and each idivm.refresh computes them anew. No writer maintains them, and idivm.status shows from when they are.
--
-- The view idivm_def.w<number> holds the query. idivm_feed.w<number> and idivm_feed.w<number>_rows are to it what
-- idivm_feed.t<id> and idivm_feed.t<id>_rows are to a planned view (58_tables.sql).

-- Return the view that holds the query of a view that waits to be planned.
CREATE OR REPLACE FUNCTION idivm.waiting_query(u idivm.unplanned_views) RETURNS regclass
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
    RETURN CASE WHEN u.number IS NULL THEN u.relation ELSE to_regclass('idivm_def.w' || u.number) END;
COMMENT ON FUNCTION idivm.waiting_query(idivm.unplanned_views) IS
    'the view that holds the query of a view that waits to be planned; NULL if it was dropped with something that it reads';

-- Return what happened to the query of a view that DROP ... CASCADE of something below took away. A table that shows a
-- view does not depend on the query, so it is there until the next idivm command.
CREATE OR REPLACE FUNCTION idivm.lost_query(view regclass) RETURNS text
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF EXISTS (SELECT FROM idivm.views v
               WHERE v.relation = view AND v.status <> 'building' AND has_table_privilege(v.definition, 'SELECT') IS NULL)
       OR EXISTS (SELECT FROM idivm.unplanned_views u WHERE u.relation = view AND idivm.waiting_query(u) IS NULL) THEN
        RETURN format('something that the query of %s reads was dropped with CASCADE; the next idivm command drops %1$s too', view);
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION idivm.lost_query(regclass) IS 'what took away the query of a view; NULL if it is there';

-- Refuse to let tables wait that belong to another role than the objects that compute their rows.
CREATE OR REPLACE FUNCTION idivm.refuse_table(tables regclass[]) RETURNS void
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    owner oid := (SELECT n.nspowner FROM pg_namespace n WHERE n.nspname = 'idivm_def');
    refused text := (SELECT string_agg(c.oid::regclass::text, ', ' ORDER BY c.oid) FROM pg_class c
                     WHERE c.oid = ANY (tables) AND (c.relowner <> owner OR NOT pg_has_role(owner, 'USAGE')));
BEGIN
    IF refused IS NOT NULL THEN
        RAISE feature_not_supported USING
            MESSAGE = format('SQL alone changes tables (relation = table) only if they and the session belong to the role %s, and not %s',
                             owner::regrole, refused),
            HINT = 'Change the view by idivm sql or the Python library, for example CREATE OR REPLACE VIEW, or drop it and create it again.';
    END IF;
END
$$;
COMMENT ON FUNCTION idivm.refuse_table(regclass[]) IS
    'refuses changes of views that only an orchestrator can make, as users read them as tables of other roles';

-- Let a table wait for the plan of a query, and give it the columns of the query. Its rows follow in idivm.show_waiting.
CREATE OR REPLACE FUNCTION idivm.wait_as_table(view regclass, columns text[], query text, options jsonb, settings jsonb, path text)
    RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET client_min_messages = warning
AS $$
DECLARE
    ask_number bigint := nextval(pg_get_serial_sequence('idivm.views', 'id'));
    base text := 'w' || ask_number;
    owner regrole := (SELECT n.nspowner FROM pg_namespace n WHERE n.nspname = 'idivm_def');
    definition regclass := idivm.show_query(format('idivm_def.%I', base), columns, query, path, false, view::text);
    output record;
BEGIN
    EXECUTE format('DROP TRIGGER idivm_maintained ON %s', definition);
    IF view IN (SELECT idivm.relations_below(definition)) THEN
        RAISE invalid_recursion USING MESSAGE = format('%s cannot read itself', view);
    END IF;
    DELETE FROM idivm.unplanned_views u WHERE u.relation = view;
    PERFORM idivm.ask_for_plan(view, options, settings);
    UPDATE idivm.unplanned_views u SET number = ask_number WHERE u.relation = view;
    output := idivm.columns_shown(definition);
    EXECUTE format('CREATE UNLOGGED TABLE idivm_feed.%I (kind "char" NOT NULL, depth integer, %s)', base,
                   (SELECT string_agg(format('o_%1$s %2$s, n_%1$s %2$s', t.number, t.name), ', ' ORDER BY t.number)
                    FROM unnest(output.types) WITH ORDINALITY AS t (name, number)));
    EXECUTE format('CREATE VIEW idivm_feed.%I AS SELECT %s FROM %s AS t', base || '_rows',
                   idivm.feed_columns(output.names, 't.%2$I AS c_%1$s'), definition);
    EXECUTE format('ALTER TABLE idivm_feed.%I OWNER TO %s', base, owner);
    EXECUTE format('ALTER VIEW idivm_feed.%I OWNER TO %s', base || '_rows', owner);
    EXECUTE format('ALTER VIEW %s OWNER TO %s', definition, owner);
    PERFORM idivm.describe(view);
END
$$;
COMMENT ON FUNCTION idivm.wait_as_table(regclass, text[], text, jsonb, jsonb, text) IS
    'lets a table that shows a maintained view wait for the plan of another query';

-- Give a waiting table the rows that its query has now. Return how many rows changed, and NULL for another relation.
CREATE OR REPLACE FUNCTION idivm.show_waiting(view regclass) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    u idivm.unplanned_views := (
        SELECT waiting FROM idivm.unplanned_views waiting WHERE waiting.relation = view AND waiting.number IS NOT NULL);
    definition regclass := idivm.waiting_query(u);
    columns record;
    hashed integer[];
    refusal text;
    changed bigint;
    begun timestamptz := clock_timestamp();
BEGIN
    IF u.relation IS NULL THEN
        RETURN NULL;
    END IF;
    PERFORM idivm.refuse_guest('refresh', view);
    IF definition IS NULL THEN
        RAISE object_not_in_prerequisite_state USING MESSAGE = idivm.lost_query(view);
    END IF;
    refusal := idivm.distrusted(definition, '{}');
    IF refusal IS NOT NULL THEN
        RAISE insufficient_privilege USING MESSAGE = format('%s cannot be refreshed: %s', view, refusal);
    END IF;
    columns := idivm.columns_shown(definition);
    hashed := idivm.lookup(columns.names, columns.types, idivm.key_positions(view, idivm.table_columns(view)));
    PERFORM idivm.index_lookup(view, idivm.table_columns(view), hashed, u.number::integer);
    changed := idivm.show_changes(view, 'w' || u.number, cardinality(columns.names),
                                  idivm.key_positions(view, idivm.table_columns(view)), hashed, true);
    UPDATE idivm.unplanned_views waiting SET filled_at = begun WHERE waiting.relation = view;
    RETURN changed;
END
$$;
COMMENT ON FUNCTION idivm.show_waiting(regclass) IS 'gives a table that waits to be planned the rows that its query has now';

-- Give the waiting tables the rows of their queries, each with its own fate.
CREATE OR REPLACE FUNCTION idivm.show_all_waiting(relations regclass[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    waiting regclass;
BEGIN
    IF NOT EXISTS (SELECT FROM idivm.unplanned_views u WHERE u.number IS NOT NULL) OR NOT idivm.may_change_catalog() THEN
        RETURN;
    END IF;
    FOR waiting IN
        SELECT u.relation FROM idivm.unplanned_views u JOIN pg_class c ON c.oid = u.relation
        WHERE u.number IS NOT NULL AND NOT u.paused AND (relations = '{}' OR u.relation = ANY (relations)) ORDER BY u.number DESC
    LOOP
        BEGIN
            PERFORM idivm.show_waiting(waiting);
        EXCEPTION WHEN OTHERS THEN
            IF idivm.ends_refresh(sqlstate) THEN
                RAISE;
            END IF;
            RAISE WARNING '% could not be refreshed: %', waiting, sqlerrm;
        END;
    END LOOP;
END
$$;
COMMENT ON FUNCTION idivm.show_all_waiting(regclass[]) IS 'gives tables that wait to be planned the rows that their queries have now';

-- Drop what computes the rows of a waiting table. The role that plans or drops the view may be another one.
CREATE OR REPLACE FUNCTION idivm.drop_waiting() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET client_min_messages = warning
AS $$
BEGIN
    EXECUTE format('DROP VIEW IF EXISTS idivm_feed.%I', 'w' || old.number || '_rows');
    EXECUTE format('DROP TABLE IF EXISTS idivm_feed.%I', 'w' || old.number);
    EXECUTE format('DROP VIEW IF EXISTS idivm_def.%I', 'w' || old.number);
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER drop_waiting AFTER DELETE ON idivm.unplanned_views
    FOR EACH ROW WHEN (old.number IS NOT NULL) EXECUTE FUNCTION idivm.drop_waiting();

-- Drop the waiting tables whose query was dropped with something that it reads, and forget those that were dropped.
CREATE OR REPLACE FUNCTION idivm.drop_lost_waiting() RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    u idivm.unplanned_views;
BEGIN
    FOR u IN
        SELECT * FROM idivm.unplanned_views waiting
        WHERE waiting.number IS NOT NULL AND idivm.may_change_catalog() AND idivm.owns(waiting.relation) IS NOT FALSE
          AND (idivm.waiting_query(waiting) IS NULL
               OR NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = waiting.relation))
    LOOP
        IF EXISTS (SELECT FROM pg_class c WHERE c.oid = u.relation) THEN
            RAISE WARNING '% is dropped, as something that it reads was dropped with CASCADE', u.relation;
            EXECUTE format('DROP TABLE %s CASCADE', u.relation);
        END IF;
        DELETE FROM idivm.unplanned_views waiting WHERE waiting.relation = u.relation;
    END LOOP;
END
$$;
COMMENT ON FUNCTION idivm.drop_lost_waiting() IS
    'drops the tables that wait to be planned and whose query was dropped with something that it reads';

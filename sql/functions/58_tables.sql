-- Views that users read as a table: with relation = table, the name of a view belongs to a table with the columns of
-- the query. Everything that PostgreSQL allows for tables can be put on it, and all plans of the view keep the table.
--
-- Triggers of the content append each change to the table idivm_feed.t<id> (idivm.append_changes), and the end of the
-- refresh applies the net change to the table of the users, in one statement. A refresh that computes all rows anew
-- compares both tables instead. So whatever changes the content reaches the table in the same transaction.
--
-- Code of users runs in this last step: triggers, constraints and index expressions of the table. It runs with the
-- rights of the table's owner, by idivm_feed.t<id>_show.
--
-- The trigger idivm_columns of the table lists its columns in the order of the query: UPDATE OF follows renames, is
-- part of dumps, and keeps users from dropping these columns.

-- Return the columns of a table that show the columns of the query, in the order of the query.
CREATE OR REPLACE FUNCTION idivm.table_columns(view regclass) RETURNS text[]
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    RETURN (
        SELECT array_agg(a.attname::text ORDER BY k.place)
        FROM pg_trigger t CROSS JOIN LATERAL unnest(t.tgattr::int2[]) WITH ORDINALITY AS k (attnum, place)
        JOIN pg_attribute a ON a.attrelid = t.tgrelid AND a.attnum = k.attnum
        WHERE t.tgrelid = view AND t.tgname = 'idivm_columns');
END
$$;
COMMENT ON FUNCTION idivm.table_columns(regclass) IS
    'the columns of a table that shows a maintained view, in the order of the query';

-- Refuse to write to the table of a view, except in the step that shows the changes of a refresh: then the table of
-- changes contains a row with the depth of the triggers there. The rows of a dump may be restored. Its tables may have
-- been restored before, and writers have kept the view: then the next refresh computes everything anew. The settings
-- are those of every dump.
CREATE OR REPLACE FUNCTION idivm.refuse_direct_write() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v record;
    by_refresh boolean;
BEGIN
    SELECT planned.id, 't' || planned.id AS base, idivm.is_foreign(w) AS is_restored INTO v
    FROM idivm.views planned LEFT JOIN idivm.watermarks w ON w.view = planned.id WHERE planned.relation = tg_relid;
    IF NOT FOUND THEN
        SELECT NULL::integer AS id, 'w' || u.number AS base, false AS is_restored INTO v
        FROM idivm.unplanned_views u WHERE u.relation = tg_relid;
    END IF;
    IF NOT FOUND OR v.is_restored THEN
        RETURN NULL;
    END IF;
    IF to_regclass(format('idivm_feed.%I', v.base)) IS NOT NULL THEN
        EXECUTE format('SELECT EXISTS (SELECT FROM idivm_feed.%I AS t WHERE t.kind = ''M'' AND t.depth = $1)', v.base)
        INTO by_refresh USING pg_trigger_depth() - 1;
    END IF;
    IF by_refresh THEN
        -- The statement is planned. Further triggers plan their own.
        SET LOCAL enable_nestloop TO DEFAULT;
        SET LOCAL enable_mergejoin TO DEFAULT;
        SET LOCAL enable_seqscan TO DEFAULT;
        RETURN NULL;
    END IF;
    IF tg_op = 'INSERT' AND current_setting('check_function_bodies') = 'off' AND current_setting('row_security') = 'off' THEN
        UPDATE idivm.views planned SET status = 'invalid' WHERE planned.id = v.id AND planned.status = 'ready';
        RETURN NULL;
    END IF;
    RAISE EXCEPTION '% is maintained from its query: change the tables that it reads instead',
        format('%I.%I', tg_table_schema, tg_table_name)
        USING ERRCODE = 'object_not_in_prerequisite_state';
END
$$;
COMMENT ON FUNCTION idivm.refuse_direct_write() IS 'trigger that refuses to write to a table that shows a maintained view';

-- Say what an object on a table that a column takes along is, and drop triggers, which PostgreSQL does not drop itself.
-- Policies and views keep the column, with PostgreSQL's error.
CREATE OR REPLACE FUNCTION idivm.lose_column(view regclass, name text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    lost record;
BEGIN
    FOR lost IN
        SELECT DISTINCT pg_describe_object(d.classid, d.objid, 0) AS description, t.tgname
        FROM pg_attribute a
        JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = a.attrelid AND d.refobjsubid = a.attnum
        LEFT JOIN pg_trigger t ON d.classid = 'pg_trigger'::regclass AND t.oid = d.objid AND NOT t.tgisinternal
        LEFT JOIN pg_class i ON d.classid = 'pg_class'::regclass AND i.oid = d.objid
        WHERE a.attrelid = view AND a.attname = lose_column.name
          AND (d.classid IN ('pg_constraint'::regclass, 'pg_statistic_ext'::regclass) OR t.oid IS NOT NULL
               OR i.relkind = 'i' AND i.relname NOT LIKE '%\_idivm')
        ORDER BY 1
    LOOP
        RAISE NOTICE '% is dropped, because % no longer has the column % as it was', lost.description, view, name;
        IF lost.tgname IS NOT NULL THEN
            EXECUTE format('DROP TRIGGER %I ON %s', lost.tgname, view);
        END IF;
    END LOOP;
    EXECUTE format('ALTER TABLE %s DROP COLUMN %I', view, name);
END
$$;

-- Create the table that users read, or give the existing table the columns of a new query: columns are dropped, added
-- at the end, or get another type. The rows follow in idivm.set_table.
CREATE OR REPLACE FUNCTION idivm.shape_table(relation text, definition regclass) RETURNS regclass
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    wanted record := idivm.columns_shown(definition);
    view regclass := to_regclass(relation);
    former text[] := idivm.table_columns(view);
    present text;
    name text;
    type text;
    place bigint;
BEGIN
    IF wanted.names IS NULL THEN
        RAISE feature_not_supported USING
            MESSAGE = format('%s has no columns, so that it can be no table', relation), HINT = 'Leave out relation = table.';
    END IF;
    IF view IS NULL THEN
        EXECUTE format('CREATE TABLE %s (%s)', relation, (
            SELECT string_agg(format('%I %s', n, t), ', ' ORDER BY o)
            FROM unnest(wanted.names, wanted.types) WITH ORDINALITY AS c (n, t, o)));
        view := relation::regclass;
        EXECUTE format('ALTER TABLE %s REPLICA IDENTITY FULL', view);
    ELSE
        -- Nothing would have to be told of these.
        IF EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = view AND t.tgname = 'idivm_columns') THEN
            EXECUTE format('DROP TRIGGER idivm_columns ON %s', view);
        END IF;
        FOREACH name IN ARRAY coalesce(former, '{}') LOOP
            IF name <> ALL (wanted.names) THEN
                PERFORM idivm.lose_column(view, name);
            END IF;
        END LOOP;
        FOR name, type IN SELECT * FROM unnest(wanted.names, wanted.types) LOOP
            SELECT format_type(a.atttypid, a.atttypmod) || coalesce(' COLLATE ' || nullif(a.attcollation, 0)::regcollation, '')
            INTO present FROM pg_attribute a WHERE a.attrelid = view AND a.attname = name AND NOT a.attisdropped;
            IF present <> type THEN
                BEGIN
                    EXECUTE format('ALTER TABLE %s ALTER COLUMN %I TYPE %s USING %2$I::%s', view, name, type,
                                   regexp_replace(type, ' COLLATE .*$', ''));
                    CONTINUE;
                EXCEPTION WHEN cannot_coerce OR data_exception OR undefined_function OR datatype_mismatch THEN
                    PERFORM idivm.lose_column(view, name);
                    present := NULL;
                END;
            END IF;
            IF present IS NULL THEN
                EXECUTE format('ALTER TABLE %s ADD COLUMN %I %s', view, name, type);
            END IF;
        END LOOP;
    END IF;
    EXECUTE format('CREATE OR REPLACE TRIGGER idivm_maintained BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s'
                   ' FOR EACH STATEMENT EXECUTE FUNCTION idivm.refuse_direct_write()', view);
    EXECUTE format('CREATE TRIGGER idivm_columns BEFORE UPDATE OF %s ON %s'
                   ' FOR EACH STATEMENT EXECUTE FUNCTION idivm.refuse_direct_write()',
                   (SELECT string_agg(quote_ident(n), ', ' ORDER BY o) FROM unnest(wanted.names) WITH ORDINALITY AS c (n, o)), view);
    RETURN view;
END
$$;
COMMENT ON FUNCTION idivm.shape_table(text, regclass) IS
    'creates the table that shows a maintained view, or gives it the columns of another query';

-- Return the positions of the columns that are a key of a table; NULL if there is none, and no position for a table of
-- one row. `names` are the columns of the table in the order of the query.
CREATE OR REPLACE FUNCTION idivm.key_positions(relation regclass, names text[]) RETURNS integer[]
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT key.positions
    FROM pg_index i
    CROSS JOIN LATERAL (
        SELECT coalesce(array_agg(array_position(names, a.attname::text) ORDER BY k.place) FILTER (WHERE k.attnum > 0), '{}') AS positions,
               bool_and(k.attnum = 0 OR a.attname = ANY (names)) AS is_shown
        FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, place)
        LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
        WHERE k.place <= i.indnkeyatts
    ) AS key
    WHERE i.indrelid = relation AND i.indisunique AND NOT i.indisexclusion AND i.indisvalid
      AND i.indpred IS NULL AND key.is_shown
      AND (i.indexprs IS NULL OR pg_get_expr(i.indexprs, i.indrelid) = 'true' AND i.indnatts = 1)
    ORDER BY i.indisprimary DESC, cardinality(key.positions), i.indexrelid LIMIT 1
$$;
COMMENT ON FUNCTION idivm.key_positions(regclass, text[]) IS 'the positions of the columns that are a key of a table';

-- Return the positions of the columns by whose hash the rows of a change are found: those of the key, or all. Columns
-- whose types cannot be hashed are left out.
CREATE OR REPLACE FUNCTION idivm.lookup(names text[], types text[], key integer[]) RETURNS integer[]
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    place integer;
    hashed integer[] := '{}';
BEGIN
    FOREACH place IN ARRAY coalesce(nullif(key, '{}'), ARRAY(SELECT generate_series(1, least(cardinality(names), 32)))) LOOP
        BEGIN
            EXECUTE format('SELECT hash_record_extended(ROW(NULL::%s), 0)', regexp_replace(types[place], ' COLLATE .*$', ''));
            hashed := hashed || place;
        EXCEPTION WHEN undefined_function THEN
            CONTINUE;
        END;
    END LOOP;
    RETURN hashed;
END
$$;
COMMENT ON FUNCTION idivm.lookup(text[], text[], integer[]) IS
    'the positions of the columns by whose hash the rows of a change are found in the table of a view';

-- Give a table the index by which the rows of a change are found, under a name with a number, and drop others.
CREATE OR REPLACE FUNCTION idivm.index_lookup(view regclass, names text[], hashed integer[], number integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    expression text := CASE WHEN hashed <> '{}' THEN format('hash_record_extended(ROW(%s), (0)::bigint)', (
        SELECT string_agg(quote_ident(names[n]), ', ' ORDER BY o) FROM unnest(hashed) WITH ORDINALITY AS h (n, o))) END;
    found_index record;
BEGIN
    FOR found_index IN
        SELECT i.indexrelid::regclass AS name, pg_get_expr(i.indexprs, i.indrelid) AS expression
        FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
        WHERE i.indrelid = view AND c.relname LIKE '%\_idivm'
    LOOP
        IF found_index.expression = expression THEN
            expression := NULL;
        ELSE
            EXECUTE format('DROP INDEX %s', found_index.name);
        END IF;
    END LOOP;
    IF expression IS NOT NULL THEN
        EXECUTE format('CREATE INDEX %I ON %s ((%s))',
                       left((SELECT c.relname FROM pg_class c WHERE c.oid = view), 40) || '_' || number || '_idivm', view, expression);
    END IF;
END
$$;

-- Bring the table that users read in line with the plan of a view: the triggers of the content, the step that shows
-- changes, and with `fill` the rows. Otherwise the next refresh computes the content, and shows it. The caller holds the
-- lock of the view.
CREATE OR REPLACE FUNCTION idivm.set_table(view_id integer, fill boolean) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET client_min_messages = warning
AS $$
DECLARE
    v idivm.views := (SELECT planned FROM idivm.views planned WHERE planned.id = view_id);
    base text := 't' || view_id;
    log text := format('idivm_feed.%I', base);
    rows text := format('idivm_feed.%I', base || '_rows');
    columns record := idivm.columns_shown(v.definition);
    key integer[];
    hashed integer[];
    column_names text[];
BEGIN
    IF v.options ->> 'relation' IS DISTINCT FROM 'table' THEN
        RETURN;
    END IF;
    IF idivm.kind_of(v.state) <> 'TABLE' THEN
        RAISE feature_not_supported USING
            MESSAGE = format('%s cannot be a table, as no table stores its rows', v.relation),
            HINT = 'Create it with another strategy, or leave out relation = table.';
    END IF;
    IF 2 * cardinality(columns.names) + 2 > 1600 THEN
        RAISE feature_not_supported USING
            MESSAGE = format('%s has more than 799 columns, so that its changes do not fit into a row', v.relation),
            HINT = 'Leave out relation = table.';
    END IF;
    column_names := idivm.table_columns(v.relation);
    key := coalesce(idivm.key_positions(v.state, columns.names), idivm.key_positions(v.relation, column_names));
    hashed := idivm.lookup(columns.names, columns.types, key);
    PERFORM idivm.drop_table_log(view_id);
    EXECUTE format('CREATE UNLOGGED TABLE %s (kind "char" NOT NULL, depth integer, %s)', log,
                   (SELECT string_agg(format('o_%1$s %2$s, n_%1$s %2$s', t.number, t.name), ', ' ORDER BY t.number)
                    FROM unnest(columns.types) WITH ORDINALITY AS t (name, number)));
    EXECUTE format('CREATE VIEW %s AS SELECT %s FROM %s AS t', rows, idivm.feed_columns(columns.names, 't.%2$I AS c_%1$s'), v.state);
    PERFORM idivm.append_changes(v.state, 'idivm_feed.' || base, 'idivm_table', log, columns.names, '', '', '',
                                 format('EXISTS (SELECT FROM %s WHERE kind = ''W'')', log));
    EXECUTE format('CREATE OR REPLACE FUNCTION idivm_feed.%I(shown regclass, whole boolean) RETURNS bigint'
                   ' LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS %L', base || '_show',
                   format(E'\nBEGIN\n    IF NOT whole AND NOT EXISTS (SELECT FROM %s) THEN\n        RETURN 0;\n    END IF;\n'
                          '    RETURN idivm.show_changes(shown, %L, %L, %L, %L, whole);\nEND\n',
                          log, base, cardinality(columns.names), key, hashed));
    EXECUTE format('REVOKE ALL ON FUNCTION idivm_feed.%I(regclass, boolean) FROM PUBLIC', base || '_show');
    -- Planning the statement takes longer than running it. So a session plans it once, unless the table or a column
    -- got another name since.
    EXECUTE format('CREATE OR REPLACE FUNCTION idivm_feed.%I(shown regclass, names text[], OUT changed bigint, OUT lost bigint)'
                   ' LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS %L', base || '_apply',
                   format(E'\nBEGIN\n    IF shown::text = %L AND names = %L THEN\n        %s\n        INTO changed, lost;\n    END IF;\nEND\n',
                          v.relation::text, column_names, idivm.showing(v.relation, log, column_names, key, hashed)));
    EXECUTE format('REVOKE ALL ON FUNCTION idivm_feed.%I(regclass, text[]) FROM PUBLIC', base || '_apply');
    PERFORM idivm.index_lookup(v.relation, column_names, hashed, view_id);
    PERFORM idivm.move_indexes(v.relation);
    PERFORM idivm.hand_over(view_id);
    IF fill THEN
        PERFORM idivm.show_table(view_id, true);
    ELSE
        EXECUTE format('INSERT INTO %s (kind) VALUES (''W'')', log);
    END IF;
END
$$;
COMMENT ON FUNCTION idivm.set_table(integer, boolean) IS
    'brings the table that shows a maintained view in line with the plan of the view';

-- Create the indexes that users had on the content of a view on the table that they read from now on.
CREATE OR REPLACE FUNCTION idivm.move_indexes(view regclass) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    wanted idivm.view_indexes;
BEGIN
    FOR wanted IN SELECT * FROM idivm.view_indexes i WHERE i.relation = view ORDER BY i.name LOOP
        EXECUTE format('CREATE %sINDEX %I ON %s %s', CASE WHEN wanted.is_unique THEN 'UNIQUE ' END, wanted.name, view, wanted.definition);
        IF wanted.comment IS NOT NULL THEN
            EXECUTE format('COMMENT ON INDEX %s.%I IS %L', (SELECT c.relnamespace::regnamespace FROM pg_class c WHERE c.oid = view),
                           wanted.name, wanted.comment);
        END IF;
    END LOOP;
    DELETE FROM idivm.view_indexes i WHERE i.relation = view;
END
$$;

-- Store the indexes of a table that becomes a view, for the content, and say what the view cannot have.
CREATE OR REPLACE FUNCTION idivm.keep_indexes(view regclass) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    index record;
BEGIN
    FOR index IN
        SELECT i.indexrelid AS oid, EXISTS (SELECT FROM idivm.index_code(i.indexrelid)) AS has_code
        FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
        WHERE i.indrelid = view AND c.relname NOT LIKE '%\_idivm' ORDER BY i.indexrelid
    LOOP
        IF NOT index.has_code THEN
            PERFORM idivm.note_index(view, index.oid);
        END IF;
    END LOOP;
    IF EXISTS (SELECT FROM pg_constraint k WHERE view IN (k.conrelid, k.confrelid) AND k.contype <> 'n')
       OR EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = view AND NOT t.tgisinternal AND t.tgname NOT IN ('idivm_maintained', 'idivm_columns'))
       OR EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = view) OR EXISTS (SELECT FROM pg_statistic_ext e WHERE e.stxrelid = view)
       OR EXISTS (SELECT FROM pg_publication_rel p WHERE p.prrelid = view) THEN
        RAISE NOTICE '% becomes a view, and loses its constraints, triggers, policies, statistics and publications', view;
    END IF;
END
$$;
COMMENT ON FUNCTION idivm.keep_indexes(regclass) IS 'stores the indexes of a table that becomes a view';

-- Drop the objects that carry changes to the table of a view. Triggers of the content may still call the functions,
-- which idivm.set_table creates again.
CREATE OR REPLACE FUNCTION idivm.drop_table_log(view_id integer, functions boolean DEFAULT false) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET client_min_messages = warning
AS $$
DECLARE
    called regprocedure;
BEGIN
    EXECUTE format('DROP VIEW IF EXISTS idivm_feed.%I', 't' || view_id || '_rows');
    EXECUTE format('DROP TABLE IF EXISTS idivm_feed.%I', 't' || view_id);
    IF functions THEN
        FOR called IN
            SELECT p.oid FROM pg_proc p
            WHERE p.pronamespace = 'idivm_feed'::regnamespace AND p.proname LIKE 't' || view_id || '\_%'
        LOOP
            EXECUTE format('DROP FUNCTION %s CASCADE', called);
        END LOOP;
    END IF;
END
$$;

-- Drop the table of a view whose definition is gone. DROP ... CASCADE would have dropped a view that users read with its
-- definition, but PostgreSQL knows no such dependence of a table.
CREATE OR REPLACE FUNCTION idivm.drop_lost_table(view_id integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    lost regclass := (SELECT v.relation FROM idivm.views v JOIN pg_class c ON c.oid = v.relation AND c.relkind = 'r'
                      WHERE v.id = view_id AND v.status <> 'building' AND NOT EXISTS (SELECT FROM pg_class d WHERE d.oid = v.definition));
BEGIN
    IF lost IS NOT NULL THEN
        EXECUTE format('DROP TABLE %s CASCADE', lost);
    END IF;
END
$$;

-- Give the objects that carry changes to the table of a view to their owners: the step that shows changes to the owner
-- of the table, the view of the rows to the owner of the definition, everything else to the owner of the catalog. A
-- role may only own a function in a schema in which it may create.
CREATE OR REPLACE FUNCTION idivm.give_table(view_id integer) RETURNS void
    LANGUAGE plpgsql STRICT SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    base text := 't' || view_id;
    object record;
    lends boolean;
    reader text;
BEGIN
    FOR object IN
        SELECT had.kind, had.name, gets.owner
        FROM idivm.views v
        JOIN pg_class r ON r.oid = v.relation
        JOIN pg_class d ON d.oid = v.definition
        JOIN pg_namespace s ON s.nspname = 'idivm_feed'
        CROSS JOIN LATERAL (
            SELECT 'FUNCTION', p.oid::regprocedure::text, p.proowner,
                   CASE WHEN p.proname = base || '_show' THEN r.relowner ELSE s.nspowner END
            FROM pg_proc p WHERE p.pronamespace = s.oid AND p.proname LIKE base || '\_%'
            UNION ALL
            SELECT CASE c.relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END, c.oid::regclass::text, c.relowner,
                   CASE c.relkind WHEN 'v' THEN d.relowner ELSE s.nspowner END
            FROM pg_class c WHERE c.relnamespace = s.oid AND c.relkind IN ('r', 'v') AND c.relname IN (base, base || '_rows')
        ) AS had (kind, name, owner, wanted)
        CROSS JOIN LATERAL (SELECT had.wanted::regrole AS owner) AS gets
        WHERE v.id = view_id AND had.owner <> had.wanted
    LOOP
        lends := NOT has_schema_privilege(object.owner::oid, 'idivm_feed', 'CREATE');
        IF lends THEN
            EXECUTE format('GRANT CREATE ON SCHEMA idivm_feed TO %s', object.owner);
        END IF;
        EXECUTE format('ALTER %s %s OWNER TO %s', object.kind, object.name, object.owner);
        IF lends THEN
            EXECUTE format('REVOKE CREATE ON SCHEMA idivm_feed FROM %s', object.owner);
        END IF;
    END LOOP;
    IF to_regclass(format('idivm_feed.%I', base)) IS NULL THEN
        RETURN;
    END IF;
    reader := (SELECT c.relowner::regrole FROM idivm.views v JOIN pg_class c ON c.oid = v.relation WHERE v.id = view_id);
    EXECUTE format('GRANT SELECT, INSERT, DELETE ON idivm_feed.%I TO %s', base, reader);
    EXECUTE format('GRANT SELECT ON idivm_feed.%I TO %s', base || '_rows', reader);
    IF to_regprocedure(format('idivm_feed.%I(regclass, text[])', base || '_apply')) IS NOT NULL THEN
        EXECUTE format('GRANT EXECUTE ON FUNCTION idivm_feed.%I(regclass, text[]) TO %s', base || '_apply', reader);
    END IF;
    EXECUTE format('GRANT EXECUTE ON FUNCTION idivm_feed.%I(regclass, boolean) TO %s', base || '_show',
                   (SELECT s.nspowner::regrole FROM pg_namespace s WHERE s.nspname = 'idivm_feed'));
    IF NOT has_schema_privilege(reader, 'idivm', 'USAGE') THEN
        EXECUTE format('GRANT USAGE ON SCHEMA idivm TO %s', reader);
    END IF;
END
$$;
COMMENT ON FUNCTION idivm.give_table(integer) IS
    'gives the objects that carry changes to the table of a view to their owners';

-- Show the changes of a refresh in the table that users read, or with `whole` all rows. The owner of the table may be
-- another one by now.
CREATE OR REPLACE FUNCTION idivm.show_table(view_id integer, whole boolean) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v record;
BEGIN
    SELECT planned.relation AS view, c.relowner <> p.proowner AS is_given INTO v
    FROM idivm.views planned JOIN pg_class c ON c.oid = planned.relation AND c.relkind = 'r'
    LEFT JOIN pg_proc p ON p.pronamespace = 'idivm_feed'::regnamespace AND p.proname = 't' || planned.id || '_show'
    WHERE planned.id = view_id;
    IF v.view IS NULL OR v.is_given IS NULL THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = format('parts of %s are gone, by which refreshes reach the table',
                             (SELECT planned.name FROM idivm.views planned WHERE planned.id = view_id)),
            HINT = 'Run idivm doctor, which makes them again.';
    END IF;
    IF v.is_given THEN
        PERFORM idivm.hand_over(view_id);
    END IF;
    EXECUTE format('SELECT idivm_feed.%I($1, $2)', 't' || view_id || '_show') USING v.view, whole;
END
$$;
COMMENT ON FUNCTION idivm.show_table(integer, boolean) IS
    'shows what a refresh has changed in the table that users read';

-- Return whether the table that users read has its columns and its guard, and the parts by which refreshes reach it.
CREATE OR REPLACE FUNCTION idivm.table_is_whole(view_id integer) RETURNS boolean
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT idivm.kind_of(v.relation) = 'TABLE' AND to_regclass('idivm_feed.t' || v.id) IS NOT NULL
       AND to_regclass(format('idivm_feed.t%s_rows', v.id)) IS NOT NULL
       AND to_regprocedure(format('idivm_feed.t%s_show(regclass, boolean)', v.id)) IS NOT NULL
       AND (SELECT count(*) = 2 FROM pg_trigger t WHERE t.tgrelid = v.relation AND t.tgname IN ('idivm_maintained', 'idivm_columns') AND t.tgenabled <> 'D')
       AND (SELECT count(*) = 3 FROM pg_trigger t WHERE t.tgrelid = v.state AND t.tgname LIKE 'idivm\_table\_%' AND t.tgenabled = 'A')
       AND cardinality(idivm.table_columns(v.relation)) = cardinality((idivm.columns_shown(v.definition)).names)
    FROM idivm.views v WHERE v.id = view_id
$$;
COMMENT ON FUNCTION idivm.table_is_whole(integer) IS
    'whether the table that users read, and the parts by which refreshes reach it, are there';

-- Return why changes cannot be shown in a table: what would change the rows on their way, run after the refresh with
-- the rights of others, or call code that the owner of the table does not trust. Before PostgreSQL 18, deferred triggers
-- run with the rights of the role that commits. The code of the table could queue some, so this role has to trust it.
CREATE OR REPLACE FUNCTION idivm.unfit_table(view regclass, OUT reason text, OUT remedy text)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    code record;
BEGIN
    -- Most tables have nothing of all this: only the two triggers of idivm, and indexes without code of users.
    IF (SELECT NOT c.relhasrules AND NOT EXISTS (SELECT FROM pg_attrdef a WHERE a.adrelid = c.oid)
               AND (SELECT count(*) = 2 FROM pg_trigger t WHERE t.tgrelid = c.oid)
               AND NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conrelid = c.oid AND (k.contype NOT IN ('n', 'p', 'u') OR k.condeferred))
               AND NOT EXISTS (SELECT FROM pg_index i
                               JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = i.indexrelid AND d.refobjid >= 16384
                                               AND d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass)
                               WHERE i.indrelid = c.oid)
        FROM pg_class c WHERE c.oid = view) THEN
        RETURN;
    END IF;
    SELECT format('the trigger %I of %s runs BEFORE each row, and could change or skip it', t.tgname, view), 'Make it an AFTER trigger.'
    INTO reason, remedy FROM pg_trigger t
    WHERE t.tgrelid = view AND NOT t.tgisinternal AND t.tgtype & 3 = 3 AND t.tgenabled <> 'D';
    IF reason IS NULL THEN
        SELECT format('the rule %I of %s could change what is written to it', r.rulename, view), 'Drop the rule.'
        INTO reason, remedy FROM pg_rewrite r WHERE r.ev_class = view;
    END IF;
    IF reason IS NULL THEN
        SELECT format('the constraint trigger %I of %s can be deferred to the commit, where it would run with the rights of'
                      ' whoever refreshes', t.tgname, view), 'Make it NOT DEFERRABLE.'
        INTO reason, remedy FROM pg_trigger t WHERE t.tgrelid = view AND NOT t.tgisinternal AND t.tgdeferrable AND t.tgenabled <> 'D';
    END IF;
    IF reason IS NULL THEN
        SELECT format('the constraint %I of %s is deferred to the commit, where it would end the transaction that refreshes %s',
                      k.conname, k.conrelid::regclass, view),
               'Make it NOT DEFERRABLE: idivm lets a value move from one row to another nevertheless.'
        INTO reason, remedy FROM pg_constraint k WHERE view IN (k.conrelid, k.confrelid) AND k.condeferred;
    END IF;
    IF reason IS NULL THEN
        SELECT format('the foreign key %I of %s would change rows of that table when %s changes', k.conname, k.conrelid::regclass, view),
               'Let it have no ON DELETE and no ON UPDATE action.'
        INTO reason, remedy FROM pg_constraint k
        WHERE k.confrelid = view AND (k.confdeltype IN ('c', 'n', 'd') OR k.confupdtype IN ('c', 'n', 'd'));
    END IF;
    IF reason IS NOT NULL THEN
        RETURN;
    END IF;
    FOR code IN
        SELECT used.description, p.oid::regprocedure AS function, p.proowner AS owner
        FROM (
            SELECT pg_describe_object('pg_trigger'::regclass, t.oid, 0), t.tgfoid
            FROM pg_trigger t WHERE t.tgrelid = view AND NOT t.tgisinternal AND t.tgenabled <> 'D'
            UNION ALL
            SELECT pg_describe_object(d.classid, d.objid, 0), coalesce(o.oprcode::oid, d.refobjid)
            FROM (
                SELECT 'pg_constraint'::regclass::oid, k.oid FROM pg_constraint k WHERE k.conrelid = view AND k.contype IN ('c', 'x')
                UNION ALL
                SELECT 'pg_class'::regclass, i.indexrelid FROM pg_index i WHERE i.indrelid = view
                UNION ALL
                SELECT 'pg_attrdef'::regclass, a.oid FROM pg_attrdef a WHERE a.adrelid = view
            ) AS part (class, object)
            JOIN pg_depend d ON d.classid = part.class AND d.objid = part.object
                            AND d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass) AND d.refobjid >= 16384
            LEFT JOIN pg_operator o ON d.refclassid = 'pg_operator'::regclass AND o.oid = d.refobjid
        ) AS used (description, function)
        JOIN pg_proc p ON p.oid = used.function
        JOIN pg_namespace n ON n.oid = p.pronamespace AND n.nspname <> 'idivm'
        WHERE p.proowner <> current_user::regrole
           OR current_setting('server_version_num')::integer < 180000 AND session_user <> current_user
    LOOP
        SELECT format('the %s calls %s of the role %s, which the role %s does not trust', code.description, code.function,
                      code.owner::regrole, who.role),
               format('GRANT %s TO %s if such code may run with the rights of %2$s, or let another role own it.', code.owner::regrole, who.role)
        INTO reason, remedy
        FROM (SELECT current_user::regrole AS role
              UNION SELECT session_user::regrole WHERE current_setting('server_version_num')::integer < 180000) AS who
        WHERE NOT idivm.trusts(who.role, code.owner) LIMIT 1;
        EXIT WHEN reason IS NOT NULL;
    END LOOP;
END
$$;
COMMENT ON FUNCTION idivm.unfit_table(regclass) IS 'why the changes of a view cannot be shown in its table';

-- Apply the logged changes to a table, or with `whole` the difference between the table and the rows of the content.
-- `key` and `hashed` are positions of columns. The function runs with the rights of the table's owner.
CREATE OR REPLACE FUNCTION idivm.show_changes(view regclass, base text, width integer, key integer[], hashed integer[], whole boolean)
    RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET row_security = off SET extra_float_digits = 1 SET jit = off
    SET enable_nestloop = on SET enable_mergejoin = on SET enable_seqscan = on
AS $$
DECLARE
    log text := format('idivm_feed.%I', base);
    rows text := format('idivm_feed.%I', base || '_rows');
    names text[] := idivm.table_columns(view);
    numbered text[] := ARRAY(SELECT 'c_' || n FROM generate_series(1, width) AS n);
    unfit record;
    is_logged boolean;
    statement text;
    has_rows boolean;
    state text;
    message text;
    changed bigint;
    lost bigint;
    -- It takes the two arguments that it compares, and returns nothing if it was made for others.
    apply text := CASE WHEN to_regprocedure(format('idivm_feed.%I(regclass, text[])', base || '_apply')) IS NOT NULL
                       THEN format('SELECT a.changed, a.lost FROM idivm_feed.%I($1, $2) AS a', base || '_apply') END;
BEGIN
    EXECUTE format('SELECT EXISTS (SELECT FROM %1$s), $1 OR EXISTS (SELECT FROM %1$s AS l WHERE l.kind = ''W'')', log)
    INTO is_logged, whole USING whole;
    IF NOT whole AND NOT is_logged THEN
        RETURN 0;
    END IF;
    IF cardinality(names) IS DISTINCT FROM width THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = format('the columns of %s are no longer those of its query', view),
            HINT = 'Run idivm doctor, which gives it these columns.';
    END IF;
    unfit := idivm.unfit_table(view);
    IF unfit.reason IS NOT NULL THEN
        RAISE object_not_in_prerequisite_state USING MESSAGE = unfit.reason, HINT = unfit.remedy;
    END IF;
    IF whole THEN
        EXECUTE 'DELETE FROM ' || log;
        EXECUTE format('SELECT EXISTS (SELECT FROM %s)', view) INTO has_rows;
        IF NOT has_rows THEN
            statement := format('WITH added AS (INSERT INTO %s (%s) SELECT %s FROM %s AS r RETURNING 1)'
                                ' SELECT count(*) AS changed, 0 AS lost FROM added', view, idivm.feed_columns(names, '%2$I'),
                                idivm.feed_columns(numbered, 'r.%2$I'), rows);
        ELSIF NOT idivm.log_difference(log, '', '', view, names, rows, numbered) THEN
            RETURN 0;
        END IF;
    END IF;
    -- PostgreSQL does not know how many changes there are, and could compare each with each, nor how many rows the table
    -- will have in later refreshes of the session. These settings are for the plan of the statement alone: the first
    -- trigger restores them.
    SET LOCAL enable_nestloop = off;
    SET LOCAL enable_mergejoin = off;
    SET LOCAL enable_seqscan = off;
    EXECUTE format('INSERT INTO %s (kind, depth) VALUES (''M'', $1)', log) USING pg_trigger_depth();
    BEGIN
        IF statement IS NULL AND apply IS NOT NULL THEN
            EXECUTE apply INTO changed, lost USING view, names;
        END IF;
        IF changed IS NULL THEN
            EXECUTE coalesce(statement, idivm.showing(view, log, names, key, hashed)) INTO changed, lost;
        END IF;
    EXCEPTION WHEN integrity_constraint_violation THEN
        -- A value may have moved from one row to another. So remove all rows that change before inserting any.
        BEGIN
            EXECUTE coalesce(statement, idivm.showing(view, log, names, NULL, hashed)) INTO changed, lost;
        EXCEPTION WHEN integrity_constraint_violation THEN
            GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT;
            RAISE EXCEPTION USING
                ERRCODE = state, MESSAGE = format('the rows of %s break a constraint that was put on it: %s', view, message),
                HINT = 'Drop the constraint, or correct the rows of the tables that the view reads.';
        END;
    END;
    EXECUTE 'DELETE FROM ' || log;
    IF lost > 0 THEN
        -- Some rows were not there. Compare everything.
        RETURN changed + idivm.show_changes(view, base, width, key, hashed, true);
    END IF;
    RETURN changed;
END
$$;
COMMENT ON FUNCTION idivm.show_changes(regclass, text, integer, integer[], integer[], boolean) IS
    'applies the changes of a refresh to the table that users read';

-- Return the statement that applies the net of the logged changes to a table. Rows are compared by the text of all
-- values. A row that leaves and a row with the same key that comes are an update; without a key, there are no updates.
CREATE OR REPLACE FUNCTION idivm.showing(view regclass, log text, names text[], key integer[], hashed integer[]) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT format(
        'WITH gone AS MATERIALIZED (SELECT q.*, row_number() OVER (PARTITION BY q.image) AS nth FROM ('
        'SELECT %3$s, ROW(%4$s)::text AS image FROM %2$s AS l WHERE l.kind IN (''D'', ''U'')) AS q'
        '), come AS MATERIALIZED (SELECT q.*, row_number() OVER (PARTITION BY q.image) AS nth FROM ('
        'SELECT %5$s, ROW(%6$s)::text AS image FROM %2$s AS l WHERE l.kind IN (''I'', ''U'')) AS q'
        '), fewer AS MATERIALIZED (SELECT g.image, g.nth, %7$s AS key, %8$s AS hash FROM gone AS g'
        ' WHERE NOT EXISTS (SELECT FROM come AS c WHERE c.image = g.image AND c.nth = g.nth)'
        '), more AS MATERIALIZED (SELECT g.*, %7$s AS key FROM come AS g'
        ' WHERE NOT EXISTS (SELECT FROM gone AS c WHERE c.image = g.image AND c.nth = g.nth)'
        '), present AS MATERIALIZED (SELECT t.ctid AS place, d.image, row_number() OVER (PARTITION BY d.image) AS nth'
        ' FROM (SELECT DISTINCT f.image, f.hash FROM fewer AS f) AS d'
        ' CROSS JOIN LATERAL (SELECT t.ctid FROM %1$s AS t WHERE %9$s = d.hash AND ROW(%10$s)::text = d.image OFFSET 0) AS t'
        '), found AS MATERIALIZED (SELECT p.place, f.key FROM fewer AS f JOIN present AS p ON p.image = f.image AND p.nth = f.nth'
        '), pairs AS MATERIALIZED (SELECT f.place, m.* FROM found AS f JOIN more AS m ON m.key = f.key'
        '), removed AS (DELETE FROM %1$s AS t WHERE t.ctid = ANY (ARRAY(SELECT f.place FROM found AS f'
        ' WHERE NOT EXISTS (SELECT FROM more AS m WHERE m.key = f.key))) RETURNING 1'
        '), altered AS (UPDATE %1$s AS t SET %11$s FROM pairs AS m'
        ' WHERE t.ctid = ANY (ARRAY(SELECT p.place FROM pairs AS p)) AND t.ctid = m.place'
        ' AND (SELECT count(*) FROM removed) >= 0 RETURNING 1'
        '), added AS (INSERT INTO %1$s (%12$s) SELECT %13$s FROM more AS m'
        ' WHERE NOT EXISTS (SELECT FROM found AS f WHERE f.key = m.key)'
        ' AND (SELECT count(*) FROM removed) >= 0 AND (SELECT count(*) FROM altered) >= 0 RETURNING 1'
        ') SELECT (SELECT count(*) FROM removed) + (SELECT count(*) FROM altered) + (SELECT count(*) FROM added) AS changed,'
        ' (SELECT count(*) FROM fewer) - (SELECT count(*) FROM found) AS lost',
        view, log,
        idivm.feed_columns(names, 'l.o_%1$s AS c_%1$s'), idivm.feed_columns(names, 'l.o_%1$s'),
        idivm.feed_columns(names, 'l.n_%1$s AS c_%1$s'), idivm.feed_columns(names, 'l.n_%1$s'),
        CASE WHEN key IS NULL THEN 'NULL::text'
             ELSE format('ROW(%s)::text', (SELECT string_agg('g.c_' || n, ', ' ORDER BY o) FROM unnest(key) WITH ORDINALITY AS k (n, o))) END,
        CASE WHEN hashed = '{}' THEN '0'
             ELSE format('hash_record_extended(ROW(%s), 0)', (
                 SELECT string_agg('g.c_' || n, ', ' ORDER BY o) FROM unnest(hashed) WITH ORDINALITY AS h (n, o))) END,
        CASE WHEN hashed = '{}' THEN '0'
             ELSE format('hash_record_extended(ROW(%s), 0)', (
                 SELECT string_agg(format('t.%I', names[n]), ', ' ORDER BY o) FROM unnest(hashed) WITH ORDINALITY AS h (n, o))) END,
        idivm.feed_columns(names, 't.%2$I'),
        idivm.feed_columns(names, '%2$I = m.c_%1$s'), idivm.feed_columns(names, '%2$I'), idivm.feed_columns(names, 'm.c_%1$s'))
$$;
COMMENT ON FUNCTION idivm.showing(regclass, text, text[], integer[], integer[]) IS
    'the statement that applies the net of the logged changes to the table of a view';

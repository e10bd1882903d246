-- Streams: tables whose rows stay in files. PostgreSQL holds what the views over them need.
--
-- A batch of files inserts its rows, so that constraints check them and capture logs them for the views, and empties
-- the table in the same transaction. Nobody ever sees rows in the table, except a session that recomputes a view:
-- it puts all rows back for one transaction (orchestrator/runtime/stream_rows.py).

-- The rows are put back as a temporary table below the stream.
CREATE OR REPLACE FUNCTION idivm.lacks_rows(relation oid) RETURNS boolean
    LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT idivm.is_stream(relation) AND NOT EXISTS (
        SELECT FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = relation AND c.relnamespace = pg_my_temp_schema());
END;
COMMENT ON FUNCTION idivm.lacks_rows(oid) IS 'whether the rows of a table are in files only, so that no query may read it';

-- Return a stream that a view reads whose rows are in files only.
CREATE OR REPLACE FUNCTION idivm.stream_without_rows(view_id integer) RETURNS regclass
    LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT s.relation FROM idivm.view_sources vs JOIN idivm.sources s ON s.id = vs.source
    WHERE vs.view = view_id AND idivm.lacks_rows(s.relation) ORDER BY s.relation LIMIT 1;
END;

CREATE OR REPLACE FUNCTION idivm.guard_stream() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM idivm.streams s WHERE s.relation = tg_relid AND s.writer = pg_current_xact_id_if_assigned()) THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = format('%I.%I is a stream, whose rows are in files and not in PostgreSQL', tg_table_schema, tg_table_name),
            HINT = 'Write new files, and load them by idivm stream run.';
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION idivm.guard_stream() IS 'refuses writes to a stream that no batch makes';

CREATE OR REPLACE FUNCTION idivm.create_stream(
    name text, columns text, paths text[], format text DEFAULT 'auto', options jsonb DEFAULT '{}', op text DEFAULT NULL,
    condition text DEFAULT NULL, items text DEFAULT NULL,
    path text DEFAULT pg_catalog.current_setting('search_path'))
    RETURNS regclass
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    qualified_name text := idivm.name_to_create(name, path);
    created regclass;
    kept text;
BEGIN
    IF NOT idivm.may_change_catalog() THEN
        RAISE insufficient_privilege USING
            MESSAGE = 'only the owner of idivm''s catalog may create a stream',
            HINT = format('Ask the role %s.', (SELECT n.nspowner::regrole FROM pg_namespace n WHERE n.nspname = 'idivm'));
    ELSIF coalesce(cardinality(paths), 0) = 0 OR array_position(paths, NULL) IS NOT NULL THEN
        RAISE invalid_parameter_value USING MESSAGE = format('name the files of the stream %s', name);
    ELSIF format NOT IN ('auto', 'csv', 'json', 'parquet', 'orc') THEN
        RAISE invalid_parameter_value USING
            MESSAGE = format('a stream cannot read the format %s', format), HINT = 'Take csv, json, parquet or orc.';
    END IF;
    PERFORM set_config('search_path', path, true);
    EXECUTE format('CREATE TABLE %s (%s)', qualified_name, columns);
    PERFORM set_config('search_path', 'pg_catalog, pg_temp', true);
    created := qualified_name::regclass;
    kept := CASE
        WHEN EXISTS (SELECT FROM pg_constraint c WHERE c.conrelid = created AND c.contype IN ('p', 'u', 'x'))
            THEN 'a key'
        WHEN EXISTS (SELECT FROM pg_constraint c WHERE c.conrelid = created AND c.contype = 'f')
            THEN 'a foreign key'
        WHEN EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = created AND (a.atthasdef OR a.attidentity <> ''))
            THEN 'a default or computed column'
        WHEN EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = created)
            OR (SELECT c.relkind <> 'r' OR c.relpersistence <> 'p' FROM pg_class c WHERE c.oid = created)
            THEN 'another kind of table'
    END;
    IF kept IS NOT NULL THEN
        RAISE feature_not_supported USING
            MESSAGE = format('a stream cannot have %s, as PostgreSQL does not hold its rows', kept),
            HINT = 'Name the columns with their types, NOT NULL and CHECK.';
    END IF;
    EXECUTE format('CREATE TRIGGER idivm_stream BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s'
                   ' FOR EACH STATEMENT EXECUTE FUNCTION idivm.guard_stream()', created);
    EXECUTE format('COMMENT ON TABLE %s IS %L', created,
                   format('The rows of this stream are in files (%s): SELECT finds none, views over it do.', array_to_string(paths, ', ')));
    DELETE FROM idivm.streams s
    WHERE s.name = qualified_name AND NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = s.relation);
    INSERT INTO idivm.streams (name, relation, source, reading)
    VALUES (qualified_name, created, array_to_string(paths, ', '),
            jsonb_strip_nulls(jsonb_build_object('paths', paths, 'format', format, 'options', options, 'op', op,
                                                 'where', condition, 'select', items)));
    RETURN created;
END
$$;
COMMENT ON FUNCTION idivm.create_stream(text, text, text[], text, jsonb, text, text, text, text) IS
    'creates a table whose rows stay in files';

CREATE OR REPLACE FUNCTION idivm.drop_stream(stream regclass) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT idivm.is_stream(stream) THEN
        RAISE undefined_object USING
            MESSAGE = format('%s is not a stream whose rows stay in files', stream), HINT = 'Use DROP TABLE, or idivm stream remove.';
    END IF;
    DELETE FROM idivm.streams s WHERE s.relation = stream;
    EXECUTE format('DROP TABLE %s', stream);
END
$$;
COMMENT ON FUNCTION idivm.drop_stream(regclass) IS 'drops a table whose rows stay in files, and what is known of the files';

-- Let this transaction write to a stream. It waits for a session that recomputes a view from the files.
CREATE OR REPLACE FUNCTION idivm.open_batch(stream regclass) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(idivm.lock_class(), -s.id) FROM idivm.streams s WHERE s.relation = stream;
    UPDATE idivm.streams s SET writer = pg_current_xact_id() WHERE s.relation = stream;
END
$$;
COMMENT ON FUNCTION idivm.open_batch(regclass) IS 'lets this transaction write to a stream';

-- Empty a stream after a batch. The new file of the table never was unlogged, as a rewritten table may have been.
CREATE OR REPLACE FUNCTION idivm.close_batch(stream regclass) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    EXECUTE format('TRUNCATE ONLY %s', stream);
    UPDATE idivm.source_members m SET file = c.relfilenode FROM pg_class c WHERE m.member = stream AND c.oid = stream;
    UPDATE idivm.streams s SET writer = NULL WHERE s.relation = stream;
END
$$;
COMMENT ON FUNCTION idivm.close_batch(regclass) IS 'empties a stream, whose views have the rows in their logs';

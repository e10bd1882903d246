-- Change feeds: triggers on the table that holds a content append what each statement changes. So whatever changes the
-- content appends to the feed: diffs, recomputes, repairs, in every mode.
--
-- All changes of a feed in one transaction are one refresh. Its number comes from a sequence while the transaction
-- holds the row of the feed, until its end. So numbers are in the order of commits, and a reader who has seen a
-- number never finds a smaller one later.
--
-- The triggers run with the rights of the catalog's owner, and call no code of users: they copy values into columns of
-- the same types. Readers get them through a view that asks for their right to read the maintained view, and turns
-- them into JSON with the rights of the reader.

-- Return the number of this transaction's refresh of a feed, and begin it if it is the first change.
CREATE OR REPLACE FUNCTION idivm.feed_refresh(feed integer) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    number bigint;
BEGIN
    -- A restored dump may hold the number of this transaction, but not its time.
    WITH begun AS (
        UPDATE idivm_feed.feeds f
        SET refresh = nextval('idivm_feed.refresh_numbers'), xid = pg_current_xact_id(), at = transaction_timestamp()
        WHERE f.id = feed_refresh.feed AND (f.xid = pg_current_xact_id() AND f.at = transaction_timestamp()) IS NOT TRUE
        RETURNING f.refresh
    )
    INSERT INTO idivm_feed.refreshes AS r
    SELECT feed_refresh.feed, b.refresh, pg_current_xact_id(), clock_timestamp() FROM begun b
    RETURNING r.refresh INTO number;
    IF number IS NULL THEN
        RETURN (SELECT f.refresh FROM idivm_feed.feeds f WHERE f.id = feed_refresh.feed);
    ELSIF number % 256 = 0 THEN
        PERFORM idivm.trim_feed(feed);
    END IF;
    RETURN number;
END
$$;
COMMENT ON FUNCTION idivm.feed_refresh(integer) IS 'the number under which this transaction appends to a feed';

-- Return the columns that a feed appends, for a side of a change: o for old values, n for new values.
CREATE OR REPLACE FUNCTION idivm.feed_columns(columns text[], pattern text) RETURNS text
    LANGUAGE sql IMMUTABLE
    RETURN (SELECT string_agg(format(pattern, c.number, c.name), ', ' ORDER BY c.number)
            FROM unnest(columns) WITH ORDINALITY AS c (name, number));
COMMENT ON FUNCTION idivm.feed_columns(text[], text) IS
    'a list of columns: the pattern takes the number and the name of each';

-- Create a trigger on a content, and its function, which only the triggers of idivm may call.
CREATE OR REPLACE FUNCTION idivm.create_content_trigger(called text, name text, content regclass, event text, body text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    tables text := concat_ws(' ', CASE WHEN event <> 'insert' THEN 'OLD TABLE AS old_rows' END,
                             CASE WHEN event <> 'delete' THEN 'NEW TABLE AS new_rows' END);
BEGIN
    EXECUTE format('CREATE OR REPLACE FUNCTION %s RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER'
                   ' SET search_path = pg_catalog, pg_temp AS %L', called, body);
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', called);
    EXECUTE format('CREATE OR REPLACE TRIGGER %I AFTER %s ON %s REFERENCING %s FOR EACH STATEMENT EXECUTE FUNCTION %s',
                   name, event, content, tables, called);
    EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %I', content, name);
END
$$;

-- Give a content the triggers that append each change to a table: old values in the columns o_<n>, new values in n_<n>.
-- Old and new rows of an update are at the same positions of their transition tables. `prepare` is a statement that
-- runs before, `first` and `value` are a further column with its value, and under `condition` nothing is appended.
CREATE OR REPLACE FUNCTION idivm.append_changes(content regclass, functions text, triggers text, log text, columns text[],
                                                prepare text, first text, value text, condition text DEFAULT 'false')
    RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    old_columns text := idivm.feed_columns(columns, 'o_%1$s');
    new_columns text := idivm.feed_columns(columns, 'n_%1$s');
    old_values text := idivm.feed_columns(columns, 'o.%2$I');
    new_values text := idivm.feed_columns(columns, 'n.%2$I');
    head text := format(
        E'\nDECLARE\n    number bigint;\nBEGIN\n    IF EXISTS (SELECT FROM %%s) AND NOT (%s) THEN\n'
        '%s        INSERT INTO %s (%skind, %%s)\n        SELECT %s', condition, prepare, log, first, value);
    tail CONSTANT text := E';\n    END IF;\n    RETURN NULL;\nEND\n';
    -- A content may have columns of any name, also with the sign by which `format` finds its arguments.
    numbered text := format('(SELECT row_number() OVER () AS idivm_nth, %s FROM %%s AS t) AS %%s',
                            replace(idivm.feed_columns(columns, 't.%2$I AS c_%1$s'), '%', '%%'));
BEGIN
    PERFORM idivm.create_content_trigger(functions || '_insert()', triggers || '_insert', content, 'insert',
        format(head, 'new_rows', new_columns) || format('''I'', %s FROM new_rows AS n', new_values) || tail);
    PERFORM idivm.create_content_trigger(functions || '_delete()', triggers || '_delete', content, 'delete',
        format(head, 'old_rows', old_columns) || format('''D'', %s FROM old_rows AS o', old_values) || tail);
    PERFORM idivm.create_content_trigger(functions || '_update()', triggers || '_update', content, 'update',
        format(head, 'new_rows', old_columns || ', ' || new_columns)
        || format(E'''U'', %s, %s FROM %s JOIN %s USING (idivm_nth)\n'
                  '        WHERE ROW(%1$s)::record OPERATOR(pg_catalog.*<>) ROW(%2$s)::record',
                  idivm.feed_columns(columns, 'o.c_%1$s'), idivm.feed_columns(columns, 'n.c_%1$s'),
                  format(numbered, 'old_rows', 'o'), format(numbered, 'new_rows', 'n')) || tail);
END
$$;
COMMENT ON FUNCTION idivm.append_changes(regclass, text, text, text, text[], text, text, text, text) IS
    'gives a content the triggers that append its changes to a table';

-- Give a content the triggers that append to a feed.
CREATE OR REPLACE FUNCTION idivm.attach_feed(feed integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    f idivm_feed.feeds := (SELECT feed_row FROM idivm_feed.feeds feed_row WHERE feed_row.id = feed);
BEGIN
    PERFORM idivm.append_changes(f.content, 'idivm_feed.f' || feed, 'idivm_feed', format('idivm_feed.%I', 'f' || feed || '_' || f.epoch),
                                 f.columns, format(E'        number := idivm.feed_refresh(%s);\n', feed), 'refresh, ', 'number, ');
    PERFORM idivm.give_feed(feed);
END
$$;
COMMENT ON FUNCTION idivm.attach_feed(integer) IS 'gives the content of a view the triggers that append to its feed';

-- Give all objects of a feed to the owner of the catalog.
CREATE OR REPLACE FUNCTION idivm.give_feed(feed integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    statement text;
BEGIN
    FOR statement IN
        SELECT format('ALTER %s %s OWNER TO %s', object.kind, object.name, s.nspowner::regrole)
        FROM pg_namespace s
        CROSS JOIN LATERAL (
            SELECT 'FUNCTION', p.oid::regprocedure::text, p.proowner FROM pg_proc p
            WHERE p.pronamespace = s.oid AND p.proname LIKE 'f' || feed || '\_%'
            UNION ALL
            SELECT CASE c.relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END, c.oid::regclass::text, c.relowner FROM pg_class c
            WHERE c.relnamespace = s.oid AND c.relkind IN ('r', 'v') AND (c.relname = 'f' || feed OR c.relname LIKE 'f' || feed || '\_%')
        ) AS object (kind, name, owner)
        WHERE s.nspname = 'idivm_feed' AND object.owner <> s.nspowner
    LOOP
        EXECUTE statement;
    END LOOP;
END
$$;

-- Create the table for the columns that a feed has now, and the view through which readers see all its tables.
CREATE OR REPLACE FUNCTION idivm.begin_epoch(feed integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    f idivm_feed.feeds := (SELECT feed_row FROM idivm_feed.feeds feed_row WHERE feed_row.id = feed);
    log text := format('idivm_feed.%I', 'f' || feed || '_' || f.epoch);
BEGIN
    INSERT INTO idivm_feed.epochs VALUES (feed, f.epoch, f.columns);
    EXECUTE format('CREATE TABLE %s (refresh bigint NOT NULL, seq bigint GENERATED ALWAYS AS IDENTITY (CACHE 100), kind "char" NOT NULL, %s)',
                   log, (SELECT string_agg(format('o_%1$s %2$s, n_%1$s %2$s', t.number, t.name), ', ' ORDER BY t.number)
                         FROM unnest(f.types) WITH ORDINALITY AS t (name, number)));
    EXECUTE format('CREATE INDEX ON %s (refresh)', log);
    PERFORM idivm.show_feed(feed);
END
$$;

-- The relation of the feed is looked up with the rights of this view's owner, the right to read it with the reader's.
-- Policies of a view that is a table hide rows, and a feed has all of them.
CREATE OR REPLACE FUNCTION idivm.show_feed(feed integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    EXECUTE (
        SELECT format(
            'CREATE OR REPLACE VIEW idivm_feed.%I WITH (security_barrier) AS ', 'f' || show_feed.feed)
            || string_agg(format(
                'SELECT c.refresh, c.seq, CASE c.kind WHEN ''I'' THEN ''insert'' WHEN ''U'' THEN ''update'' WHEN ''D'' THEN ''delete'''
                ' ELSE ''restart'' END AS kind, r.at, r.xid,'
                ' CASE c.kind WHEN ''R'' THEN %5$L::jsonb WHEN ''I'' THEN NULL ELSE (SELECT to_jsonb(x.*) FROM (SELECT %3$s) AS x) END AS old,'
                ' CASE c.kind WHEN ''R'' THEN %6$L::jsonb WHEN ''D'' THEN NULL ELSE (SELECT to_jsonb(x.*) FROM (SELECT %4$s) AS x) END AS new'
                ' FROM idivm_feed.%1$I AS c JOIN idivm_feed.refreshes AS r ON r.feed = %2$s AND r.refresh = c.refresh'
                ' WHERE (SELECT has_table_privilege(f.relation, ''SELECT'') AND NOT row_security_active(f.relation)'
                ' FROM idivm_feed.feeds AS f WHERE f.id = %2$s)',
                'f' || show_feed.feed || '_' || e.epoch, show_feed.feed, idivm.feed_columns(e.columns, 'c.o_%1$s AS %2$I'),
                idivm.feed_columns(e.columns, 'c.n_%1$s AS %2$I'),
                (SELECT to_jsonb(b.columns) FROM idivm_feed.epochs b WHERE b.feed = e.feed AND b.epoch < e.epoch ORDER BY b.epoch DESC LIMIT 1),
                to_jsonb(e.columns)), ' UNION ALL ' ORDER BY e.epoch)
        FROM idivm_feed.epochs e WHERE e.feed = show_feed.feed);
    EXECUTE format('GRANT SELECT ON idivm_feed.%I TO PUBLIC', 'f' || show_feed.feed);
    PERFORM idivm.give_feed(show_feed.feed);
END
$$;

-- Append to a table what turns the rows of a relation into the rows of another relation, as bags of rows. The columns
-- are given in the same order. Return whether there is a difference.
CREATE OR REPLACE FUNCTION idivm.log_difference(log text, first text, value text, before regclass, before_columns text[],
                                                after regclass, after_columns text[])
    RETURNS boolean
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1
AS $$
DECLARE
    numbered CONSTANT text := '(SELECT r.*, row_number() OVER (PARTITION BY r.idivm_image) AS idivm_nth FROM ('
        'SELECT %s, ROW(%s)::text AS idivm_image FROM %s AS t) AS r)';
    old_rows text := format(numbered, idivm.feed_columns(before_columns, 't.%2$I AS c_%1$s'),
                            idivm.feed_columns(before_columns, 't.%2$I'), before);
    new_rows text := format(numbered, idivm.feed_columns(after_columns, 't.%2$I AS c_%1$s'),
                            idivm.feed_columns(after_columns, 't.%2$I'), after);
    side text;
    differs boolean;
BEGIN
    EXECUTE format('SELECT EXISTS (SELECT FROM %s AS o FULL JOIN %s AS n USING (idivm_image, idivm_nth)'
                   ' WHERE o.idivm_nth IS NULL OR n.idivm_nth IS NULL)', old_rows, new_rows)
    INTO differs;
    IF NOT differs THEN
        RETURN false;
    END IF;
    FOREACH side IN ARRAY '{o,n}'::text[] LOOP
        EXECUTE format(
            'INSERT INTO %s (%skind, %s) SELECT %s%L, %s FROM %s AS gone'
            ' WHERE NOT EXISTS (SELECT FROM %s AS kept WHERE kept.idivm_image = gone.idivm_image AND kept.idivm_nth = gone.idivm_nth)',
            log, first, idivm.feed_columns(before_columns, side || '_%1$s'), value, CASE side WHEN 'o' THEN 'D' ELSE 'I' END,
            idivm.feed_columns(before_columns, 'gone.c_%1$s'),
            CASE side WHEN 'o' THEN old_rows ELSE new_rows END, CASE side WHEN 'o' THEN new_rows ELSE old_rows END);
    END LOOP;
    RETURN true;
END
$$;
COMMENT ON FUNCTION idivm.log_difference(text, text, text, regclass, text[], regclass, text[]) IS
    'appends to a table what turns the rows of a relation into the rows of another one';

-- Append the difference between two contents with the same columns to a feed.
CREATE OR REPLACE FUNCTION idivm.append_difference(feed integer, before regclass, after regclass) RETURNS void
    LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$
    SELECT idivm.log_difference(format('idivm_feed.%I', 'f' || feed || '_' || f.epoch), 'refresh, ',
                                format('idivm.feed_refresh(%s), ', feed), before, f.columns, after, f.columns)
    FROM idivm_feed.feeds f WHERE f.id = feed
$$;
COMMENT ON FUNCTION idivm.append_difference(integer, regclass, regclass) IS
    'appends to a feed what turns one content into another';

-- Return the names and the types of the columns of a view. The type of a column of a domain is the base type, so that
-- copies of values run no constraint.
CREATE OR REPLACE FUNCTION idivm.columns_shown(definition regclass, OUT names text[], OUT types text[])
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT array_agg(a.attname ORDER BY a.attnum),
           array_agg(format_type(coalesce(nullif(t.typbasetype, 0), t.oid),
                                 CASE WHEN t.typbasetype = 0 THEN a.atttypmod ELSE t.typtypmod END)
                     || coalesce(' COLLATE ' || nullif(a.attcollation, 0)::regcollation, '') ORDER BY a.attnum)
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    WHERE a.attrelid = definition AND a.attnum > 0 AND NOT a.attisdropped
$$;
COMMENT ON FUNCTION idivm.columns_shown(regclass) IS 'the names and the types of the columns of a view';

-- Bring the feed of a view in line with its options and its content. The caller holds the lock of the view. Whatever
-- the reason for another content, the feed goes on with the difference; if the columns differ, with a restart.
CREATE OR REPLACE FUNCTION idivm.set_feed(view_id integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v idivm.views := (SELECT planned FROM idivm.views planned WHERE planned.id = view_id);
    f idivm_feed.feeds := (
        SELECT feed_row FROM idivm_feed.feeds feed_row
        WHERE feed_row.view = view_id OR feed_row.relation = v.relation);
    wanted boolean := v.options ->> 'feed' = 'on';
    names text[];
    type_names text[];
BEGIN
    IF wanted IS NOT TRUE THEN
        DELETE FROM idivm_feed.feeds feed_row WHERE feed_row.id = f.id;
        RETURN;
    END IF;
    IF (SELECT c.relkind = 'v' FROM pg_class c WHERE c.oid = v.state) THEN
        RAISE feature_not_supported USING
            MESSAGE = format('%s can have no feed, as no table stores its rows', v.relation),
            HINT = 'Create it with another strategy, or a view above it WITH (feed = on).';
    END IF;
    SELECT c.names, c.types INTO names, type_names FROM idivm.columns_shown(v.definition) AS c;
    IF f.id IS NULL THEN
        INSERT INTO idivm_feed.feeds (relation, view, content, columns, types, refresh, kept_from)
        SELECT v.relation, view_id, v.state, names, type_names, n, n FROM nextval('idivm_feed.refresh_numbers') AS n
        RETURNING * INTO f;
        PERFORM idivm.begin_epoch(f.id);
        PERFORM idivm.attach_feed(f.id);
        RETURN;
    END IF;
    UPDATE idivm_feed.feeds feed_row
    SET relation = v.relation, view = view_id, content = v.state, columns = names, types = type_names,
        epoch = feed_row.epoch + ((feed_row.columns, feed_row.types) IS DISTINCT FROM (names, type_names))::integer
    WHERE feed_row.id = f.id;
    IF (f.columns, f.types) IS DISTINCT FROM (names, type_names)
       OR NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = f.content) THEN
        IF (f.columns, f.types) IS DISTINCT FROM (names, type_names) THEN
            PERFORM idivm.begin_epoch(f.id);
        END IF;
        EXECUTE format('INSERT INTO idivm_feed.%I (refresh, kind) VALUES (idivm.feed_refresh(%s), ''R'')',
                       'f' || f.id || '_'
                           || (SELECT feed_row.epoch FROM idivm_feed.feeds feed_row WHERE feed_row.id = f.id), f.id);
        EXECUTE format('INSERT INTO idivm_feed.%I (refresh, kind, %s) SELECT idivm.feed_refresh(%s), ''I'', %s FROM %s AS t',
                       'f' || f.id || '_'
                           || (SELECT feed_row.epoch FROM idivm_feed.feeds feed_row WHERE feed_row.id = f.id),
                       idivm.feed_columns(names, 'n_%1$s'), f.id, idivm.feed_columns(names, 't.%2$I'), v.state);
    ELSIF f.content <> v.state THEN
        PERFORM idivm.append_difference(f.id, f.content, v.state);
    END IF;
    PERFORM idivm.detach_feed(f.id, f.content);
    PERFORM idivm.attach_feed(f.id);
END
$$;
COMMENT ON FUNCTION idivm.set_feed(integer) IS 'brings the feed of a view in line with its options and its content';

-- Take the triggers of a feed off a content that it leaves, and drop a copy of the last content.
CREATE OR REPLACE FUNCTION idivm.detach_feed(feed integer, content regclass) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET client_min_messages = warning
AS $$
DECLARE
    event text;
BEGIN
    EXECUTE format('DROP TABLE IF EXISTS idivm_feed.%I', 'f' || feed || '_kept');
    IF EXISTS (SELECT FROM pg_class c WHERE c.oid = content) THEN
        FOREACH event IN ARRAY '{insert,update,delete}'::text[] LOOP
            EXECUTE format('DROP TRIGGER IF EXISTS %I ON %s', 'idivm_feed_' || event, content);
        END LOOP;
    END IF;
END
$$;

-- A view loses its plan and keeps its name: keep a copy of its content, so that the feed goes on with the difference.
CREATE OR REPLACE FUNCTION idivm.suspend_feed(view_id integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    f idivm_feed.feeds := (SELECT feed_row FROM idivm_feed.feeds feed_row WHERE feed_row.view = view_id);
    kept text;
BEGIN
    IF f.id IS NULL OR NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = f.content) THEN
        RETURN;
    END IF;
    kept := format('idivm_feed.%I', 'f' || f.id || '_kept');
    EXECUTE format('CREATE TABLE %s AS SELECT %s FROM %s AS t', kept, idivm.feed_columns(f.columns, 't.%2$I'), f.content);
    UPDATE idivm_feed.feeds feed_row SET content = kept::regclass, view = NULL WHERE feed_row.id = f.id;
    PERFORM idivm.give_feed(f.id);
END
$$;
COMMENT ON FUNCTION idivm.suspend_feed(integer) IS 'keeps the last content of a view that loses its plan for its feed';

CREATE OR REPLACE FUNCTION idivm.drop_feed() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    object record;
BEGIN
    FOR object IN
        SELECT 'FUNCTION' AS kind, p.oid::regprocedure::text AS name, 0 AS place FROM pg_proc p
        WHERE p.pronamespace = 'idivm_feed'::regnamespace AND p.proname LIKE 'f' || old.id || '\_%'
        UNION ALL
        SELECT CASE c.relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END, c.oid::regclass::text, CASE c.relkind WHEN 'v' THEN 1 ELSE 2 END
        FROM pg_class c WHERE c.relnamespace = 'idivm_feed'::regnamespace AND c.relkind IN ('r', 'v')
          AND (c.relname = 'f' || old.id OR c.relname LIKE 'f' || old.id || '\_%')
        ORDER BY place
    LOOP
        EXECUTE format('DROP %s %s %s', object.kind, object.name, CASE object.kind WHEN 'TABLE' THEN '' ELSE 'CASCADE' END);
    END LOOP;
    DELETE FROM idivm_feed.refreshes r WHERE r.feed = old.id;
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER drop_feed AFTER DELETE ON idivm_feed.feeds
    FOR EACH ROW EXECUTE FUNCTION idivm.drop_feed();

-- Delete the changes that nobody needs: those older than feed_keep that all consumers have read, and those older than
-- feed_hold that a consumer has not read.
CREATE OR REPLACE FUNCTION idivm.trim_feed(feed integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    f idivm_feed.feeds;
    options jsonb;
    bound bigint;
    epoch integer;
BEGIN
    SELECT * INTO f FROM idivm_feed.feeds feed_row WHERE feed_row.id = feed FOR NO KEY UPDATE SKIP LOCKED;
    options := coalesce((SELECT v.options FROM idivm.views v WHERE v.id = f.view), '{}');
    bound := (SELECT max(r.refresh) FROM idivm_feed.refreshes r
              WHERE r.feed = f.id AND r.at < clock_timestamp() - coalesce(options ->> 'feed_keep', '1 day')::interval);
    IF bound IS NULL THEN
        RETURN;
    END IF;
    bound := greatest(
        least(bound, (SELECT min(c.position) FROM idivm.consumers c WHERE c.view = f.relation)),
        (SELECT max(r.refresh) FROM idivm_feed.refreshes r
         WHERE r.feed = f.id AND r.at < clock_timestamp() - coalesce(options ->> 'feed_hold', '7 days')::interval));
    IF bound <= f.kept_from THEN
        RETURN;
    END IF;
    FOR epoch IN SELECT e.epoch FROM idivm_feed.epochs e WHERE e.feed = f.id LOOP
        EXECUTE format('DELETE FROM idivm_feed.%I WHERE refresh <= $1', 'f' || f.id || '_' || epoch) USING bound;
    END LOOP;
    DELETE FROM idivm_feed.refreshes r WHERE r.feed = f.id AND r.refresh <= bound;
    UPDATE idivm_feed.feeds feed_row SET kept_from = bound WHERE feed_row.id = f.id;
END
$$;
COMMENT ON FUNCTION idivm.trim_feed(integer) IS 'deletes the changes of a feed that are older than its options keep';

-- After a refresh has committed: wake the readers of feeds that have changed lately, and delete old changes. Readers ask
-- from time to time in any case. Writers do not notify, because a transaction with NOTIFY holds a lock of the whole server
-- while it commits.
CREATE OR REPLACE FUNCTION idivm.announce_feeds(view_ids integer[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    f record;
BEGIN
    IF NOT EXISTS (SELECT FROM idivm_feed.feeds feed_row WHERE feed_row.view = ANY (view_ids)) THEN
        RETURN;
    END IF;
    FOR f IN
        SELECT feed_row.id, feed_row.refresh, feed_row.at > clock_timestamp() - interval '1 minute' AS is_new,
               (SELECT r.at FROM idivm_feed.refreshes r WHERE r.feed = feed_row.id ORDER BY r.refresh LIMIT 1)
                   < clock_timestamp() - 1.25 * coalesce(v.options ->> 'feed_keep', '1 day')::interval AS is_old
        FROM idivm_feed.feeds feed_row JOIN idivm.views v ON v.id = feed_row.view WHERE feed_row.view = ANY (view_ids)
    LOOP
        IF f.is_new THEN
            PERFORM pg_notify('idivm_feed', f.id || ' ' || f.refresh);
        END IF;
        IF f.is_old AND current_setting('transaction_isolation') IN ('read committed', 'read uncommitted') THEN
            PERFORM idivm.trim_feed(f.id);
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION idivm.announce_feeds(integer[]) IS 'wakes the readers of the feeds of some views, after a refresh';

-- Readers ------------------------------------------------------------------------------------

CREATE OR REPLACE VIEW idivm.feeds WITH (security_barrier) AS
SELECT f.relation AS view, f.columns, f.refresh AS position, f.kept_from, f.id AS feed
FROM idivm_feed.feeds f WHERE has_table_privilege(f.relation, 'SELECT') AND NOT row_security_active(f.relation);
COMMENT ON VIEW idivm.feeds IS 'the change feeds of the views that this role may read';
GRANT SELECT ON idivm.feeds TO PUBLIC;

-- Return a cast to JSON of what a view shows, if this role does not trust the owner of its function: to_jsonb()
-- calls it with the rights of the reader.
CREATE OR REPLACE FUNCTION idivm.distrusted_cast(view regclass) RETURNS text
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = view AND a.attnum > 0 AND a.atttypid >= 16384) THEN
        RETURN NULL;
    END IF;
    RETURN (
        WITH RECURSIVE types(type) AS (
            SELECT a.atttypid FROM pg_attribute a WHERE a.attrelid = view AND a.attnum > 0 AND NOT a.attisdropped
          UNION
            SELECT part.type
            FROM types s JOIN pg_type t ON t.oid = s.type
            CROSS JOIN LATERAL (
                SELECT unnest(ARRAY[t.typbasetype, t.typelem])
                UNION ALL SELECT a.atttypid FROM pg_attribute a
                          WHERE t.typrelid <> 0 AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
            ) AS part (type)
            WHERE part.type >= 16384
        )
        SELECT format('%s of the role %s', k.castfunc::regprocedure, quote_ident(pg_get_userbyid(p.proowner)))
        FROM types s
        JOIN pg_cast k ON k.castsource = s.type AND k.casttarget IN ('json'::regtype, 'jsonb'::regtype)
        JOIN pg_proc p ON p.oid = k.castfunc
        WHERE NOT idivm.trusts(current_user::regrole, p.proowner)
        ORDER BY 1 LIMIT 1
    );
END
$$;
COMMENT ON FUNCTION idivm.distrusted_cast(regclass) IS 'a cast to JSON of what a view shows whose owner this role does not trust';

-- Return the feed of a view that this role may read, or say why there is none.
CREATE OR REPLACE FUNCTION idivm.feed_of(view regclass) RETURNS idivm.feeds
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    f idivm.feeds;
    reason text;
BEGIN
    SELECT * INTO f FROM idivm.feeds feed_row WHERE feed_row.view = feed_of.view;
    IF NOT FOUND THEN
        IF NOT has_table_privilege(feed_of.view, 'SELECT') THEN
            RAISE insufficient_privilege USING
                MESSAGE = format('the feed of %s cannot be read without the right to read all columns of the view', feed_of.view),
                HINT = format('GRANT SELECT ON %s gives it.', feed_of.view);
        ELSIF row_security_active(feed_of.view) THEN
            RAISE insufficient_privilege USING
                MESSAGE = format('the feed of %s cannot be read by roles to which row-level security applies', feed_of.view),
                HINT = 'A feed shows the changes of all rows.';
        END IF;
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = format('%s has no feed of its changes', feed_of.view),
            HINT = format('ALTER VIEW %s SET (feed = on) by idivm begins one.', feed_of.view);
    END IF;
    reason := idivm.distrusted_cast(feed_of.view);
    IF reason IS NOT NULL THEN
        RAISE insufficient_privilege USING
            MESSAGE = format('the feed of %s is not read, because to_jsonb() would call %s, whom the role %s does not trust',
                             feed_of.view, reason, quote_ident(current_user)),
            HINT = 'Read the feed as a member of that role.';
    END IF;
    RETURN f;
END
$$;
COMMENT ON FUNCTION idivm.feed_of(regclass) IS 'the feed of a view that this role may read';

-- Return whether the table that holds the content was dropped or rewritten after the calling query took its snapshot,
-- which then finds the content empty. The snapshot shows the former row of pg_class, and pg_relation_filenode() returns
-- the current file.
CREATE OR REPLACE FUNCTION idivm.has_new_content(feed integer) RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT c.relfilenode IS DISTINCT FROM pg_relation_filenode(c.oid)
    FROM idivm_feed.feeds f JOIN pg_class c ON c.oid = f.content WHERE f.id = has_new_content.feed
$$;
COMMENT ON FUNCTION idivm.has_new_content(integer) IS
    'whether the content of the view of a feed was replaced after the snapshot of the query';

-- Stable, so that all its queries see the snapshot of the query that calls it: a snapshot of the rows and its position
-- belong together.
CREATE OR REPLACE FUNCTION idivm.changes(view regclass, since bigint DEFAULT NULL, upto bigint DEFAULT NULL, snapshot boolean DEFAULT false)
    RETURNS TABLE (refresh bigint, seq bigint, kind text, at timestamptz, old jsonb, new jsonb)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    f idivm.feeds := idivm.feed_of(view);
BEGIN
    IF snapshot THEN
        RETURN QUERY EXECUTE format(
            'SELECT $1, row_number() OVER (), ''snapshot'', statement_timestamp(), NULL::jsonb, to_jsonb(x.*) FROM (SELECT t.* FROM %s AS t) AS x', view)
            USING f.position;
        -- The query has locked the view, so its content can no longer be replaced.
        IF idivm.has_new_content(f.feed) THEN
            RAISE serialization_failure USING
                MESSAGE = format('the content of %s was replaced after this transaction took its snapshot', view),
                HINT = 'Try again in a new transaction.';
        END IF;
        RETURN;
    END IF;
    IF since < f.kept_from THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = format('the feed of %s no longer has all changes after %s: those up to %s were removed', view, since, f.kept_from),
            HINT = format('Begin again with idivm.changes(%L, snapshot => true). The options feed_keep and feed_hold of the view, and registered consumers, keep changes longer.', view);
    ELSIF since > f.position THEN
        RAISE invalid_parameter_value USING
            MESSAGE = format('the feed of %s has not come to %s yet: its last refresh is %s', view, since, f.position),
            HINT = format('Positions of another database mean nothing here. Begin with idivm.changes(%L, snapshot => true).', view);
    ELSIF since = f.position THEN
        RETURN;
    END IF;
    RETURN QUERY EXECUTE format(
        'SELECT c.refresh, c.seq, c.kind, c.at, c.old, c.new FROM idivm_feed.%I AS c'
        ' WHERE c.refresh > $1 AND c.refresh <= $2 ORDER BY c.refresh, c.seq', 'f' || f.feed)
        USING coalesce(since, f.kept_from), least(upto, f.position);
END
$$;
COMMENT ON FUNCTION idivm.changes(regclass, bigint, bigint, boolean) IS
    'the changes of a view with feed = on after a refresh, or with snapshot => true its rows now';

CREATE OR REPLACE FUNCTION idivm.check_consumer() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- The role may be gone.
    IF tg_op <> 'INSERT' AND NOT idivm.may_change_catalog()
       AND NOT coalesce((SELECT pg_has_role(r.oid, 'USAGE') FROM pg_roles r WHERE r.rolname = old.role), false) THEN
        RAISE insufficient_privilege USING
            MESSAGE = format('the consumer %s belongs to the role %s', old.name, old.role);
    ELSIF tg_op = 'INSERT' OR tg_op = 'UPDATE' AND new.position <> old.position THEN
        PERFORM idivm.feed_of(new.view);
    END IF;
    RETURN CASE WHEN tg_op = 'DELETE' THEN old ELSE new END;
END
$$;

CREATE OR REPLACE TRIGGER check_consumer BEFORE INSERT OR UPDATE OR DELETE ON idivm.consumers
    FOR EACH ROW EXECUTE FUNCTION idivm.check_consumer();

-- Register a consumer at a position, or move it there. Positions never go back by this function.
CREATE OR REPLACE FUNCTION idivm.advance(consumer text, view regclass, "position" bigint DEFAULT NULL) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    f idivm.feeds := idivm.feed_of(view);
    reached bigint;
BEGIN
    IF advance.position < f.kept_from OR advance.position > f.position THEN
        RAISE invalid_parameter_value USING
            MESSAGE = format('the feed of %s has no position %s: it reaches from %s to %s', view, advance.position, f.kept_from, f.position);
    END IF;
    INSERT INTO idivm.consumers AS c (name, view, position)
    VALUES (consumer, advance.view, coalesce(advance.position, f.position))
    ON CONFLICT ON CONSTRAINT consumers_pkey DO UPDATE
    SET position = greatest(c.position, advance.position), advanced_at = clock_timestamp()
    RETURNING c.position INTO reached;
    RETURN reached;
END
$$;
COMMENT ON FUNCTION idivm.advance(text, regclass, bigint) IS
    'notes how far a consumer has read the feed of a view, and registers it at first; the changes after that are kept';

CREATE OR REPLACE FUNCTION idivm.forget_consumer(consumer text, view regclass) RETURNS void
    LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$
    DELETE FROM idivm.consumers c WHERE c.name = consumer AND c.view = forget_consumer.view
$$;
COMMENT ON FUNCTION idivm.forget_consumer(text, regclass) IS 'removes a registered consumer, so that nothing is kept for it';

-- An earlier version may have created them without the condition on policies.
DO $$ BEGIN PERFORM idivm.show_feed(f.id) FROM idivm_feed.feeds f; END $$;

-- Emptying logs, and removing the objects of dropped views.

-- Empty a log segment if all views have consumed it. A view that is to be rebuilt does not need its log, unless
-- its refresh is running. The function runs with the rights of its caller: collect_source calls it with the rights
-- of the owner. `closed` is a transaction number: the segment contains only rows of earlier transactions. A
-- watermark whose snapshot saw all these end has consumed the segment, so no row must be read.
CREATE OR REPLACE FUNCTION idivm.free_segment(source integer, segment regclass, closed xid8) RETURNS bigint
    LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    bytes bigint := pg_relation_size(segment);
    readers integer[];
    floor xid8;
    pending text := format('FROM %s AS change WHERE change.xid >= $3 AND EXISTS ('
        'SELECT FROM idivm.watermarks w WHERE w.view = ANY ($2) AND idivm.is_pending(change.xid, change.seq, w.mark, $1))', segment);
    needed boolean;
BEGIN
    IF bytes = 0 THEN
        RETURN 0;
    END IF;
    BEGIN
        EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE NOWAIT', segment);
    EXCEPTION WHEN lock_not_available THEN
        RETURN 0;
    END;
    IF EXISTS (SELECT FROM idivm.view_sources vs JOIN idivm.views v ON v.id = vs.view
               WHERE vs.source = free_segment.source AND v.status = 'building') THEN
        RETURN 0;
    END IF;
    readers := ARRAY(
        SELECT v.id FROM idivm.view_sources vs JOIN idivm.views v ON v.id = vs.view
        WHERE vs.source = free_segment.source
          AND CASE WHEN v.status = 'invalid' THEN NOT pg_try_advisory_xact_lock(idivm.lock_class(), v.id) ELSE true END);
    floor := (SELECT pg_snapshot_xmin((w.mark).snapshot) FROM idivm.watermarks w WHERE w.view = ANY (readers) ORDER BY 1 LIMIT 1);
    needed := floor IS NOT NULL AND coalesce(floor < closed, true);
    IF needed THEN
        -- The last page shows most views that lag far behind.
        EXECUTE format('SELECT EXISTS (SELECT %s AND change.ctid >= $4) OR EXISTS (SELECT %s)', pending, pending)
        INTO needed USING source, readers, floor, idivm.last_page(segment);
    END IF;
    IF needed THEN
        RETURN 0;
    END IF;
    EXECUTE format('TRUNCATE %s', segment);
    RETURN bytes;
END
$$;

-- Empty the log segment that is not being written. If the other segment has at least `pages` pages, direct the
-- writers to the empty segment, and empty the full segment too if possible.
CREATE OR REPLACE FUNCTION idivm.collect_source(source integer, pages integer DEFAULT 64) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    segments regclass[];
    numbers regclass;
    last bigint;
    written regclass;
    other regclass;
    bound xid8;
    freed bigint;
BEGIN
    -- A transaction with an old snapshot must not delete log rows that it does not see.
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted')
       OR NOT pg_try_advisory_xact_lock(idivm.lock_class(), -source) THEN
        RETURN 0;
    END IF;
    numbers := to_regclass(format('idivm_log.%I', 's' || source || '_seq'));
    IF numbers IS NULL THEN
        RETURN 0;
    END IF;
    segments := ARRAY[format('idivm_log.%I', 's' || source || '_a')::regclass,
                      format('idivm_log.%I', 's' || source || '_b')::regclass];
    PERFORM idivm.mind_limits(source);
    EXECUTE format('SELECT last_value FROM %s', numbers) INTO last;
    written := segments[1 + ((last >> 32) & 1)];
    other := segments[2 - ((last >> 32) & 1)];
    SELECT s.closed INTO bound FROM idivm.sources s WHERE s.id = collect_source.source AND s.turn = last >> 32;
    freed := idivm.free_segment(source, other, bound);
    IF pg_relation_size(other) = 0
       AND pg_relation_size(written) >= pages * current_setting('block_size')::bigint THEN
        PERFORM setval(numbers, ((last >> 32) + 1) << 32);
        freed := freed + idivm.free_segment(source, written, NULL);
    END IF;
    RETURN freed;
END
$$;

-- Before a refresh takes its snapshot, direct the writers of long logs to the other segment. Return the sources of
-- these logs for `note_turns` in the next transaction.
CREATE OR REPLACE FUNCTION idivm.turn_logs(view_ids integer[], pages integer DEFAULT 64) RETURNS integer[]
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    source integer;
    numbers regclass;
    turn bigint;
    sizes bigint[];
    turned integer[];
BEGIN
    IF cardinality(view_ids) > 100 THEN
        PERFORM idivm.plan_for_many(view_ids);
    END IF;
    FOR source IN
        SELECT DISTINCT vs.source FROM idivm.view_sources vs
        WHERE vs.view = ANY (view_ids)
          AND greatest(pg_relation_size(to_regclass('idivm_log.s' || vs.source || '_a')),
                       pg_relation_size(to_regclass('idivm_log.s' || vs.source || '_b')))
              >= pages * current_setting('block_size')::bigint
    LOOP
        numbers := to_regclass('idivm_log.s' || source || '_seq');
        turn := pg_sequence_last_value(numbers::oid) >> 32;
        sizes := ARRAY[pg_relation_size(to_regclass('idivm_log.s' || source || '_a')),
                       pg_relation_size(to_regclass('idivm_log.s' || source || '_b'))];
        IF sizes[1 + (turn & 1)] >= pages * current_setting('block_size')::bigint
           AND sizes[2 - (turn & 1)] = 0 AND pg_try_advisory_xact_lock(idivm.lock_class(), -source)
           -- Another session may have switched the segments since.
           AND pg_sequence_last_value(numbers::oid) >> 32 = turn THEN
            PERFORM setval(numbers, (turn + 1) << 32);
            turned := turned || source;
        END IF;
    END LOOP;
    RETURN turned;
END
$$;
COMMENT ON FUNCTION idivm.turn_logs(integer[], integer) IS
    'directs the writers of long logs of some views to the other segment, before a refresh';

-- Store from which transaction on no writer uses the other segment of some logs, so that a collection after the
-- refresh need not read the consumed rows. A writer gets its transaction number before it gets the number of a
-- statement. So every writer with a number from the former turn has a smaller transaction number than this
-- transaction, which gets its own after it has read the turn. The function never waits: it skips sources that
-- another transaction changes.
CREATE OR REPLACE FUNCTION idivm.note_turns(source_ids integer[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    turns jsonb;
BEGIN
    IF pg_current_xact_id_if_assigned() IS NOT NULL
       OR current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RETURN;
    END IF;
    turns := (SELECT jsonb_object_agg(id, pg_sequence_last_value(to_regclass('idivm_log.s' || id || '_seq')::oid) >> 32)
              FROM unnest(source_ids) AS id);
    UPDATE idivm.sources s SET turn = (turns ->> s.id::text)::bigint, closed = pg_current_xact_id()
    WHERE s.id = ANY (ARRAY(SELECT unlocked.id FROM idivm.sources unlocked WHERE unlocked.id = ANY (source_ids)
                            FOR NO KEY UPDATE SKIP LOCKED));
END
$$;
COMMENT ON FUNCTION idivm.note_turns(integer[]) IS
    'stores from which transaction on no writer uses the other segment of some logs';

CREATE OR REPLACE FUNCTION idivm.collect(pages integer DEFAULT 64) RETURNS bigint
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(sum(idivm.collect_source(id, pages)), 0)::bigint FROM idivm.sources
$$;
COMMENT ON FUNCTION idivm.collect(integer) IS
    'empties log segments that all views have consumed, if they have at least this number of pages';

-- Removal ------------------------------------------------------------------------------------
--
-- The owner of a view may have lost membership in the role that owns a table. Locking the table or dropping a
-- trigger would need rights on it. Dropping a function does not, and CASCADE drops the triggers that call it. The
-- remaining objects have no effect without the view.

CREATE OR REPLACE FUNCTION idivm.owns(relation regclass) RETURNS boolean
    LANGUAGE sql STABLE
    RETURN (SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class c WHERE c.oid = relation);
COMMENT ON FUNCTION idivm.owns(regclass) IS 'whether this role has the rights of a table''s owner';

CREATE OR REPLACE FUNCTION idivm.uninstall_source(source integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    member regclass;
    base text := 's' || source;
    object record;
BEGIN
    IF EXISTS (SELECT FROM idivm.source_members m WHERE m.source = uninstall_source.source AND m.identity IS NOT NULL) THEN
        PERFORM idivm.leave_wal(source), idivm.drop_unused_slot();
    END IF;
    FOR member IN
        SELECT m.member FROM idivm.source_members m
        JOIN pg_class c ON c.oid = m.member
        WHERE m.source = uninstall_source.source ORDER BY m.member
    LOOP
        FOR object IN
            SELECT tgname FROM pg_trigger
            WHERE tgrelid = member AND tgname LIKE 'idivm\_' || source || '\_%' AND tgparentid = 0
              AND idivm.owns(member)
        LOOP
            EXECUTE format('DROP TRIGGER %I ON %s', object.tgname, member);
        END LOOP;
    END LOOP;
    FOR object IN
        SELECT p.oid::regprocedure AS signature, p.prorettype = 'trigger'::regtype AS is_trigger FROM pg_proc p
        WHERE p.pronamespace = 'idivm_log'::regnamespace AND p.proname LIKE base || '\_%'
        ORDER BY p.prorettype <> 'trigger'::regtype, p.proname LIKE '%\_pick%'
    LOOP
        EXECUTE format('DROP FUNCTION %s %s', object.signature, CASE WHEN object.is_trigger THEN 'CASCADE' END);
    END LOOP;
    -- A table that was dropped with CASCADE may have taken some of them along. IF EXISTS would send notices about these.
    FOR object IN
        SELECT string_agg(c.oid::regclass::text, ', ') AS names FROM pg_class c
        WHERE c.relnamespace = 'idivm_log'::regnamespace AND c.relname IN (base, base || '_images', base || '_changes')
        HAVING count(*) > 0
    LOOP
        EXECUTE 'DROP VIEW ' || object.names;
    END LOOP;
    EXECUTE format('DROP VIEW IF EXISTS idivm_log.%I', base || '_image');
    EXECUTE format('DROP TABLE IF EXISTS idivm_log.%I, idivm_log.%I', base || '_a', base || '_b');
    EXECUTE format('DROP SEQUENCE IF EXISTS idivm_log.%I', base || '_seq');
    EXECUTE format('DROP VIEW IF EXISTS idivm_def.%I', base);
    DELETE FROM idivm.sources s WHERE s.id = uninstall_source.source;
END
$$;

CREATE OR REPLACE FUNCTION idivm.uninstall_unused_source(unused integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM idivm.view_sources vs WHERE vs.source = unused) THEN
        PERFORM idivm.uninstall_source(unused);
    END IF;
END
$$;

-- Drop the views and the function by which an on_read view is read.
CREATE OR REPLACE FUNCTION idivm.drop_read_views(view_id integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    read_views text;
BEGIN
    SELECT string_agg(c.oid::regclass::text, ', ') INTO read_views FROM pg_class c
    WHERE c.relnamespace = 'idivm_state'::regnamespace AND c.relkind = 'v' AND c.relname ~ ('_(on_read|merged)_' || view_id || '$');
    IF read_views IS NOT NULL THEN
        -- One of them reads the other, so they go together.
        EXECUTE format('DROP VIEW %s', read_views);
    END IF;
    IF to_regprocedure(format('idivm_state.%I()', 'read_' || view_id)) IS NOT NULL THEN
        EXECUTE format('DROP FUNCTION idivm_state.%I()', 'read_' || view_id);
    END IF;
END
$$;
COMMENT ON FUNCTION idivm.drop_read_views(integer) IS 'drops the views and the function by which an on_read view is read';

-- Remove a view and all that only this view used; also its public relation unless `keep_relation` is set. A
-- collection reads a log's numbers before its rows, but dropping a log locks them in the other order. So the
-- function first locks all logs, and a collection that looks at the other logs of a view finds all of them or
-- none.
CREATE OR REPLACE FUNCTION idivm.uninstall(view_id integer, keep_relation boolean DEFAULT false) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v idivm.views;
    lost integer[];
    unused integer;
    object record;
BEGIN
    PERFORM pg_advisory_xact_lock(idivm.lock_class(), view_id);
    SELECT * INTO v FROM idivm.views WHERE id = view_id;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF keep_relation THEN
        PERFORM idivm.suspend_feed(view_id);
    ELSE
        DELETE FROM idivm_feed.feeds f WHERE f.view = view_id;
    END IF;
    lost := ARRAY(SELECT vs.source FROM idivm.view_sources vs WHERE vs.view = view_id);
    PERFORM idivm.hold_captures(ARRAY[view_id]);
    PERFORM idivm.hold_logs(lost);
    IF NOT keep_relation AND EXISTS (SELECT FROM pg_class c WHERE c.oid = v.relation AND c.relkind IN ('v', 'r')) THEN
        EXECUTE format('DROP %s %s', idivm.kind_of(v.relation), v.relation);
    END IF;
    PERFORM idivm.drop_table_log(view_id, true);
    -- They read the logs, which are dropped before the states.
    PERFORM idivm.drop_read_views(view_id);
    FOR object IN
        SELECT p.oid::regprocedure AS signature FROM pg_proc p
        WHERE p.pronamespace = 'idivm_state'::regnamespace AND p.proname IN ('refresh_' || view_id, 'content_' || view_id)
    LOOP
        EXECUTE format('DROP FUNCTION %s', object.signature);
    END LOOP;
    DELETE FROM idivm.views WHERE id = view_id;
    FOREACH unused IN ARRAY lost LOOP
        PERFORM idivm.uninstall_unused_source(unused);
    END LOOP;
    PERFORM idivm.drop_states(view_id, false);
    IF v.has_clock THEN
        EXECUTE format('DROP FUNCTION IF EXISTS idivm_state.%I(), idivm_state.%I(), idivm_state.%I(timestamptz)',
                       'clock_' || view_id, 'clock_' || view_id || '_moved', 'clock_' || view_id || '_quiet');
    END IF;
    FOR object IN
        SELECT c.oid::regclass AS name FROM pg_class c
        WHERE c.relnamespace = 'idivm_def'::regnamespace AND c.relname IN ('v' || view_id, 'q' || view_id, 'k' || view_id)
    LOOP
        EXECUTE format('DROP VIEW %s', object.name);
    END LOOP;
    IF v.has_clock THEN
        EXECUTE format('DROP TABLE IF EXISTS idivm_def.%I', 'c' || view_id);
    END IF;
END
$$;

-- Lock a view that has lost a part, or whose creation was interrupted. Return false if another session holds the lock, or
-- if the view is whole.
CREATE OR REPLACE FUNCTION idivm.lock_broken(view_id integer) RETURNS boolean
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN pg_try_advisory_xact_lock(idivm.lock_class(), view_id)
        AND EXISTS (SELECT FROM idivm.broken_off b WHERE b.id = view_id);
END
$$;

-- Remove views that lost a part (DROP TABLE ... CASCADE, DROP VIEW in plain SQL) and interrupted creations, upper
-- views first. A running creation holds the lock of its view. If only the content is missing, the view was not
-- dropped, and `idivm doctor` restores the content. The function checks an interrupted creation again after it has
-- locked the view, because the creation may have ended meanwhile.
--
-- The definition of a view depends on the relations that the query reads, and the public relation depends on the
-- definition. So a view without a definition was dropped with a relation that it reads, and a view that has only
-- lost its relation was dropped by name.
CREATE OR REPLACE FUNCTION idivm.drop_orphans() RETURNS integer
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    view_id integer;
    at_stake integer[];
    synchronous integer[];
    has_dropped boolean;
    swept integer := 0;
    any_of record;
BEGIN
    -- Each command of the orchestrator begins with this function, and a new session plans each statement.
    SELECT EXISTS (SELECT FROM idivm_feed.feeds f WHERE f.view IS NULL) AS feeds,
           EXISTS (SELECT FROM idivm.gates) AS gates,
           EXISTS (SELECT FROM idivm.source_members m WHERE m.identity IS NOT NULL) AS switches,
           EXISTS (SELECT FROM idivm.wal_slots) AS slots,
           EXISTS (SELECT FROM idivm.unplanned_views u WHERE u.number IS NOT NULL) AS waiting
    INTO any_of;
    IF any_of.feeds THEN
        DELETE FROM idivm_feed.feeds f WHERE f.view IS NULL AND NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = f.relation);
    END IF;
    IF any_of.gates THEN
        DELETE FROM idivm.gates g WHERE NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = g.source);
    END IF;
    PERFORM idivm.sync_schedules();
    IF any_of.switches THEN
        PERFORM idivm.end_switches();
    END IF;
    IF any_of.slots THEN
        PERFORM idivm.drop_unused_slot() FROM idivm.wal_slots;
    END IF;
    IF any_of.waiting THEN
        PERFORM idivm.drop_lost_waiting();
    END IF;
    IF NOT EXISTS (SELECT FROM idivm.broken_off) THEN
        RETURN 0;
    END IF;
    -- Writers take tables before synchronous views, so this precedes all locks of views.
    at_stake := ARRAY(SELECT b.id FROM idivm.broken_off b
                      UNION SELECT unnest(idivm.views_above(b.id)) FROM idivm.broken_off b);
    synchronous := ARRAY(SELECT unnest(at_stake) INTERSECT SELECT idivm.synchronous_views());
    IF synchronous <> '{}' THEN
        PERFORM idivm.hold_writers(synchronous, true);
    END IF;
    -- A writer of a table whose capture is broken marks the views of the table, in any order.
    PERFORM idivm.hold_captures(at_stake, ARRAY(
        SELECT s.relation FROM idivm.sources s
        WHERE s.id IN (SELECT vs.source FROM idivm.view_sources vs WHERE vs.view = ANY (at_stake))
          AND idivm.capture_is_broken(s.id)));
    LOOP
        -- Dropping a table takes the definitions of the views above it along, which may be tables again.
        has_dropped := false;
        FOR view_id IN
            SELECT v.id
            FROM idivm.broken_off b JOIN idivm.views v USING (id) JOIN pg_class c ON c.oid = v.relation AND c.relkind = 'r'
            WHERE v.status <> 'building' ORDER BY v.id
        LOOP
            IF idivm.lock_broken(view_id) THEN
                PERFORM idivm.drop_lost_table(view_id);
                has_dropped := true;
            END IF;
        END LOOP;
        EXIT WHEN NOT has_dropped;
    END LOOP;
    FOR view_id IN
        SELECT b.id
        FROM idivm.refresh_order(ARRAY(SELECT id FROM idivm.views)) WITH ORDINALITY AS o (id, place)
        JOIN idivm.broken_off b USING (id)
        ORDER BY o.place DESC
    LOOP
        -- A view above was locked by another session. Both go the next time.
        CONTINUE WHEN EXISTS (SELECT FROM idivm.views v JOIN idivm.sources s ON s.relation = v.state
                              JOIN idivm.view_sources vs ON vs.source = s.id WHERE v.id = view_id);
        IF idivm.lock_broken(view_id) THEN
            PERFORM idivm.note_dropped(v.id, v.name, 'DROP ... CASCADE of something that it reads')
            FROM idivm.views v
            WHERE v.id = view_id AND v.definition IS NOT NULL AND to_regclass(v.name) IS NULL
              AND NOT EXISTS (SELECT FROM pg_class c WHERE c.oid IN (v.definition, v.relation));
            PERFORM idivm.uninstall(view_id);
            swept := swept + 1;
        END IF;
    END LOOP;
    IF swept > 0 AND EXISTS (SELECT FROM idivm.views v WHERE v.common_join AND idivm.is_unused_join(v)) THEN
        -- These views were the last ones that read a stored join.
        swept := swept + idivm.drop_orphans();
    END IF;
    RETURN swept;
END
$$;
COMMENT ON FUNCTION idivm.drop_orphans() IS 'removes the remaining objects of dropped views and of interrupted creations; returns the number of views';

-- Views with several state tables.

-- Drop the state tables of a view, whose names all end in its ID. A content that is a query over state tables, and
-- not a table, is a view in idivm_state.

-- Views first stop reading anything, because they may read each other and functions. A synchronous view shows no rows
-- until it has new tables.
CREATE OR REPLACE FUNCTION idivm.drop_states(view_id integer, keep_content boolean) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    found_tables text;
    state_view record;
    dropped regclass[] := '{}';
    found_view regclass;
BEGIN
    FOR state_view IN
        SELECT c.oid::regclass AS name, v.id IS NOT NULL AS kept, (
                   SELECT string_agg(concat_ws(' ',
                              'NULL::' || format_type(a.atttypid, a.atttypmod),
                              'COLLATE ' || nullif(a.attcollation, 0)::regcollation,
                              'AS ' || quote_ident(a.attname)), ', ' ORDER BY a.attnum)
                   FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0) AS columns
        FROM pg_class c
        LEFT JOIN idivm.views v ON v.id = view_id AND c.oid IN (v.state, v.read_from) AND keep_content
        WHERE c.relnamespace = 'idivm_state'::regnamespace AND c.relkind = 'v'
          AND c.relname ~ ('_' || view_id || '$')
    LOOP
        EXECUTE format('CREATE OR REPLACE VIEW %s AS SELECT %s WHERE false', state_view.name, state_view.columns);
        IF NOT state_view.kept THEN
            dropped := dropped || state_view.name;
        END IF;
    END LOOP;
    PERFORM idivm.drop_enumeration(view_id);
    FOREACH found_view IN ARRAY dropped LOOP
        EXECUTE format('DROP VIEW %s', found_view);
    END LOOP;
    SELECT string_agg(c.oid::regclass::text, ', ') INTO found_tables
    FROM pg_class c
    WHERE c.relnamespace = 'idivm_state'::regnamespace AND c.relkind = 'r'
      AND c.relname ~ ('_' || view_id || '$')
      AND NOT (keep_content AND EXISTS (SELECT FROM idivm.views v WHERE v.id = view_id AND v.state = c.oid));
    IF found_tables IS NOT NULL THEN
        EXECUTE 'DROP TABLE ' || found_tables;
    END IF;
END
$$;

-- Give the table of a content the hidden columns and the settings of a new, empty table, delete its rows, and put it in
-- the place of the new table. A transaction with an older snapshot still reads the deleted rows; it would find the new
-- table empty. Return false, and change nothing, if the columns that users read differ, if triggers would see the deleted
-- rows, or if the table has had so many columns that it could not get many more.
CREATE OR REPLACE FUNCTION idivm.reshape_content(content regclass, model regclass, visible text[]) RETURNS boolean
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    name text := (SELECT c.relname FROM pg_class c WHERE c.oid = model);
    step text;
BEGIN
    IF EXISTS (SELECT FROM pg_class c WHERE c.oid IN (content, model) AND c.relkind <> 'r')
       OR EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = content)
       OR (SELECT c.relnatts FROM pg_class c WHERE c.oid = content) > 500
       OR (SELECT count(*) FILTER (WHERE b.attnum = a.attnum AND b.atttypid = a.atttypid AND b.atttypmod = a.atttypmod
                                     AND b.attcollation = a.attcollation)
           FROM pg_attribute a JOIN pg_attribute b ON b.attrelid = model AND b.attname = a.attname
           WHERE a.attrelid = content AND a.attname = ANY (visible)) <> cardinality(visible) THEN
        RETURN false;
    END IF;
    EXECUTE format('DELETE FROM %s', content);
    FOR step IN
        SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', content, k.conname)
        FROM pg_constraint k WHERE k.conrelid = content AND k.contype IN ('p', 'u', 'x')
      UNION ALL
        SELECT format('DROP INDEX %s', i.indexrelid::regclass)
        FROM pg_index i WHERE i.indrelid = content
          AND NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conindid = i.indexrelid)
      UNION ALL
        SELECT format('ALTER TABLE %s RESET (%s)', content, string_agg(split_part(o, '=', 1), ', '))
        FROM pg_class c CROSS JOIN unnest(c.reloptions) AS o WHERE c.oid = content HAVING count(*) > 0
      UNION ALL
        SELECT format('ALTER TABLE %s SET (%s)', content, string_agg(o, ', '))
        FROM pg_class c CROSS JOIN unnest(c.reloptions) AS o WHERE c.oid = model HAVING count(*) > 0
      UNION ALL
        SELECT format('ALTER TABLE %s DROP COLUMN %I', content, a.attname)
        FROM pg_attribute a
        WHERE a.attrelid = content AND a.attnum > 0 AND NOT a.attisdropped AND a.attname <> ALL (visible)
    LOOP
        EXECUTE step;
    END LOOP;
    FOR step IN
        SELECT format('ALTER TABLE %s ALTER COLUMN %I DROP NOT NULL', content, a.attname)
        FROM pg_attribute a WHERE a.attrelid = content AND a.attnum > 0 AND NOT a.attisdropped AND a.attnotnull
    LOOP
        EXECUTE step;
    END LOOP;
    FOR step IN
        (SELECT concat_ws(' ', format('ALTER TABLE %s ADD COLUMN %I %s', content, a.attname, format_type(a.atttypid, a.atttypmod)),
                          'COLLATE ' || nullif(a.attcollation, 0)::regcollation)
         FROM pg_attribute a WHERE a.attrelid = model AND a.attnum > 0 AND a.attname <> ALL (visible) ORDER BY a.attnum)
      UNION ALL
        SELECT format('ALTER TABLE %s ALTER COLUMN %I SET STORAGE %s', content, a.attname,
                      CASE a.attstorage WHEN 'p' THEN 'PLAIN' WHEN 'e' THEN 'EXTERNAL' WHEN 'm' THEN 'MAIN' ELSE 'EXTENDED' END)
        FROM pg_attribute a WHERE a.attrelid = model AND a.attnum > 0
      UNION ALL
        SELECT format('ALTER TABLE %s ALTER COLUMN %I SET COMPRESSION %s', content, a.attname,
                      CASE a.attcompression WHEN 'p' THEN 'pglz' WHEN 'l' THEN 'lz4' ELSE 'DEFAULT' END)
        FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
        WHERE a.attrelid = model AND a.attnum > 0 AND t.typstorage <> 'p'
    LOOP
        EXECUTE step;
    END LOOP;
    EXECUTE format('DROP TABLE %s', model);
    EXECUTE format('ALTER TABLE %s RENAME TO %I', content, name);
    RETURN true;
END
$$;
COMMENT ON FUNCTION idivm.reshape_content(regclass, regclass, text[]) IS
    'gives the table of a content another layout, so that transactions with older snapshots still read the old rows';

CREATE OR REPLACE FUNCTION idivm.drop_unused_index() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF EXISTS (SELECT FROM pg_class c WHERE c.oid = OLD.index AND c.relkind IN ('i', 'I'))
       AND NOT EXISTS (SELECT FROM idivm.made_indexes m WHERE m.index = OLD.index) THEN
        EXECUTE format('DROP INDEX %s', OLD.index);
    END IF;
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER drop_unused AFTER DELETE ON idivm.made_indexes
    FOR EACH ROW EXECUTE FUNCTION idivm.drop_unused_index();

-- Return whether nothing reads a view that stores a join any more: no maintained view, and no plain view.
CREATE OR REPLACE FUNCTION idivm.is_unused_join(v idivm.views) RETURNS boolean
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT NOT EXISTS (SELECT FROM idivm.sources s WHERE s.relation = v.state)
       AND NOT EXISTS (
           SELECT FROM pg_depend d JOIN pg_rewrite r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
           WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = v.relation AND r.ev_class <> v.relation)
$$;
COMMENT ON FUNCTION idivm.is_unused_join(idivm.views) IS
    'whether no view reads a view that stores a join for views with common_join = on';

CREATE OR REPLACE VIEW idivm.broken_off AS
SELECT v.id FROM idivm.views v
WHERE v.status = 'building'
   OR NOT EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid = v.definition)
   OR NOT EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid = v.relation)
      AND EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid = v.state)
   OR CASE WHEN v.common_join THEN idivm.is_unused_join(v) END;
COMMENT ON VIEW idivm.broken_off IS
    'interrupted creations, views with missing objects and stored joins that no view reads, which idivm.drop_orphans removes';

-- Return those sources of some views whose logs may contain consumed rows or may exceed the limit of a view.
-- Usually there are none. collect_source makes the exact checks.
CREATE OR REPLACE FUNCTION idivm.collectable(view_ids integer[], pages integer DEFAULT 64) RETURNS SETOF integer
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    logs record;
    any_limit record;
    most bigint := 1073741824;
BEGIN
    IF cardinality(view_ids) > 100 THEN
        PERFORM idivm.plan_for_many(view_ids);
    END IF;
    SELECT array_agg(l.source) AS sources, sum(l.a + l.b) AS bytes,
           array_agg(l.source) FILTER (WHERE CASE l.turn WHEN 0 THEN l.b ELSE l.a END > 0
               OR CASE l.turn WHEN 0 THEN l.a ELSE l.b END >= pages * current_setting('block_size')::bigint) AS used
    INTO logs
    FROM (SELECT DISTINCT vs.source, (coalesce(pg_sequence_last_value(to_regclass('idivm_log.s' || vs.source || '_seq')::oid), 0) >> 32) & 1 AS turn,
                 coalesce(pg_relation_size(to_regclass('idivm_log.s' || vs.source || '_a')), 0) AS a,
                 coalesce(pg_relation_size(to_regclass('idivm_log.s' || vs.source || '_b')), 0) AS b
          FROM idivm.view_sources vs WHERE vs.view = ANY (view_ids)) AS l;
    -- Few databases, and few views, have a limit of their own.
    SELECT EXISTS (SELECT FROM pg_db_role_setting s WHERE s.setrole = 0) AS of_database,
           EXISTS (SELECT FROM idivm.views v WHERE v.options ? 'log_limit') AS of_views
    INTO any_limit;
    IF any_limit.of_database THEN
        most := pg_size_bytes(coalesce(idivm.database_setting('idivm.log_limit'), '1GB'));
    END IF;
    IF any_limit.of_views THEN
        most := least(most, (
            SELECT min(pg_size_bytes(v.own))
            FROM (SELECT id, options ->> 'log_limit' AS own FROM idivm.views WHERE options ? 'log_limit' OFFSET 0) AS v
            WHERE EXISTS (SELECT FROM idivm.view_sources vs WHERE vs.view = v.id AND vs.source = ANY (logs.sources))));
    END IF;
    RETURN QUERY SELECT source FROM unnest(CASE WHEN logs.bytes > most THEN logs.sources ELSE logs.used END) AS source ORDER BY source;
END
$$;

-- Collecting logs, and dropping what no view needs any more.

-- A view that is to be rebuilt does not need its log, unless its refresh is under way.
-- It runs with its caller's rights: as collect_source calls it, those of the owner.
-- `closed` is a transaction number: the segment has rows of earlier transactions alone. A watermark whose snapshot
-- saw all these end has consumed the segment, and no row is read.
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
        -- A view that is far behind shows on the last page.
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

-- Empties the segment that is not written, and once the other has grown to so many pages, moves
-- the writers over and empties that one too if it can be.
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
    -- What an older snapshot does not see it must not throw away.
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

-- Before a refresh takes its snapshot: moves the writers of long logs over to the other segment and returns the
-- sources of these logs, for `note_turns` in the next transaction.
CREATE OR REPLACE FUNCTION idivm.turn_logs(view_ids integer[], pages integer DEFAULT 64) RETURNS integer[]
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    log record;
    turned integer[];
BEGIN
    FOR log IN
        SELECT s.source, numbers, pg_sequence_last_value(numbers::oid) >> 32 AS turn, sizes
        FROM (SELECT DISTINCT vs.source FROM idivm.view_sources vs WHERE vs.view = ANY (view_ids)) AS s
        CROSS JOIN LATERAL (
            SELECT to_regclass('idivm_log.s' || s.source || '_seq') AS numbers,
                   ARRAY[pg_relation_size(to_regclass('idivm_log.s' || s.source || '_a')),
                         pg_relation_size(to_regclass('idivm_log.s' || s.source || '_b'))] AS sizes
        ) AS present
    LOOP
        IF log.sizes[1 + (log.turn & 1)] >= pages * current_setting('block_size')::bigint
           AND log.sizes[2 - (log.turn & 1)] = 0 AND pg_try_advisory_xact_lock(idivm.lock_class(), -log.source)
           -- Another session may have turned it since.
           AND pg_sequence_last_value(log.numbers::oid) >> 32 = log.turn THEN
            PERFORM setval(log.numbers, (log.turn + 1) << 32);
            turned := turned || log.source;
        END IF;
    END LOOP;
    RETURN turned;
END
$$;
COMMENT ON FUNCTION idivm.turn_logs(integer[], integer) IS
    'moves the writers of long logs of some views over to the other segment, before a refresh';

-- Notes from which transaction on nobody writes the other segment of some logs, so that a collection after the
-- refresh need not read what the refresh has consumed. A writer has its transaction number before it takes the number
-- of a statement. So whoever took one of an earlier turn has a smaller transaction number than this transaction,
-- which gets its own after it has read the turn. It waits for nobody: for a source that another transaction changes,
-- nothing is noted.
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
    'notes from which transaction on nobody writes the other segment of some logs';

CREATE OR REPLACE FUNCTION idivm.collect(pages integer DEFAULT 64) RETURNS bigint
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(sum(idivm.collect_source(id, pages)), 0)::bigint FROM idivm.sources
$$;
COMMENT ON FUNCTION idivm.collect(integer) IS
    'empties log segments that every view has consumed, once they have this number of pages';

-- Removal ------------------------------------------------------------------------------------
--
-- The view's owner may have lost membership in the role that owns a table. To lock the table or to drop a
-- trigger needs rights on it. To drop a function does not, and takes the triggers along that call it. What
-- is left does nothing without its view.

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
    EXECUTE format('DROP VIEW IF EXISTS idivm_log.%I, idivm_log.%I, idivm_log.%I', base, base || '_changes', base || '_image');
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

-- Removes a view and what only it used; the public relation too unless it is to be kept.
-- A collection reads a log's numbers before its rows; dropping a log takes them in the other order. So the locks of
-- all logs are taken first, and a collection that looks at the other logs of a view finds them all or none.
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
    lost := ARRAY(SELECT vs.source FROM idivm.view_sources vs WHERE vs.view = view_id);
    PERFORM idivm.hold_logs(lost);
    IF NOT keep_relation AND EXISTS (SELECT FROM pg_class c WHERE c.oid = v.relation AND c.relkind = 'v') THEN
        EXECUTE format('DROP VIEW %s', v.relation);
    END IF;
    FOR object IN
        SELECT p.oid::regprocedure AS signature FROM pg_proc p
        WHERE p.pronamespace = 'idivm_state'::regnamespace AND p.proname = 'refresh_' || view_id
    LOOP
        EXECUTE format('DROP FUNCTION %s', object.signature);
    END LOOP;
    DELETE FROM idivm.views WHERE id = view_id;
    FOREACH unused IN ARRAY lost LOOP
        PERFORM idivm.uninstall_unused_source(unused);
    END LOOP;
    PERFORM idivm.drop_states(view_id, false);
    FOR object IN
        SELECT c.oid::regclass AS name FROM pg_class c
        WHERE c.relnamespace = 'idivm_def'::regnamespace AND c.relname IN ('v' || view_id, 'q' || view_id)
    LOOP
        EXECUTE format('DROP VIEW %s', object.name);
    END LOOP;
END
$$;

-- Views of which a part is gone (DROP ... CASCADE on a table, DROP VIEW in plain SQL) or whose
-- creation was cut short, upper ones first. A creation in progress holds its view's lock.
-- A view whose content alone is gone was not dropped: `idivm doctor` makes the content again. A view that looked
-- broken off is looked at again once it is locked, as its creation may have ended meanwhile.
--
-- The definition of a view depends on what the query reads, and the relation on the definition. So a view
-- whose definition is gone went with something that it reads; a view without its relation alone was
-- dropped by name.
CREATE OR REPLACE FUNCTION idivm.drop_orphans() RETURNS integer
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    view_id integer;
    swept integer := 0;
BEGIN
    IF NOT EXISTS (SELECT FROM idivm.broken_off) THEN
        RETURN 0;
    END IF;
    FOR view_id IN
        SELECT b.id
        FROM idivm.refresh_order(ARRAY(SELECT id FROM idivm.views)) WITH ORDINALITY AS o (id, place)
        JOIN idivm.broken_off b USING (id)
        ORDER BY o.place DESC
    LOOP
        IF view_id IN (SELECT idivm.synchronous_views()) THEN
            PERFORM idivm.hold_writers(ARRAY[view_id], true);
        END IF;
        IF pg_try_advisory_xact_lock(idivm.lock_class(), view_id)
           AND EXISTS (SELECT FROM idivm.broken_off b WHERE b.id = view_id) THEN
            PERFORM idivm.note_dropped(v.id, v.name, 'DROP ... CASCADE of something that it reads')
            FROM idivm.views v
            WHERE v.id = view_id AND v.definition IS NOT NULL AND to_regclass(v.name) IS NULL
              AND NOT EXISTS (SELECT FROM pg_class c WHERE c.oid IN (v.definition, v.relation));
            PERFORM idivm.uninstall(view_id);
            swept := swept + 1;
        END IF;
    END LOOP;
    RETURN swept;
END
$$;
COMMENT ON FUNCTION idivm.drop_orphans() IS 'removes the rest of dropped views and of interrupted creations; returns their number';

-- Views with more than one state table.

-- Drops the state tables of a view, whose names all end in its number.
-- Views whose content is no table, but a query over state tables: a view in idivm_state in its place.

-- Content that is a view goes before the tables it reads. A synchronous view turns away from its tables until it has
-- new ones.
CREATE OR REPLACE FUNCTION idivm.drop_states(view_id integer, keep_content boolean) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    found_tables text;
    one record;
BEGIN
    FOR one IN
        SELECT c.oid::regclass AS name, v.id IS NOT NULL AS kept, (
                   SELECT string_agg(concat_ws(' ',
                              'NULL::' || format_type(a.atttypid, a.atttypmod),
                              'COLLATE ' || nullif(a.attcollation, 0)::regcollation,
                              'AS ' || quote_ident(a.attname)), ', ' ORDER BY a.attnum)
                   FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0) AS columns
        FROM pg_class c
        LEFT JOIN idivm.views v ON v.id = view_id AND v.state = c.oid AND keep_content
        WHERE c.relnamespace = 'idivm_state'::regnamespace AND c.relkind = 'v'
          AND c.relname ~ ('_' || view_id || '$')
    LOOP
        IF one.kept THEN
            EXECUTE format('CREATE OR REPLACE VIEW %s AS SELECT %s WHERE false', one.name, one.columns);
        ELSE
            EXECUTE format('DROP VIEW %s', one.name);
        END IF;
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

CREATE OR REPLACE VIEW idivm.broken_off AS
SELECT v.id FROM idivm.views v
WHERE v.status = 'building'
   OR NOT EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid = v.definition)
   OR NOT EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid = v.relation)
      AND EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid = v.state);
COMMENT ON VIEW idivm.broken_off IS 'interrupted creations and views with missing objects, which idivm.drop_orphans removes';

-- The sources of some views whose logs have something to free or are so long that they may, or may be
-- longer than one of their readers allows: mostly none. What this does not look at, collect_source does.
CREATE OR REPLACE FUNCTION idivm.collectable(view_ids integer[], pages integer DEFAULT 64) RETURNS SETOF integer
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY
    WITH logs AS MATERIALIZED (
        SELECT s.source, (coalesce(pg_sequence_last_value(to_regclass('idivm_log.s' || s.source || '_seq')::oid), 0) >> 32) & 1 AS turn,
               coalesce(pg_relation_size(to_regclass('idivm_log.s' || s.source || '_a')), 0) AS a,
               coalesce(pg_relation_size(to_regclass('idivm_log.s' || s.source || '_b')), 0) AS b
        FROM (SELECT DISTINCT vs.source FROM idivm.view_sources vs WHERE vs.view = ANY (view_ids)) AS s
    )
    SELECT l.source FROM logs l
    WHERE CASE l.turn WHEN 0 THEN l.b ELSE l.a END > 0
       OR CASE l.turn WHEN 0 THEN l.a ELSE l.b END >= pages * current_setting('block_size')::bigint
       OR (SELECT sum(one.a + one.b) FROM logs one)
          > least(pg_size_bytes(coalesce(idivm.database_setting('idivm.log_limit'), '1GB')),
                  (SELECT min(pg_size_bytes(v.options ->> 'log_limit')) FROM idivm.views v
                   WHERE v.options ? 'log_limit'
                     AND EXISTS (SELECT FROM idivm.view_sources vs JOIN logs one USING (source) WHERE vs.view = v.id)))
    ORDER BY l.source;
END
$$;

-- Changes that are read from the WAL (idivm capture --from wal). `idivm serve` and the refreshes of the orchestrator decode
-- them into the logs. The log rows carry the transactions that wrote them, so watermarks treat them like rows of triggers.
-- Such a refresh first reads the WAL up to its snapshot. Any other refresh cannot, and recomputes the view: what its snapshot
-- sees is then in the content, and not pending once it is read.

-- The second number of the advisory lock of whoever reads the WAL or changes from where changes are captured. It is taken
-- before the snapshot.
CREATE OR REPLACE FUNCTION idivm.wal_lock() RETURNS integer
    LANGUAGE sql IMMUTABLE
    RETURN -2147483648;

CREATE OR REPLACE FUNCTION idivm.reads_wal(view_id integer) RETURNS boolean
    LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT EXISTS (SELECT FROM idivm.view_sources vs JOIN idivm.sources s ON s.id = vs.source
                   WHERE vs.view = view_id AND s.wal_since IS NOT NULL);
END;
COMMENT ON FUNCTION idivm.reads_wal(integer) IS 'whether changes of a table of a view are read from the WAL';

-- Return whether the open transaction has read the WAL up to its snapshot. Any session can set the setting, so it counts
-- only for roles that can write the logs anyway.
CREATE OR REPLACE FUNCTION idivm.has_read_wal() RETURNS boolean
    LANGUAGE sql STABLE
    RETURN current_setting('transaction_isolation') IN ('repeatable read', 'serializable')
       AND current_setting('idivm.read_wal', true) = pg_current_snapshot()::text
       AND pg_has_role(session_user, (SELECT c.relowner FROM pg_class c WHERE c.oid = 'idivm.sources'::regclass), 'MEMBER');
COMMENT ON FUNCTION idivm.has_read_wal() IS 'whether the open transaction has read the WAL up to its snapshot';

-- Return whether the WAL may hold changes that are not in the logs. Where nobody can know, it may.
CREATE OR REPLACE FUNCTION idivm.has_unread_wal() RETURNS boolean
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    reading idivm.wal_slots := (SELECT w FROM idivm.wal_slots w);
BEGIN
    IF pg_is_in_recovery() OR reading.position IS NULL OR pg_current_wal_flush_lsn() < pg_current_wal_insert_lsn() THEN
        RETURN true;
    END IF;
    RETURN EXISTS (
        SELECT FROM pg_logical_slot_peek_binary_changes(reading.slot, NULL, NULL, 'proto_version', '1',
                                                        'publication_names', 'idivm_capture') AS message
        -- A transaction begins with the message B, which holds the position of its commit record.
        WHERE get_byte(message.data, 0) = 66
          AND '0/0'::pg_lsn + ('x' || encode(substr(message.data, 2, 8), 'hex'))::bit(64)::bigint >= reading.position);
EXCEPTION WHEN OTHERS THEN
    IF idivm.ends_refresh(sqlstate) THEN
        RAISE;
    END IF;
    RETURN true;
END
$$;
COMMENT ON FUNCTION idivm.has_unread_wal() IS 'whether the WAL may hold changes that are not in the logs yet';

-- Return those of the given views that miss changes because nobody has read them from the WAL.
CREATE OR REPLACE FUNCTION idivm.views_missing_wal(view_ids integer[]) RETURNS integer[]
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    readers integer[];
BEGIN
    IF NOT EXISTS (SELECT FROM idivm.sources s WHERE s.wal_since IS NOT NULL) THEN
        RETURN '{}';
    END IF;
    readers := ARRAY(SELECT DISTINCT vs.view FROM idivm.view_sources vs JOIN idivm.sources s ON s.id = vs.source
                     WHERE s.wal_since IS NOT NULL AND vs.view = ANY (view_ids));
    IF readers <> '{}' AND (idivm.has_read_wal() OR NOT idivm.has_unread_wal()) THEN
        RETURN '{}';
    END IF;
    RETURN readers;
END
$$;
COMMENT ON FUNCTION idivm.views_missing_wal(integer[]) IS
    'those of the given views that may miss changes that nobody has read from the WAL yet';

-- Fail if this transaction has written a table of a view whose changes are read from the WAL: the changes before the
-- refresh could not be told from those after it.
CREATE OR REPLACE FUNCTION idivm.refuse_own_wal(view_id integer) RETURNS void
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    written regclass;
BEGIN
    IF pg_current_xact_id_if_assigned() IS NULL THEN
        RETURN;
    END IF;
    SELECT m.member INTO written
    FROM idivm.view_sources vs JOIN idivm.sources s ON s.id = vs.source AND s.wal_since IS NOT NULL
    JOIN idivm.source_members m ON m.source = s.id
    JOIN pg_locks l ON l.relation = m.member AND l.pid = pg_backend_pid() AND l.locktype = 'relation'
                   AND l.mode IN ('RowExclusiveLock', 'AccessExclusiveLock')
                   AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
    WHERE vs.view = view_id LIMIT 1;
    IF written IS NOT NULL THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = format('this transaction has changed %s, whose changes are read from the WAL after the commit', written),
            HINT = 'Refresh the view in another transaction.';
    END IF;
END
$$;
COMMENT ON FUNCTION idivm.refuse_own_wal(integer) IS
    'fails in a transaction that has changed a table of a view whose changes are read from the WAL';

-- Fail if a view needs triggers on a table whose changes are read from the WAL, as they reach the log only after the commit.
CREATE OR REPLACE FUNCTION idivm.refuse_wal_modes() RETURNS void
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    refused record;
BEGIN
    IF NOT EXISTS (SELECT FROM idivm.sources s WHERE s.wal_since IS NOT NULL) THEN
        RETURN;
    END IF;
    SELECT coalesce(v.relation::text, v.name) AS name,
           CASE WHEN v.options ->> 'gate' <> '' THEN 'a gate' ELSE 'maintain = ' || coalesce(v.paused_mode, v.maintain) END AS option, s.relation
    INTO refused
    FROM idivm.views v
    CROSS JOIN LATERAL idivm.refresh_order(ARRAY[v.id]) AS below
    JOIN idivm.view_sources vs ON vs.view = below
    JOIN idivm.sources s ON s.id = vs.source AND s.wal_since IS NOT NULL
    WHERE coalesce(v.paused_mode, v.maintain) <> 'deferred' OR v.options ->> 'gate' <> ''
    ORDER BY v.id LIMIT 1;
    IF FOUND THEN
        RAISE feature_not_supported USING
            MESSAGE = format('%s with %s needs triggers on %s, whose changes are read from the WAL', refused.name, refused.option,
                             refused.relation),
            HINT = format('Make the view deferred, or run idivm capture %s --from triggers.', refused.relation);
    END IF;
    SELECT s.relation, a.attname INTO refused
    FROM idivm.sources s JOIN idivm.source_columns k ON k.source = s.id
    JOIN pg_attribute a ON a.attrelid = s.relation AND a.attnum = k.attnum
    JOIN pg_type t ON t.oid = a.atttypid
    WHERE s.wal_since IS NOT NULL AND (a.attgenerated <> '' OR NOT idivm.is_text_safe(a.atttypid)) LIMIT 1;
    IF FOUND THEN
        RAISE feature_not_supported USING
            MESSAGE = format('a view reads column %I of %s, which cannot be read from the WAL', refused.attname, refused.relation),
            DETAIL = 'Generated columns are not in it, and reading values of some types depends on the session or calls code.',
            HINT = format('Run idivm capture %s --from triggers.', refused.relation);
    END IF;
END
$$;
COMMENT ON FUNCTION idivm.refuse_wal_modes() IS 'fails if a view needs triggers on a table whose changes are read from the WAL';

-- Return whether a value of a type can be read back from its text without calling code of users and whatever the session.
-- Logs store domains as the types below them.
CREATE OR REPLACE FUNCTION idivm.is_text_safe(type oid) RETURNS boolean
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    WITH RECURSIVE parts(oid, is_outer) AS (
        SELECT type, true
      UNION
        SELECT below.oid, p.is_outer AND t.typtype = 'd'
        FROM parts p JOIN pg_type t ON t.oid = p.oid
        CROSS JOIN LATERAL (
            SELECT t.typbasetype AS oid WHERE t.typtype = 'd'
          UNION ALL SELECT t.typelem WHERE t.typcategory = 'A'
          UNION ALL SELECT r.rngsubtype FROM pg_range r WHERE t.oid IN (r.rngtypid, r.rngmultitypid)) AS below
    )
    SELECT bool_and(t.typtype IN ('b', 'e', 'r', 'm') AND NOT (t.typname LIKE 'reg%' AND t.typnamespace = 'pg_catalog'::regnamespace)
                    OR t.typtype = 'd' AND p.is_outer)
    FROM parts p JOIN pg_type t ON t.oid = p.oid
$$;
COMMENT ON FUNCTION idivm.is_text_safe(oid) IS 'whether values of a type can be read back from their text, whatever the session';

-- Return why the changes of a table cannot be read from the WAL; NULL if they can.
CREATE OR REPLACE FUNCTION idivm.why_not_from_wal(source integer) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE
        WHEN NOT idivm.owns(c.oid) THEN format('%s belongs to another role', c.oid::regclass)
        WHEN c.relispartition OR c.relkind NOT IN ('r', 'p') OR c.relkind = 'r' AND (
                 c.relhassubclass OR (SELECT count(*) FROM idivm.source_members m WHERE m.source = s.id) <> 1)
            THEN format('%s is a partition, or has inheritance children', c.oid::regclass)
        WHEN EXISTS (SELECT FROM idivm.descendants(c.oid) AS d JOIN pg_class part ON part.oid = d
                     WHERE part.relkind NOT IN ('r', 'p') OR part.relpersistence <> 'p' OR NOT idivm.owns(d)) AND c.relkind = 'p'
            THEN format('a partition of %s is foreign or unlogged, or belongs to another role', c.oid::regclass)
        WHEN c.relkind = 'p' AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)
            THEN format('%s is partitioned and has no primary key, so PostgreSQL would refuse updates of new partitions',
                        c.oid::regclass)
        WHEN c.relpersistence <> 'p' THEN format('%s is unlogged, and its changes are not in the WAL', c.oid::regclass)
        WHEN EXISTS (SELECT FROM idivm.views v WHERE v.state = s.relation)
             OR c.relnamespace IN ('idivm_state'::regnamespace, 'idivm_def'::regnamespace)
            THEN format('%s belongs to a maintained view', c.oid::regclass)
        WHEN idivm.is_stream(c.oid) THEN format('the rows of %s stay in files', c.oid::regclass)
        WHEN idivm.capture_is_broken(s.id) THEN format('capture of %s has lost a part; run idivm doctor', c.oid::regclass)
        END
    FROM idivm.sources s JOIN pg_class c ON c.oid = s.relation WHERE s.id = source
$$;
COMMENT ON FUNCTION idivm.why_not_from_wal(integer) IS 'why the changes of a table cannot be read from the WAL';

-- Return whether the WAL holds all that the logs need of the changes of a table: whole old rows, and each operation. The
-- publication has the root of partitions, and names them themselves in messages, as it must for TRUNCATE of one.
CREATE OR REPLACE FUNCTION idivm.is_in_wal(source integer, member regclass) RETURNS boolean
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT (c.relkind = 'p' OR c.relkind = 'r' AND c.relreplident = 'f') AND c.relpersistence = 'p'
       AND c.relispartition = (c.oid <> s.relation)
       AND EXISTS (SELECT FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
                   WHERE r.prrelid = s.relation AND p.pubname = 'idivm_capture' AND r.prqual IS NULL AND r.prattrs IS NULL
                     AND p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate AND NOT p.pubviaroot)
    FROM idivm.sources s JOIN pg_class c ON c.oid = member
    WHERE s.id = source AND s.wal_since IS NOT NULL
$$;
COMMENT ON FUNCTION idivm.is_in_wal(integer, regclass) IS
    'whether the WAL holds whole old rows of the table of a source, and the publication has it';

-- Return what messages about a table depend on: the used columns, and since when the table is published.
CREATE OR REPLACE FUNCTION idivm.wal_columns(source integer) RETURNS text[]
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT (SELECT array_agg(r.oid::text) FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
            WHERE r.prrelid = s.relation AND p.pubname = 'idivm_capture')
        || ARRAY(SELECT concat_ws(' ', a.attnum, a.atttypid, a.attname) FROM idivm.source_columns k
                 JOIN pg_attribute a ON a.attrelid = s.relation AND a.attnum = k.attnum AND NOT a.attisdropped
                 WHERE k.source = s.id ORDER BY k.attnum)
    FROM idivm.sources s WHERE s.id = wal_columns.source
$$;
COMMENT ON FUNCTION idivm.wal_columns(integer) IS
    'the used columns of a table and its place in the publication, by which the WAL is read';

-- Stop reading the changes of a table from the WAL: give the table its replica identity back and take it out of the
-- publication. The caller attaches triggers, or no view reads the table any more.
CREATE OR REPLACE FUNCTION idivm.leave_wal(source integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    left_table record;
BEGIN
    FOR left_table IN
        SELECT m.member, m.identity, c.relreplident = 'f' AS is_ours, EXISTS (
                   SELECT FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
                   WHERE r.prrelid = m.member AND p.pubname = 'idivm_capture' AND pg_has_role(p.pubowner, 'USAGE')) AS is_published
        FROM idivm.source_members m JOIN pg_class c ON c.oid = m.member
        WHERE m.source = leave_wal.source AND m.identity IS NOT NULL AND idivm.owns(m.member)
    LOOP
        IF left_table.is_published THEN
            EXECUTE format('ALTER PUBLICATION idivm_capture DROP TABLE ONLY %s', left_table.member);
        END IF;
        IF left_table.is_ours THEN
            EXECUTE format('ALTER TABLE %s REPLICA IDENTITY %s', left_table.member, left_table.identity);
        END IF;
    END LOOP;
    UPDATE idivm.source_members m SET identity = NULL, wal_columns = NULL WHERE m.source = leave_wal.source;
    UPDATE idivm.sources s SET wal_since = NULL WHERE s.id = leave_wal.source;
END
$$;
COMMENT ON FUNCTION idivm.leave_wal(integer) IS 'stops reading the changes of a table from the WAL';

-- Undo the first half of changes to the WAL that were interrupted: the table is published, and its triggers still capture it.
CREATE OR REPLACE FUNCTION idivm.end_switches() RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    half_way integer[] := ARRAY(SELECT DISTINCT m.source FROM idivm.source_members m JOIN idivm.sources s ON s.id = m.source
                                WHERE m.identity IS NOT NULL AND s.wal_since IS NULL ORDER BY m.source);
BEGIN
    IF half_way <> '{}' AND pg_try_advisory_xact_lock(idivm.lock_class(), idivm.wal_lock()) THEN
        PERFORM idivm.leave_wal(m.source)
        FROM (SELECT DISTINCT m.source FROM idivm.source_members m JOIN idivm.sources s ON s.id = m.source
              WHERE m.source = ANY (half_way) AND m.identity IS NOT NULL AND s.wal_since IS NULL ORDER BY m.source) AS m;
    END IF;
END
$$;
COMMENT ON FUNCTION idivm.end_switches() IS 'undoes interrupted changes of where a table is captured from';

-- Drop the slot after the last table has left: a slot that nobody reads keeps the WAL. A slot is not transactional, so the
-- next command looks again.
CREATE OR REPLACE FUNCTION idivm.drop_unused_slot() RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    unused text;
BEGIN
    IF EXISTS (SELECT FROM idivm.sources s WHERE s.wal_since IS NOT NULL)
       OR NOT pg_try_advisory_xact_lock(idivm.lock_class(), idivm.wal_lock()) THEN
        RETURN;
    END IF;
    FOR unused IN SELECT w.slot FROM idivm.wal_slots w LOOP
        PERFORM pg_drop_replication_slot(r.slot_name) FROM pg_replication_slots r
        WHERE r.slot_name = unused AND r.database = current_database();
        DELETE FROM idivm.wal_slots w WHERE w.slot = unused;
    END LOOP;
EXCEPTION WHEN insufficient_privilege OR object_in_use THEN
    RAISE WARNING 'the replication slot % is not needed any more, and could not be dropped: %', unused, sqlerrm
        USING HINT = 'It keeps the WAL: drop it with pg_drop_replication_slot.';
END
$$;
COMMENT ON FUNCTION idivm.drop_unused_slot() IS 'drops the slot if no table is captured from the WAL';

-- What the slot keeps of the WAL, and how far it is behind.
CREATE OR REPLACE FUNCTION idivm.wal_status(OUT slot text, OUT state text, OUT lag bigint, OUT kept bigint, OUT most bigint,
                                            OUT read_at timestamptz) RETURNS SETOF record
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT w.slot,
           CASE WHEN r.slot_name IS NULL THEN 'missing' WHEN r.wal_status = 'lost' THEN 'lost'
                WHEN r.confirmed_flush_lsn > w.position THEN 'read by others' ELSE r.wal_status END,
           (here.lsn - w.position)::bigint, (here.lsn - r.restart_lsn)::bigint,
           nullif(pg_size_bytes(current_setting('max_slot_wal_keep_size')), -1048576), w.read_at
    FROM idivm.wal_slots w
    LEFT JOIN pg_replication_slots r ON r.slot_name = w.slot AND r.database = current_database() AND r.plugin = 'pgoutput'
    CROSS JOIN LATERAL (SELECT CASE WHEN NOT pg_is_in_recovery() THEN pg_current_wal_insert_lsn() END AS lsn) AS here
    WHERE w.position IS NOT NULL
$$;
COMMENT ON FUNCTION idivm.wal_status() IS
    'the slot through which changes are read: its state, and the bytes of WAL that are unread and kept';

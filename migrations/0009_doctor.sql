-- What years of use bring: capture that somebody switched off, tables that a crash empties, logs
-- from another cluster, views that nobody refreshes.

-- Staying right ----------------------------------------------------------------------------------

-- Whether a table carries the capture triggers of a source and they fire always. DISABLE TRIGGER
-- ALL and ENABLE TRIGGER ALL around a bulk load leave them firing, but not always.
CREATE FUNCTION idivm.carries_capture(source integer, member regclass) RETURNS boolean
    LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT count(*) = 4 FROM pg_trigger t
    WHERE t.tgrelid = member AND t.tgenabled = 'A'
      AND t.tgname IN ('idivm_' || source || '_insert', 'idivm_' || source || '_update',
                       'idivm_' || source || '_delete', 'idivm_' || source || '_truncate');
END;

-- A crash of the server, or the promotion of a standby, empties unlogged tables and calls no trigger.
-- No index: that of a copied database may come out of a crash as an empty page, where wal_level is
-- minimal.
CREATE UNLOGGED TABLE idivm.witnesses (
    view integer NOT NULL REFERENCES idivm.views ON DELETE CASCADE
);
COMMENT ON TABLE idivm.witnesses IS
    'the views that read unlogged tables and were computed since the server last emptied those, as it empties this';

CREATE FUNCTION idivm.reads_unlogged(view_id integer) RETURNS boolean
    LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT EXISTS (
        SELECT FROM idivm.view_sources vs
        JOIN idivm.source_members m ON m.source = vs.source
        JOIN pg_class c ON c.oid = m.member
        WHERE vs.view = view_id AND c.relpersistence = 'u');
END;

-- Whether a watermark is missing, or was written by a cluster whose transactions are not those of
-- this one. A clone of a cluster shares its identifier; a dump of the one in the other may speak of
-- transactions that are yet to come. No snapshot of one's own does: each transaction that it knows
-- to have ended left a record before the watermark's own commit, which is lost first.
CREATE FUNCTION idivm.is_foreign(w idivm.watermarks) RETURNS boolean
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN coalesce(w.cluster <> (SELECT system_identifier FROM pg_control_system())
                    OR pg_snapshot_xmax((w.mark).snapshot) > pg_snapshot_xmax(pg_current_snapshot()), true);
END
$$;

-- What there is to do once a view was computed anew. A log row that is visible while its transaction
-- is not came with a dump: the tables have held that change from the beginning.
CREATE FUNCTION idivm.settle(view_id integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    segment text;
BEGIN
    FOR segment IN
        SELECT 's' || vs.source || suffix FROM idivm.view_sources vs
        CROSS JOIN unnest(ARRAY['_a', '_b']) AS suffix WHERE vs.view = view_id
    LOOP
        EXECUTE format(
            'DELETE FROM idivm_log.%I WHERE xid >= pg_snapshot_xmin(pg_current_snapshot())'
            ' AND NOT pg_visible_in_snapshot(xid, pg_current_snapshot()) AND xid <> pg_current_xact_id()', segment);
    END LOOP;
    IF idivm.reads_unlogged(view_id) THEN
        INSERT INTO idivm.witnesses SELECT view_id
        WHERE NOT EXISTS (SELECT FROM idivm.witnesses w WHERE w.view = view_id);
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION idivm.pending_kind(view_id integer) RETURNS "char"
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    w idivm.watermarks;
BEGIN
    SELECT * INTO w FROM idivm.watermarks WHERE view = view_id;
    IF idivm.is_foreign(w) OR idivm.has_drifted(view_id)
       OR EXISTS (SELECT FROM idivm.views v WHERE v.id = view_id AND v.status = 'invalid') THEN
        RETURN 'R';
    END IF;
    RETURN (SELECT p.kind FROM idivm.pending_of(view_id, w.mark) AS p);
END
$$;

-- As before, but a view whose content alone is gone was not dropped: idivm doctor makes it again.
CREATE OR REPLACE FUNCTION idivm.sweep() RETURNS integer
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    view_id integer;
    swept integer := 0;
BEGIN
    FOR view_id IN
        SELECT v.id
        FROM idivm.refresh_order(ARRAY(SELECT id FROM idivm.views)) WITH ORDINALITY AS o (id, place)
        JOIN idivm.views v USING (id)
        WHERE v.status = 'building'
           OR NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = v.definition)
           OR NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = v.relation)
              AND EXISTS (SELECT FROM pg_class c WHERE c.oid = v.state)
        ORDER BY o.place DESC
    LOOP
        IF view_id IN (SELECT idivm.kept_views()) THEN
            PERFORM idivm.hold_writers(ARRAY[view_id], true);
        END IF;
        IF pg_try_advisory_xact_lock(idivm.lock_class(), view_id) THEN
            PERFORM idivm.forget(view_id);
            swept := swept + 1;
        END IF;
    END LOOP;
    RETURN swept;
END
$$;

-- Tables of kept views on which a trigger of the modes is missing or does not fire always.
CREATE FUNCTION idivm.broken_duties(OUT member regclass, OUT source integer) RETURNS SETOF record
    LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT m.member, m.source
    FROM idivm.duties() d
    JOIN idivm.source_members m ON m.source = d.source
    JOIN pg_class c ON c.oid = m.member
    LEFT JOIN pg_trigger t ON t.tgrelid = m.member AND t.tgenabled = 'A'
                          AND t.tgname IN ('idivm_' || m.source || '_begin', 'idivm_' || m.source || '_upkeep')
    GROUP BY m.member, m.source HAVING count(t.oid) < 2;
END;

-- Logs that nobody consumes ----------------------------------------------------------------------
--
-- A log is kept for the view that lags behind most. The options log_limit and on_log_limit of a view,
-- or of the database by ALTER DATABASE ... SET idivm.log_limit, say how much it may keep and what
-- happens then. The settings of a session count for nothing: it would decide for everybody.

CREATE FUNCTION idivm.database_setting(name text) RETURNS text
    LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT substr(line, length(name) + 2)
    FROM pg_db_role_setting s CROSS JOIN unnest(s.setconfig) AS line
    WHERE s.setrole = 0 AND starts_with(line, name || '=')
      AND s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
    ORDER BY s.setdatabase DESC LIMIT 1;
END;

CREATE FUNCTION idivm.log_limit(options jsonb) RETURNS bigint
    LANGUAGE sql STABLE
    RETURN pg_size_bytes(coalesce(options ->> 'log_limit', idivm.database_setting('idivm.log_limit'), '1GB'));

CREATE FUNCTION idivm.log_action(options jsonb) RETURNS text
    LANGUAGE sql STABLE
    RETURN coalesce(options ->> 'on_log_limit', idivm.database_setting('idivm.on_log_limit'), 'warn');

-- The bytes of log that a view has yet to consume, to a page: rows were written nearly in the order
-- in which their transactions ended, so the first pending one is found by halving.
CREATE FUNCTION idivm.log_kept(view_id integer) RETURNS bigint
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    page bigint := current_setting('block_size')::bigint;
    mark idivm.watermark := (SELECT w.mark FROM idivm.watermarks w WHERE w.view = view_id);
    segment record;
    first bigint;
    beyond bigint;
    middle bigint;
    consumed boolean;
    kept bigint := 0;
BEGIN
    FOR segment IN
        SELECT vs.source, c.oid::regclass AS log, pg_relation_size(c.oid) / page AS pages
        FROM idivm.view_sources vs
        JOIN pg_class c ON c.relnamespace = 'idivm_log'::regnamespace
                       AND c.relname IN ('s' || vs.source || '_a', 's' || vs.source || '_b')
        WHERE vs.view = view_id
    LOOP
        first := 0;
        beyond := segment.pages;
        WHILE first < beyond LOOP
            middle := (first + beyond) / 2;
            consumed := NULL;
            EXECUTE format('SELECT NOT idivm.is_pending(xid, seq, $1, %s) FROM %s WHERE ctid >= $2 LIMIT 1',
                           segment.source, segment.log)
            INTO consumed USING mark, format('(%s,0)', middle)::tid;
            IF consumed THEN
                first := middle + 1;
            ELSE
                beyond := middle;
            END IF;
        END LOOP;
        kept := kept + (segment.pages - first) * page;
    END LOOP;
    RETURN kept;
END
$$;
COMMENT ON FUNCTION idivm.log_kept(integer) IS 'the bytes of change logs that a view has yet to consume';

-- The views that keep more log than they may; of one source, or of all.
CREATE FUNCTION idivm.overdue(source integer DEFAULT NULL)
    RETURNS TABLE (view integer, name text, action text, kept bigint, most bigint)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    FOR view, name, action, most IN
        SELECT v.id, coalesce(c.oid::regclass::text, v.name), idivm.log_action(v.options), idivm.log_limit(v.options)
        FROM idivm.views v JOIN pg_class c ON c.oid = v.relation
        WHERE v.status = 'ready' AND v.id NOT IN (SELECT idivm.kept_views())
          AND (overdue.source IS NULL
               OR EXISTS (SELECT FROM idivm.view_sources vs WHERE vs.view = v.id AND vs.source = overdue.source))
    LOOP
        -- The sizes are quickly told, and mostly settle it.
        CONTINUE WHEN most >= (
            SELECT coalesce(sum(pg_relation_size(l.oid)), 0) FROM idivm.view_sources vs
            JOIN pg_class l ON l.relnamespace = 'idivm_log'::regnamespace
                           AND l.relname IN ('s' || vs.source || '_a', 's' || vs.source || '_b')
            WHERE vs.view = overdue.view);
        kept := idivm.log_kept(view);
        IF kept > most THEN
            RETURN NEXT;
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION idivm.overdue(integer) IS 'the views that keep more of the change logs than their log_limit';

-- Has the next refresh rebuild the views of a source that keep too much and ask for that, so that
-- their logs can go; tells of the others in the server's log.
CREATE FUNCTION idivm.mind_limits(source integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    late record;
BEGIN
    FOR late IN SELECT * FROM idivm.overdue(mind_limits.source) LOOP
        -- Whoever refreshes the view at this moment still needs its log.
        IF late.action = 'rebuild' AND pg_try_advisory_xact_lock(idivm.lock_class(), late.view) THEN
            PERFORM FROM idivm.views v WHERE v.id = late.view FOR NO KEY UPDATE SKIP LOCKED;
            IF FOUND THEN
                UPDATE idivm.views v SET status = 'invalid' WHERE v.id = late.view;
            END IF;
        ELSE
            RAISE LOG 'the view % keeps % of change logs, more than its log_limit of %',
                late.name, pg_size_pretty(late.kept), pg_size_pretty(late.most)
                USING HINT = format('CALL idivm.refresh_all(%L) brings it up to date.', late.name);
        END IF;
    END LOOP;
END
$$;

-- Writers look now and then, as nobody else may be there.
CREATE FUNCTION idivm.look_after_log(source integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- One transaction that may stay prepared for hours must not empty a log, which locks it.
    IF current_setting('max_prepared_transactions') = '0'
       AND EXISTS (SELECT FROM idivm.overdue(look_after_log.source) o WHERE o.action = 'rebuild') THEN
        INSERT INTO idivm.commits (views, logs) VALUES ('{}', ARRAY[source]);
    ELSIF current_setting('transaction_isolation') IN ('read committed', 'read uncommitted') THEN
        PERFORM idivm.mind_limits(source);
    END IF;
END
$$;

-- A view that is to be rebuilt does not need its log, unless its refresh is under way.
-- It runs with its caller's rights: as collect_source calls it, those of the owner.
CREATE OR REPLACE FUNCTION idivm.free_segment(source integer, segment regclass) RETURNS bigint
    LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    bytes bigint := pg_relation_size(segment);
    readers integer[];
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
    EXECUTE format(
        'SELECT EXISTS (SELECT FROM %s AS change JOIN idivm.watermarks w ON w.view = ANY ($2)
                        WHERE idivm.is_pending(change.xid, change.seq, w.mark, $1))', segment)
    INTO needed USING source, readers;
    IF needed THEN
        RETURN 0;
    END IF;
    EXECUTE format('TRUNCATE %s', segment);
    RETURN bytes;
END
$$;

CREATE OR REPLACE FUNCTION idivm.collect_source(source integer, pages integer DEFAULT 64) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    segments regclass[] := ARRAY[format('idivm_log.%I', 's' || source || '_a')::regclass,
                                 format('idivm_log.%I', 's' || source || '_b')::regclass];
    numbers regclass := format('idivm_log.%I', 's' || source || '_seq')::regclass;
    last bigint;
    written regclass;
    other regclass;
    freed bigint;
BEGIN
    -- What an older snapshot does not see it must not throw away.
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted')
       OR NOT pg_try_advisory_xact_lock(idivm.lock_class(), -source) THEN
        RETURN 0;
    END IF;
    PERFORM idivm.mind_limits(source);
    EXECUTE format('SELECT last_value FROM %s', numbers) INTO last;
    written := segments[1 + ((last >> 32) & 1)];
    other := segments[2 - ((last >> 32) & 1)];
    freed := idivm.free_segment(source, other);
    IF pg_relation_size(other) = 0
       AND pg_relation_size(written) >= pages * current_setting('block_size')::bigint THEN
        PERFORM setval(numbers, ((last >> 32) + 1) << 32);
        freed := freed + idivm.free_segment(source, written);
    END IF;
    RETURN freed;
END
$$;

-- As before, and afterwards the views that keep too much log and ask to be refreshed then.
CREATE OR REPLACE PROCEDURE idivm.refresh_all(VARIADIC names text[] DEFAULT '{}')
    LANGUAGE plpgsql
AS $$
DECLARE
    ids pg_catalog.int4[];
    late pg_catalog.text[];
    attempt pg_catalog.int4 := 0;
    again pg_catalog.bool;
    source_id pg_catalog.int4;
BEGIN
    IF pg_catalog.cardinality(names) OPERATOR(pg_catalog.=) 0 THEN
        ids := ARRAY(SELECT v.id FROM idivm.views v WHERE v.status OPERATOR(pg_catalog.<>) 'building');
    ELSE
        ids := ARRAY(SELECT idivm.view_id(n::pg_catalog.regclass) FROM pg_catalog.unnest(names) AS n);
    END IF;
    LOOP
        -- Waiting happens before the snapshot is taken, so that it is not stale when the wait ends.
        PERFORM idivm.lock_views(ids);
        COMMIT;
        SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;
        BEGIN
            again := false;
            PERFORM idivm.refresh_views(ids);
        EXCEPTION WHEN serialization_failure THEN
            attempt := attempt OPERATOR(pg_catalog.+) 1;
            IF attempt OPERATOR(pg_catalog.>) 20 THEN
                RAISE;
            END IF;
            again := true;
        END;
        COMMIT;
        EXIT WHEN NOT again;
    END LOOP;
    FOR source_id IN
        SELECT DISTINCT vs.source FROM idivm.view_sources vs
        WHERE vs.view OPERATOR(pg_catalog.=) ANY (ids) ORDER BY 1
    LOOP
        PERFORM idivm.collect_source(source_id);
        COMMIT;
    END LOOP;
    late := ARRAY(
        SELECT v.relation::pg_catalog.text FROM idivm.overdue() AS o
        JOIN idivm.views v ON v.id OPERATOR(pg_catalog.=) o.view
        WHERE o.action OPERATOR(pg_catalog.=) 'refresh' AND o.view OPERATOR(pg_catalog.<>) ALL (ids));
    IF pg_catalog.cardinality(late) OPERATOR(pg_catalog.>) 0 THEN
        CALL idivm.refresh_all(VARIADIC late);
    END IF;
END
$$;

REVOKE EXECUTE ON FUNCTION idivm.free_segment(integer, regclass), idivm.settle(integer),
    idivm.mind_limits(integer), idivm.look_after_log(integer) FROM PUBLIC;

-- Refresh, collection and removal: the one loop that psql, pg_cron, the orchestrator and every
-- strategy share. What is particular to a view is in its function idivm_state.refresh_<id>.

-- A transaction is not listed in its own snapshots: whether it is visible in one depends on what
-- later transactions, or subtransactions of its own, have ended. Its changes count by their numbers.
CREATE FUNCTION idivm.is_pending(change_xid xid8, change_seq bigint, since idivm.watermark, source integer)
    RETURNS boolean
    LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE
               WHEN change_xid = since.own_xid
                   THEN change_seq > coalesce((since.own_marks ->> source::text)::bigint, 0)
               ELSE change_xid >= pg_snapshot_xmin(since.snapshot)
                    AND NOT pg_visible_in_snapshot(change_xid, since.snapshot)
           END;
END;
COMMENT ON FUNCTION idivm.is_pending(xid8, bigint, idivm.watermark, integer) IS
    'whether a log row is yet to be consumed by a view with this watermark';

CREATE FUNCTION idivm.cluster() RETURNS bigint
    LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT system_identifier FROM pg_control_system();
END;

CREATE FUNCTION idivm.view_id(relation regclass) RETURNS integer
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    found_id integer := (SELECT v.id FROM idivm.views v WHERE v.relation = view_id.relation);
BEGIN
    IF found_id IS NULL THEN
        RAISE EXCEPTION '% is not a view that idivm maintains', relation
            USING ERRCODE = 'undefined_object',
                  HINT = 'SELECT relation FROM idivm.views lists those that it does.';
    END IF;
    RETURN found_id;
END
$$;

-- The views to refresh for the given ones, with every maintained view that they read, lower ones first.
CREATE FUNCTION idivm.refresh_order(view_ids integer[]) RETURNS SETOF integer
    LANGUAGE sql STABLE
BEGIN ATOMIC
    WITH RECURSIVE needed(id, depth) AS (
        SELECT v.id, 0 FROM idivm.views v WHERE v.id = ANY (view_ids)
      UNION
        SELECT lower_view.id, n.depth + 1
        FROM needed n
        JOIN idivm.view_sources vs ON vs.view = n.id
        JOIN idivm.sources s ON s.id = vs.source
        JOIN idivm.views lower_view ON lower_view.state = s.relation
    )
    SELECT id FROM needed GROUP BY id ORDER BY max(depth) DESC, id;
END;

CREATE FUNCTION idivm.descendants(relation regclass) RETURNS SETOF regclass
    LANGUAGE sql STABLE
BEGIN ATOMIC
    WITH RECURSIVE tree(member) AS (
        SELECT relation
      UNION
        SELECT i.inhrelid::regclass FROM tree JOIN pg_inherits i ON i.inhparent = tree.member
    )
    SELECT member FROM tree;
END;

-- Whether what a view reads is not what it was planned for: a partition came or went, a plain view
-- below was replaced.
CREATE FUNCTION idivm.has_drifted(view_id integer) RETURNS boolean
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT EXISTS (
        SELECT FROM idivm.inlined_views i
        WHERE i.view = view_id AND i.signature IS DISTINCT FROM idivm.signature(i.relation)
    ) OR EXISTS (
        SELECT FROM idivm.view_sources vs
        JOIN idivm.sources s ON s.id = vs.source
        JOIN pg_class c ON c.oid = s.relation
        WHERE vs.view = view_id
          AND (c.relhassubclass
               OR EXISTS (SELECT FROM idivm.source_members m WHERE m.source = s.id AND m.member <> s.relation))
          AND EXISTS (
              (SELECT d FROM idivm.descendants(s.relation) d
               EXCEPT SELECT m.member FROM idivm.source_members m WHERE m.source = s.id)
              UNION ALL
              (SELECT m.member FROM idivm.source_members m WHERE m.source = s.id
               EXCEPT SELECT d FROM idivm.descendants(s.relation) d))
    )
$$;

-- What is pending for a view: NULL nothing, 'C' changes, 'R' something after which its states
-- must be computed anew (a TRUNCATE, a drift, another cluster).
CREATE FUNCTION idivm.pending_kind(view_id integer) RETURNS "char"
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v idivm.views;
    w idivm.watermarks;
    probe text;
    kind "char";
BEGIN
    SELECT * INTO v FROM idivm.views WHERE id = view_id;
    SELECT * INTO w FROM idivm.watermarks WHERE view = view_id;
    IF v.status = 'invalid' OR w.cluster <> idivm.cluster() OR idivm.has_drifted(view_id) THEN
        RETURN 'R';
    END IF;
    SELECT string_agg(
               format('SELECT op FROM idivm_log.%I WHERE idivm.is_pending(xid, seq, $1, %s)', 's' || source, source),
               ' UNION ALL ')
    INTO probe
    FROM idivm.view_sources WHERE view = view_id;
    IF probe IS NULL THEN
        RETURN NULL;
    END IF;
    -- A truncation outweighs the rest, but one pending row is enough to know that there is work.
    EXECUTE format('SELECT op FROM (%s) AS pending LIMIT 1', probe) INTO kind USING w.mark;
    IF kind IS NULL THEN
        RETURN NULL;
    END IF;
    EXECUTE format('SELECT CASE WHEN EXISTS (SELECT FROM (%s) AS pending WHERE op = ''T'') THEN ''R'' ELSE ''C'' END', probe)
    INTO kind USING w.mark;
    RETURN kind;
END
$$;

CREATE FUNCTION idivm.pending_changes(view_id integer) RETURNS bigint
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    mark idivm.watermark := (SELECT w.mark FROM idivm.watermarks w WHERE w.view = view_id);
    probe text;
    total bigint;
BEGIN
    SELECT string_agg(
               format('SELECT count(*) AS n FROM idivm_log.%I WHERE idivm.is_pending(xid, seq, $1, %s)', 's' || source, source),
               ' UNION ALL ')
    INTO probe
    FROM idivm.view_sources WHERE view = view_id;
    IF probe IS NULL THEN
        RETURN 0;
    END IF;
    EXECUTE format('SELECT sum(n)::bigint FROM (%s) AS pending', probe) INTO total USING mark;
    RETURN total;
END
$$;
COMMENT ON FUNCTION idivm.pending_changes(integer) IS 'how many log rows a view has yet to consume';

-- A segment that was truncated after this transaction's snapshot would look empty instead of full.
CREATE FUNCTION idivm.refuse_recycled_log(view_ids integer[]) RETURNS void
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF EXISTS (
        SELECT FROM idivm.view_sources vs
        CROSS JOIN LATERAL (VALUES ('_a'), ('_b')) AS segment(suffix)
        JOIN pg_class c ON c.relname = 's' || vs.source || segment.suffix
                       AND c.relnamespace = 'idivm_log'::regnamespace
        WHERE vs.view = ANY (view_ids)
          AND pg_relation_filenode(c.oid) IS DISTINCT FROM c.relfilenode
    ) THEN
        RAISE EXCEPTION 'the change log was collected after this transaction took its snapshot'
            USING ERRCODE = 'serialization_failure', HINT = 'Run the transaction again.';
    END IF;
END
$$;

-- The statements of this transaction that the sources of a view have logged so far.
CREATE FUNCTION idivm.own_marks(view_id integer) RETURNS jsonb
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    own xid8 := pg_current_xact_id_if_assigned();
    probe text;
    marks jsonb;
BEGIN
    IF own IS NULL THEN
        RETURN NULL;
    END IF;
    SELECT string_agg(format('SELECT %s AS source, max(seq) AS seq FROM idivm_log.%I WHERE xid = $1', source, 's' || source), ' UNION ALL ')
    INTO probe
    FROM idivm.view_sources WHERE view = view_id;
    IF probe IS NOT NULL THEN
        EXECUTE format('SELECT jsonb_object_agg(source, seq) FROM (%s) AS own WHERE seq IS NOT NULL', probe)
        INTO marks USING own;
    END IF;
    RETURN marks;
END
$$;

-- Whether the pending changes of a view cancel out. Only a small batch is worth the look.
CREATE FUNCTION idivm.pending_cancels(view_id integer) RETURNS boolean
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    mark idivm.watermark := (SELECT w.mark FROM idivm.watermarks w WHERE w.view = view_id);
    source integer;
    found_one boolean;
BEGIN
    FOR source IN SELECT vs.source FROM idivm.view_sources vs WHERE vs.view = view_id LOOP
        EXECUTE format(
            'SELECT count(*) > 1000 FROM (SELECT FROM idivm_log.%I WHERE idivm.is_pending(xid, seq, $1, %s) LIMIT 1001) AS p',
            's' || source, source)
        INTO found_one USING mark;
        IF NOT found_one THEN
            EXECUTE format('SELECT EXISTS (SELECT FROM idivm_log.%I($1))', 's' || source || '_net')
            INTO found_one USING mark;
        END IF;
        IF found_one THEN
            RETURN false;
        END IF;
    END LOOP;
    RETURN true;
END
$$;

-- Takes the locks of a refresh of these views; the transaction's snapshot is best taken afterwards.
CREATE FUNCTION idivm.lock_views(view_ids integer[]) RETURNS void
    LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$
    SELECT pg_advisory_xact_lock(idivm.lock_class(), id)
    FROM (SELECT id FROM idivm.refresh_order(view_ids) AS id ORDER BY id) AS ordered
$$;

-- The identity of a row whose values are not to be compared but to be equal to the bit.
CREATE FUNCTION idivm.row_identity(image text) RETURNS bytea
    LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT substr(sha256(convert_to(image, getdatabaseencoding()::text)), 1, 16);
END;

CREATE FUNCTION idivm.refresh_views(view_ids integer[])
    RETURNS TABLE (view_id integer, changed bigint, seconds double precision)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    ordered integer[] := ARRAY(SELECT idivm.refresh_order(view_ids));
    snapshot_is_fixed boolean := current_setting('transaction_isolation') IN ('repeatable read', 'serializable');
    one_cut boolean := snapshot_is_fixed;
    kind "char";
    before idivm.watermarks;
    after idivm.watermark;
    started timestamptz;
    relation regclass;
    moves boolean;
    outcome text;
BEGIN
    PERFORM idivm.lock_views(view_ids);
    IF snapshot_is_fixed THEN
        PERFORM idivm.refuse_recycled_log(ordered);
    END IF;

    FOREACH view_id IN ARRAY ordered LOOP
        -- One that a DROP ... CASCADE took apart is left to idivm.sweep().
        SELECT v.moving INTO moves
        FROM idivm.views v JOIN pg_class c ON c.oid = v.definition
        WHERE v.id = view_id AND v.status <> 'building';
        CONTINUE WHEN NOT FOUND;
        started := clock_timestamp();
        kind := idivm.pending_kind(view_id);
        changed := 0;
        IF kind IS NOT NULL OR moves THEN
            IF NOT one_cut THEN
                -- Each statement below would see a later state: hold the writers of all tables
                -- until this transaction ends, so that the group is one cut and no change is
                -- both in a state and still pending.
                FOR relation IN
                    SELECT DISTINCT s.relation
                    FROM idivm.view_sources vs
                    JOIN idivm.sources s ON s.id = vs.source
                    WHERE vs.view = ANY (ordered)
                      AND NOT EXISTS (SELECT FROM idivm.views lower_view WHERE lower_view.state = s.relation)
                    ORDER BY s.relation
                LOOP
                    EXECUTE format('LOCK TABLE %s IN SHARE MODE', relation);
                END LOOP;
                one_cut := true;
                kind := idivm.pending_kind(view_id);
            END IF;
            -- Fails under REPEATABLE READ when another refresh has committed since the snapshot.
            SELECT * INTO before FROM idivm.watermarks w WHERE w.view = view_id FOR NO KEY UPDATE;
            after := ROW(pg_current_snapshot(), pg_current_xact_id(), idivm.own_marks(view_id))::idivm.watermark;
            IF moves OR kind = 'R' OR NOT idivm.pending_cancels(view_id) THEN
                EXECUTE format('SELECT idivm_state.%I($1, $2)', 'refresh_' || view_id)
                INTO changed
                USING before.mark, kind IS NOT DISTINCT FROM 'R';
            END IF;
            seconds := extract(epoch FROM clock_timestamp() - started);
            UPDATE idivm.watermarks w
            SET mark = after, cluster = idivm.cluster(), refreshed_at = clock_timestamp(),
                refreshes = w.refreshes + 1, changed = refresh_views.changed,
                seconds = refresh_views.seconds, total_seconds = w.total_seconds + refresh_views.seconds
            WHERE w.view = view_id;
            -- What has drifted may drift back, and then this content would be wrong unnoticed.
            outcome := CASE WHEN idivm.has_drifted(view_id) THEN 'invalid' ELSE 'ready' END;
            UPDATE idivm.views v SET status = outcome WHERE v.id = view_id AND v.status <> outcome;
        END IF;
        seconds := extract(epoch FROM clock_timestamp() - started);
        RETURN NEXT;
    END LOOP;
END
$$;
COMMENT ON FUNCTION idivm.refresh_views(integer[]) IS
    'brings views up to date together with the maintained views that they read';

CREATE FUNCTION idivm.refresh(VARIADIC names text[])
    RETURNS TABLE (view text, changed bigint, seconds double precision)
    LANGUAGE plpgsql
AS $$
BEGIN
    RETURN QUERY
    SELECT v.relation::pg_catalog.text, r.changed, r.seconds
    FROM idivm.refresh_views(ARRAY(
             SELECT idivm.view_id(n::pg_catalog.regclass) FROM pg_catalog.unnest(names) AS n)) AS r
    JOIN idivm.views v ON v.id OPERATOR(pg_catalog.=) r.view_id;
END
$$;
COMMENT ON FUNCTION idivm.refresh(text[]) IS
    'brings the named views up to date in this transaction; CALL idivm.refresh_all(...) does so without holding writers';

-- Collection ---------------------------------------------------------------------------------

-- Empties a segment of a log if every view has consumed it and no open transaction has written to
-- it; gives the bytes freed. A writer that comes late finds an empty segment and writes on.
CREATE FUNCTION idivm.free_segment(source integer, segment regclass) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    bytes bigint := pg_relation_size(segment);
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
    EXECUTE format(
        'SELECT EXISTS (SELECT FROM %s AS change
                        JOIN idivm.view_sources vs ON vs.source = $1
                        JOIN idivm.watermarks w ON w.view = vs.view
                        WHERE idivm.is_pending(change.xid, change.seq, w.mark, $1))
             OR EXISTS (SELECT FROM idivm.view_sources vs JOIN idivm.views v ON v.id = vs.view
                        WHERE vs.source = $1 AND v.status = ''building'')', segment)
    INTO needed USING source;
    IF needed THEN
        RETURN 0;
    END IF;
    EXECUTE format('TRUNCATE %s', segment);
    RETURN bytes;
END
$$;

-- Empties the segment that is not written, and once the other has grown to so many pages, moves
-- the writers over and empties that one too if it can be.
CREATE FUNCTION idivm.collect_source(source integer, pages integer DEFAULT 64) RETURNS bigint
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

CREATE FUNCTION idivm.collect(pages integer DEFAULT 64) RETURNS bigint
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(sum(idivm.collect_source(id, pages)), 0)::bigint FROM idivm.sources
$$;
COMMENT ON FUNCTION idivm.collect(integer) IS
    'frees log segments that every view has consumed; a segment is left to grow to so many pages first';

-- The views of a refresh are refreshed in one REPEATABLE READ transaction: no writer waits, and
-- readers see one cut. Collection follows in transactions of its own.
CREATE PROCEDURE idivm.refresh_all(VARIADIC names text[] DEFAULT '{}')
    LANGUAGE plpgsql
AS $$
DECLARE
    ids pg_catalog.int4[];
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
END
$$;
COMMENT ON PROCEDURE idivm.refresh_all(text[]) IS
    'brings all views, or the named ones, up to date in a transaction of its own and collects the logs';

-- Removal ------------------------------------------------------------------------------------

CREATE FUNCTION idivm.forget_source(source integer) RETURNS void
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
        WHERE m.source = forget_source.source ORDER BY m.member
    LOOP
        FOR object IN
            SELECT tgname FROM pg_trigger
            WHERE tgrelid = member AND tgname LIKE 'idivm\_' || source || '\_%'
        LOOP
            EXECUTE format('DROP TRIGGER %I ON %s', object.tgname, member);
        END LOOP;
    END LOOP;
    FOR object IN
        SELECT p.oid::regprocedure AS signature FROM pg_proc p
        WHERE p.pronamespace = 'idivm_log'::regnamespace AND p.proname LIKE base || '\_%'
        ORDER BY p.prorettype <> 'trigger'::regtype, p.proname LIKE '%\_pick%'
    LOOP
        EXECUTE format('DROP FUNCTION %s', object.signature);
    END LOOP;
    EXECUTE format('DROP VIEW IF EXISTS idivm_log.%I', base);
    EXECUTE format('DROP TABLE IF EXISTS idivm_log.%I, idivm_log.%I', base || '_a', base || '_b');
    EXECUTE format('DROP SEQUENCE IF EXISTS idivm_log.%I', base || '_seq');
    EXECUTE format('DROP VIEW IF EXISTS idivm_def.%I', base);
    DELETE FROM idivm.sources s WHERE s.id = forget_source.source;
END
$$;

CREATE FUNCTION idivm.forget_unused_source(unused integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM idivm.view_sources vs WHERE vs.source = unused) THEN
        PERFORM idivm.forget_source(unused);
    END IF;
END
$$;

-- Removes a view and what only it used; the public relation too unless it is to be kept.
CREATE FUNCTION idivm.forget(view_id integer, keep_relation boolean DEFAULT false) RETURNS void
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
    IF NOT keep_relation AND EXISTS (SELECT FROM pg_class c WHERE c.oid = v.relation AND c.relkind = 'v') THEN
        EXECUTE format('DROP VIEW %s', v.relation);
    END IF;
    FOR object IN
        SELECT p.oid::regprocedure AS signature FROM pg_proc p
        WHERE p.pronamespace = 'idivm_state'::regnamespace AND p.proname = 'refresh_' || view_id
    LOOP
        EXECUTE format('DROP FUNCTION %s', object.signature);
    END LOOP;
    lost := ARRAY(SELECT vs.source FROM idivm.view_sources vs WHERE vs.view = view_id);
    DELETE FROM idivm.views WHERE id = view_id;
    FOREACH unused IN ARRAY lost LOOP
        PERFORM idivm.forget_unused_source(unused);
    END LOOP;
    IF EXISTS (SELECT FROM pg_class c WHERE c.oid = v.state) THEN
        EXECUTE format('DROP TABLE %s', v.state);
    END IF;
    EXECUTE format('DROP VIEW IF EXISTS idivm_def.%I', 'v' || view_id);
END
$$;

-- Views of which a part is gone (DROP ... CASCADE on a table, DROP VIEW in plain SQL) or whose
-- creation was cut short, upper ones first. A creation in progress holds its view's lock.
CREATE FUNCTION idivm.sweep() RETURNS integer
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
           OR NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = v.relation)
           OR NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = v.definition)
           OR NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = v.state)
        ORDER BY o.place DESC
    LOOP
        IF pg_try_advisory_xact_lock(idivm.lock_class(), view_id) THEN
            PERFORM idivm.forget(view_id);
            swept := swept + 1;
        END IF;
    END LOOP;
    RETURN swept;
END
$$;
COMMENT ON FUNCTION idivm.sweep() IS 'removes what is left of views that were dropped or created half';

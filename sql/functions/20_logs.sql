-- Change logs: what is pending for a view, and how large the logs may grow.

-- Synchronous views are refreshed within the transactions that change their tables, after each statement (eager) or
-- at the commit (on_commit). One rule makes this correct: whoever commits a change to a source of a synchronous view
-- has taken the lock of that view, and holds it until the commit is done. The holder of the lock therefore sees
-- sources that do not change, whatever snapshots its statements take, and needs no lock on the tables.

-- Return whether a log row is pending after the watermark with these fields; `floor` is the xmin of its snapshot. The first
-- two conditions follow from the third, because own changes are not older than that either. With them, an index finds the
-- few relevant rows, and the planner expects few.
CREATE OR REPLACE FUNCTION idivm.is_pending_after(change_xid xid8, change_seq bigint, snapshot pg_snapshot, floor xid8,
                                                  own_xid xid8, own_marks jsonb, source integer)
    RETURNS boolean
    LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT change_xid >= floor
           AND change_xid <= '18446744073709551615'::xid8
           AND CASE
                   WHEN change_xid = own_xid THEN change_seq > coalesce((own_marks ->> source::text)::bigint, 0)
                   ELSE NOT pg_visible_in_snapshot(change_xid, snapshot)
               END;
END;

-- Return whether a change belongs to a refresh that reads only changes that a snapshot sees. The transaction's own changes
-- belong to it, although no snapshot calls them visible.
CREATE OR REPLACE FUNCTION idivm.is_within(change_xid xid8, upto pg_snapshot) RETURNS boolean
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN upto IS NULL OR pg_visible_in_snapshot(change_xid, upto) OR change_xid = pg_current_xact_id_if_assigned();

-- Fail in a refresh whose tables may change meanwhile: they are not to be read.
CREATE OR REPLACE FUNCTION idivm.require_fixed_tables(since idivm.watermark) RETURNS void
    LANGUAGE plpgsql
AS $$
BEGIN
    IF since.upto IS NOT NULL AND current_setting('transaction_isolation') NOT IN ('repeatable read', 'serializable') THEN
        RAISE EXCEPTION 'this refresh needs tables that do not change meanwhile' USING ERRCODE = 'IV002';
    END IF;
END
$$;
COMMENT ON FUNCTION idivm.require_fixed_tables(idivm.watermark) IS
    'fails in a refresh under READ COMMITTED that has locked no table';

CREATE OR REPLACE FUNCTION idivm.is_pending(change_xid xid8, change_seq bigint, since idivm.watermark, source integer)
    RETURNS boolean
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN idivm.is_pending_after(change_xid, change_seq, since.snapshot, pg_snapshot_xmin(since.snapshot),
                                  since.own_xid, since.own_marks, source)
           AND idivm.is_within(change_xid, since.upto);
COMMENT ON FUNCTION idivm.is_pending(xid8, bigint, idivm.watermark, integer) IS
    'whether a log row is yet to be consumed by a view with this watermark';

CREATE OR REPLACE FUNCTION idivm.pending_changes(view_id integer) RETURNS bigint
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
    FROM idivm.view_sources WHERE view = view_id AND to_regclass('idivm_log.s' || source) IS NOT NULL;
    IF probe IS NULL THEN
        RETURN 0;
    END IF;
    EXECUTE format('SELECT sum(n)::bigint FROM (%s) AS pending', probe) INTO total USING mark;
    RETURN total;
END
$$;
COMMENT ON FUNCTION idivm.pending_changes(integer) IS 'how many log rows a view has yet to consume';

-- Fail if a segment was truncated after this transaction's snapshot: it would look empty instead of full.
CREATE OR REPLACE FUNCTION idivm.refuse_recycled_log(view_ids integer[]) RETURNS void
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    IF EXISTS (
        SELECT FROM (
            SELECT c.oid, c.relfilenode FROM pg_class c
            WHERE c.relnamespace = 'idivm_log'::regnamespace AND c.relname = ANY (ARRAY(
                SELECT ('s' || vs.source || suffix)::name
                FROM idivm.view_sources vs, unnest('{_a,_b}'::text[]) AS suffix WHERE vs.view = ANY (view_ids)))
            OFFSET 0) AS c
        WHERE pg_relation_filenode(c.oid) IS DISTINCT FROM c.relfilenode
    ) THEN
        RAISE EXCEPTION 'the change log was collected after this transaction took its snapshot'
            USING ERRCODE = 'serialization_failure', HINT = 'Run the transaction again.';
    END IF;
END
$$;

-- Return for each source of a view the number of the last logged statement, if this transaction may have logged any:
-- all its own statements so far have this number or a smaller one. The result is NULL if nothing was logged.
--
-- TRUNCATE also deletes rows that an older snapshot of its transaction does not show. Their insertion stays pending
-- after a refresh with this snapshot, and so does the TRUNCATE: the next refresh recomputes the view.
CREATE OR REPLACE FUNCTION idivm.own_marks(view_id integer) RETURNS jsonb
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    marks jsonb := (
        SELECT jsonb_object_agg(vs.source, log.number)
        FROM idivm.view_sources vs
        CROSS JOIN LATERAL (SELECT pg_sequence_last_value(to_regclass('idivm_log.s' || vs.source || '_seq')::oid)) AS log (number)
        WHERE vs.view = view_id AND log.number IS NOT NULL);
    source text;
    has_truncated boolean;
BEGIN
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        FOR source IN SELECT jsonb_object_keys(marks) LOOP
            EXECUTE format('SELECT EXISTS (SELECT FROM idivm_log.%I c WHERE c.xid = pg_current_xact_id_if_assigned()'
                           ' AND c.op = ''T'')', 's' || source)
            INTO has_truncated;
            IF has_truncated THEN
                marks := marks - source;
            END IF;
        END LOOP;
    END IF;
    RETURN marks;
END
$$;

-- Return whether the pending changes of a view cancel out. Only a small batch is examined.
CREATE OR REPLACE FUNCTION idivm.pending_cancels(view_id integer) RETURNS boolean
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

-- Return the identity of a row whose values are compared bit by bit and not by their equality.
CREATE OR REPLACE FUNCTION idivm.row_identity(image text) RETURNS bytea
    LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT substr(sha256(convert_to(image, getdatabaseencoding()::text)), 1, 16);
END;

-- Return the name of a view whose content changes while no table does: this view, or a view below it.
CREATE OR REPLACE FUNCTION idivm.time_dependent_part(view_id integer) RETURNS text
    LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT v.name FROM idivm.refresh_order(ARRAY[view_id]) AS id
    JOIN idivm.views v USING (id) WHERE v.time_dependent OR v.has_clock LIMIT 1;
END;

-- A refresh queries logs and the catalog through functions whose plans a session keeps. Their tables are small and
-- their plans simple, so custom plans would be no better, and all of them use generic plans.

-- Create the functions that report what the log of a source has for a view.


CREATE OR REPLACE FUNCTION idivm.create_pending(source integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    base text := 's' || source;
    pending text := format('c.xid >= (SELECT pg_snapshot_xmin((since).snapshot)) AND idivm.is_pending(c.xid, c.seq, since, %s)', source);
BEGIN
    EXECUTE format(
        'CREATE OR REPLACE FUNCTION idivm_log.%I(since idivm.watermark, OUT pending bigint, OUT truncated boolean, OUT own bigint)'
        ' LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS %L',
        base || '_pending',
        format('BEGIN
    pending := (EXISTS (SELECT %1$s))::integer;
    truncated := pending > 0 AND EXISTS (SELECT %1$s AND c.op = ''T'');
    IF pending > 0 AND pg_current_xact_id_if_assigned() IS NOT NULL THEN
        own := (SELECT max(c.seq) %1$s AND c.xid = pg_current_xact_id_if_assigned());
    END IF;
END', format('FROM idivm_log.%I AS c
    WHERE %s', base, pending)));
    EXECUTE format(
        'CREATE OR REPLACE FUNCTION idivm_log.%I(since idivm.watermark) RETURNS boolean'
        -- Without this setting, the custom plans that idivm.plan_for_many forces in a caller would apply here too.
        ' LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan AS %L',
        base || '_any', format('DECLARE
    late_a tid := idivm.last_page(%2$L);
    late_b tid := idivm.last_page(%3$L);
BEGIN
    -- A session plans each query when it first executes it, and one of these is usually enough.
    IF pg_relation_size(%2$L) > 0 THEN
        IF EXISTS (SELECT FROM %2$s AS c WHERE c.ctid >= late_a AND %4$s) THEN RETURN true; END IF;
    END IF;
    IF pg_relation_size(%3$L) > 0 THEN
        IF EXISTS (SELECT FROM %3$s AS c WHERE c.ctid >= late_b AND %4$s) THEN RETURN true; END IF;
    END IF;
    -- The last page of a segment may be its only page.
    IF late_a > ''(0,0)'' OR late_b > ''(0,0)'' THEN
        RETURN EXISTS (SELECT FROM idivm_log.%1$I AS c WHERE %4$s);
    END IF;
    RETURN false;
END', base, format('idivm_log.%I', base || '_a'), format('idivm_log.%I', base || '_b'), pending));
END
$$;

-- Create the indexes of a log by transaction. They find the few rows that a synchronous view has yet to consume, or
-- that a read merges; for reads also the TRUNCATEs among them. With the number of the statement, a read passes over all that
-- the transaction of the last refresh had written itself.
CREATE OR REPLACE FUNCTION idivm.index_log(source integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET client_min_messages = warning
AS $$
DECLARE
    segment text;
BEGIN
    FOREACH segment IN ARRAY ARRAY['_a', '_b'] LOOP
        EXECUTE format('CREATE INDEX IF NOT EXISTS %I ON idivm_log.%I (xid, seq)',
                       's' || source || segment || '_xid', 's' || source || segment);
        IF EXISTS (SELECT FROM idivm.view_sources vs JOIN idivm.views v ON v.id = vs.view
                   WHERE vs.source = index_log.source AND v.read_from IS NOT NULL) THEN
            EXECUTE format('CREATE INDEX IF NOT EXISTS %I ON idivm_log.%I (xid) WHERE op = %L',
                           's' || source || segment || '_cut', 's' || source || segment, 'T');
        END IF;
    END LOOP;
END
$$;

-- Create an index of a segment of a log by which a read finds the images of a key, unless another view has it already.
CREATE OR REPLACE FUNCTION idivm.index_images(name text, segment regclass, columns text[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET client_min_messages = warning
AS $$
BEGIN
    EXECUTE format('CREATE INDEX IF NOT EXISTS %I ON %s (%s)', name, segment,
                   (SELECT string_agg(quote_ident(c.name), ', ' ORDER BY c.place)
                    FROM unnest(columns) WITH ORDINALITY AS c (name, place)));
END
$$;

-- Return what the logs have for a view: NULL for nothing, 'C' for changes, 'R' if a truncation is among them. Also
-- return which statements of this transaction are consumed with them.
CREATE OR REPLACE FUNCTION idivm.pending_of(view_id integer, since idivm.watermark, OUT kind "char", OUT marks jsonb)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    source integer;
    log record;
BEGIN
    IF since.own_xid = pg_current_xact_id_if_assigned() THEN
        marks := since.own_marks;
    END IF;
    FOR source IN SELECT vs.source FROM idivm.view_sources vs WHERE vs.view = view_id LOOP
        EXECUTE format('SELECT * FROM idivm_log.%I($1)', 's' || source || '_pending') INTO log USING since;
        IF log.pending > 0 THEN
            kind := CASE WHEN log.truncated OR kind = 'R' THEN 'R' ELSE 'C' END;
        END IF;
        IF log.own IS NOT NULL THEN
            marks := coalesce(marks, '{}') || jsonb_build_object(source, log.own);
        END IF;
    END LOOP;
END
$$;

-- MERGE into partitioned tables.

-- Return whether the calling UPDATE trigger may have received too few rows: for a row that MERGE moves to another
-- partition, transition tables hold both images only if the MERGE also has DELETE and INSERT actions. A trigger cannot
-- see which statement fires it. The client's text, or the statement around the trigger in the call stack, can show
-- that it is no MERGE; SQL functions and prepared statements do not show their text. If no row of a partition was
-- deleted, nothing was moved; these counts may include transactions of the last second.
CREATE OR REPLACE FUNCTION idivm.merge_may_have_moved_rows(merged regclass) RETURNS boolean
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    stack text;
    around text;
BEGIN
    GET DIAGNOSTICS stack = PG_CONTEXT;
    -- The lines of the call stack below this function, its caller and the trigger function.
    around := substring(stack, E'_update_[0-9]+\\(\\)[^\\n]*\\n(.*)');
    IF (CASE WHEN around IS NULL THEN current_query() !~* E'\\m(merge|execute)\\M'
            ELSE around ~* E'\\mupdate\\M' AND around !~* E'\\mmerge\\M' END) THEN
        RETURN false;
    END IF;
    RETURN NOT current_setting('track_counts')::boolean OR EXISTS (
        SELECT FROM pg_partition_tree(merged) AS t
        WHERE t.isleaf AND pg_stat_get_xact_tuples_deleted(t.relid) > 0);
END
$$;

-- Record that a view was computed in a snapshot after a crash may have emptied unlogged tables. Each view has such a
-- witness, because any of its tables may be unlogged for some time. A transaction that was prepared before the crash
-- lost its rows in these tables, but its log rows become visible at its end. As long as the snapshot shows a
-- transaction as open that may be such a one, the witness has a number, and the next refresh recomputes the view again.
CREATE OR REPLACE FUNCTION idivm.note_witness(view_id integer, snapshot pg_snapshot) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    number xid8;
    has_row boolean;
BEGIN
    SELECT w.since INTO number FROM idivm.witnesses w WHERE w.view = view_id;
    has_row := FOUND;
    IF has_row AND number IS NULL THEN
        RETURN;
    END IF;
    number := coalesce(number, pg_snapshot_xmax(snapshot));
    IF current_setting('max_prepared_transactions') = '0' OR NOT EXISTS (
        SELECT FROM pg_snapshot_xip(snapshot) AS x
        WHERE x < number AND NOT EXISTS (
            -- A transaction with a session is not prepared. One that has ended meanwhile may have been.
            SELECT FROM pg_locks l WHERE l.locktype = 'transactionid' AND l.transactionid = x::xid AND l.pid IS NOT NULL
                AND l.mode = 'ExclusiveLock' AND l.granted)
    ) THEN
        number := NULL;
    END IF;
    IF has_row THEN
        UPDATE idivm.witnesses w SET since = number WHERE w.view = view_id AND w.since IS DISTINCT FROM number;
    ELSE
        INSERT INTO idivm.witnesses (view, since) VALUES (view_id, number);
    END IF;
END
$$;
COMMENT ON FUNCTION idivm.note_witness(integer, pg_snapshot) IS
    'remembers that a view was computed since a crash may have emptied its unlogged tables';

-- Discard log rows that a dump brought into the logs of a recomputed view. A log row that is visible while its
-- transaction is not came with a dump; the tables of this cluster have contained its change from the beginning.
CREATE OR REPLACE FUNCTION idivm.discard_foreign_log(view_id integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    segment text;
BEGIN
    FOR segment IN
        SELECT 's' || vs.source || suffix FROM idivm.view_sources vs
        CROSS JOIN unnest(ARRAY['_a', '_b']) AS suffix
        -- A transaction may be in the WAL before snapshots see it.
        WHERE vs.view = view_id AND (SELECT s.wal_since FROM idivm.sources s WHERE s.id = vs.source) IS NULL
    LOOP
        EXECUTE format(
            'DELETE FROM idivm_log.%I WHERE xid >= pg_snapshot_xmin(pg_current_snapshot())'
            ' AND NOT pg_visible_in_snapshot(xid, pg_current_snapshot()) AND xid <> pg_current_xact_id()', segment);
    END LOOP;
    PERFORM idivm.note_witness(view_id, pg_current_snapshot());
END
$$;

CREATE OR REPLACE FUNCTION idivm.log_limit(options jsonb) RETURNS bigint
    LANGUAGE sql STABLE
    RETURN pg_size_bytes(coalesce(options ->> 'log_limit', idivm.database_setting('idivm.log_limit'), '1GB'));

CREATE OR REPLACE FUNCTION idivm.log_action(options jsonb) RETURNS text
    LANGUAGE sql STABLE
    RETURN coalesce(options ->> 'on_log_limit', idivm.database_setting('idivm.on_log_limit'), 'warn');

-- Return the pages of a segment from the first row that is pending after a watermark. Rows were written nearly in the
-- order in which their transactions ended, so a binary search finds this row.
CREATE OR REPLACE FUNCTION idivm.pending_pages(source integer, segment regclass, since idivm.watermark) RETURNS bigint
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    pages bigint := pg_relation_size(segment) / current_setting('block_size')::bigint;
    first bigint := 0;
    beyond bigint := pages;
    middle bigint;
    consumed boolean;
BEGIN
    WHILE first < beyond LOOP
        middle := (first + beyond) / 2;
        consumed := NULL;
        EXECUTE format('SELECT NOT idivm.is_pending(xid, seq, $1, %s) FROM %s WHERE ctid >= $2 LIMIT 1', source, segment)
        INTO consumed USING since, format('(%s,0)', middle)::tid;
        IF consumed THEN
            first := middle + 1;
        ELSE
            beyond := middle;
        END IF;
    END LOOP;
    RETURN pages - first;
END
$$;
COMMENT ON FUNCTION idivm.pending_pages(integer, regclass, idivm.watermark) IS
    'the pages of a log segment that a view with this watermark has yet to consume';

-- A diff is an array, and PostgreSQL arrays are limited to 1 GB. PostgreSQL only notices this after it has gathered
-- all rows in memory, so a refresh does not try.
CREATE OR REPLACE FUNCTION idivm.most_diff_bytes() RETURNS bigint
    LANGUAGE sql IMMUTABLE
    RETURN 805306368;
COMMENT ON FUNCTION idivm.most_diff_bytes() IS 'with more pending bytes in the log of a table, a refresh recomputes the view';

-- Return whether the log of a source has more than a number of pending rows, estimated by its pages, or more bytes
-- than a diff may have: a refresh that recomputes its view should not read millions of rows first. The last page but
-- one shows how many rows a page has, and a row so far before the end whether more are pending: rows were written nearly
-- in the order in which their transactions ended. A long transaction that has just ended has rows far before the end,
-- so a few rows there are examined too.
CREATE OR REPLACE FUNCTION idivm.has_more_pending(source integer, since idivm.watermark, most bigint) RETURNS boolean
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    segments constant regclass[] := ARRAY['idivm_log.s' || source || '_a', 'idivm_log.s' || source || '_b'];
    segment regclass;
    pages bigint;
    on_page bigint;
    is_more boolean;
BEGIN
    FOREACH segment IN ARRAY segments LOOP
        pages := pg_relation_size(segment) / current_setting('block_size')::bigint;
        CONTINUE WHEN pages < 2;
        EXECUTE format('SELECT count(*) FROM %s WHERE ctid >= $1 AND ctid < $2', segment)
        INTO on_page USING format('(%s,0)', pages - 2)::tid, format('(%s,0)', pages - 1)::tid;
        CONTINUE WHEN pages * on_page <= most;
        EXECUTE format(
            'SELECT bool_or(c.pending AND c.place = 4) OR count(*) FILTER (WHERE c.pending) > 1'
            ' FROM (SELECT p.place, (SELECT idivm.is_pending(xid, seq, $1, %s) FROM %s WHERE ctid >= p.at LIMIT 1) AS pending'
            ' FROM unnest($2) WITH ORDINALITY AS p (at, place)) AS c', source, segment)
        INTO is_more USING since, ARRAY(SELECT format('(%s,0)', (pages - most / on_page - 1) * part / 4)::tid
                                        FROM generate_series(1, 4) AS part);
        IF is_more THEN
            RETURN true;
        END IF;
    END LOOP;
    -- The sizes include values that are stored out of line.
    IF pg_table_size(segments[1]) + pg_table_size(segments[2]) <= idivm.most_diff_bytes() THEN
        RETURN false;
    END IF;
    RETURN (SELECT sum(idivm.pending_pages(source, s, since) * (pg_table_size(s) / nullif(pg_relation_size(s), 0)::float8))
            FROM unnest(segments) AS s) * current_setting('block_size')::bigint > idivm.most_diff_bytes();
END
$$;
COMMENT ON FUNCTION idivm.has_more_pending(integer, idivm.watermark, bigint) IS
    'whether about more than so many rows of a log are pending after a watermark, or too many bytes for a diff';

-- Return how many bytes of log a view has yet to consume, in whole pages.
CREATE OR REPLACE FUNCTION idivm.log_kept(view_id integer) RETURNS bigint
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(sum(idivm.pending_pages(vs.source, c.oid, w.mark)), 0)::bigint * current_setting('block_size')::bigint
    FROM idivm.view_sources vs
    JOIN idivm.watermarks w ON w.view = vs.view
    JOIN pg_class c ON c.relnamespace = 'idivm_log'::regnamespace
                   AND c.relname IN ('s' || vs.source || '_a', 's' || vs.source || '_b')
    WHERE vs.view = view_id
$$;
COMMENT ON FUNCTION idivm.log_kept(integer) IS 'the bytes of change logs that a view has yet to consume';

-- Return the views that keep more log than they may, for one source or for all.
CREATE OR REPLACE FUNCTION idivm.over_log_limit(source integer DEFAULT NULL)
    RETURNS TABLE (view integer, name text, action text, kept bigint, most bigint)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    FOR view, name, action, most IN
        SELECT v.id, coalesce(c.oid::regclass::text, v.name), idivm.log_action(v.options), idivm.log_limit(v.options)
        FROM idivm.views v JOIN pg_class c ON c.oid = v.relation
        WHERE v.status = 'ready'
          AND (v.id NOT IN (SELECT idivm.synchronous_views()) OR EXISTS (SELECT FROM idivm.view_errors e WHERE e.view = v.id))
          AND (over_log_limit.source IS NULL
               OR EXISTS (SELECT FROM idivm.view_sources vs WHERE vs.view = v.id AND vs.source = over_log_limit.source))
    LOOP
        -- The sizes of the files are cheap to get, and mostly decide.
        CONTINUE WHEN most >= (
            SELECT coalesce(sum(pg_relation_size(l.oid)), 0) FROM idivm.view_sources vs
            JOIN pg_class l ON l.relnamespace = 'idivm_log'::regnamespace
                           AND l.relname IN ('s' || vs.source || '_a', 's' || vs.source || '_b')
            WHERE vs.view = over_log_limit.view);
        kept := idivm.log_kept(view);
        IF kept > most THEN
            RETURN NEXT;
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION idivm.over_log_limit(integer) IS 'the views that keep more of the change logs than their log_limit';

-- Mark the views of a source that keep too much log and have on_log_limit = rebuild, so that the next refresh
-- rebuilds them and their logs can be emptied. Report the other views in the server's log.
CREATE OR REPLACE FUNCTION idivm.mind_limits(source integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    late record;
BEGIN
    FOR late IN SELECT * FROM idivm.over_log_limit(mind_limits.source) LOOP
        -- A running refresh of the view still needs its log.
        IF late.action = 'rebuild' AND pg_try_advisory_xact_lock(idivm.lock_class(), late.view) THEN
            PERFORM idivm.invalidate_unlocked(ARRAY[late.view]);
        ELSE
            RAISE LOG 'the view % keeps % of change logs, more than its log_limit of %',
                late.name, pg_size_pretty(late.kept), pg_size_pretty(late.most)
                USING HINT = format('CALL idivm.refresh_all(%L) brings it up to date.', late.name);
        END IF;
    END LOOP;
END
$$;

-- Writers check the limits now and then, because nobody else may run.
CREATE OR REPLACE FUNCTION idivm.look_after_log(source integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- A transaction that may stay prepared for hours must not empty a log, because that locks the log.
    IF current_setting('max_prepared_transactions') = '0'
       AND EXISTS (SELECT FROM idivm.over_log_limit(look_after_log.source) o WHERE o.action = 'rebuild')
       AND idivm.may_defer() THEN
        INSERT INTO idivm.commits (views, logs) VALUES ('{}', ARRAY[source]);
    ELSIF current_setting('transaction_isolation') IN ('read committed', 'read uncommitted') THEN
        PERFORM idivm.mind_limits(source);
    END IF;
EXCEPTION WHEN OTHERS THEN
    IF idivm.ends_refresh(sqlstate) THEN
        RAISE;
    END IF;
    RAISE LOG 'the size of the change log idivm_log.s% could not be looked at: %', source, sqlerrm;
END
$$;

-- Record that a capture trigger could not log its statement. Whoever repairs capture first waits for the writers of
-- the table, so that this mark is not removed too early.
CREATE OR REPLACE FUNCTION idivm.note_lost(source integer) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM FROM idivm.views v
    WHERE v.status = 'ready' AND v.id IN (SELECT vs.view FROM idivm.view_sources vs WHERE vs.source = note_lost.source)
    ORDER BY v.id FOR NO KEY UPDATE;
    UPDATE idivm.views v SET status = 'invalid'
    WHERE v.status = 'ready' AND v.id IN (SELECT vs.view FROM idivm.view_sources vs WHERE vs.source = note_lost.source);
END
$$;
COMMENT ON FUNCTION idivm.note_lost(integer) IS
    'has the views of a table rebuilt, as a statement on it could not be logged';

-- Return the beginning of a statement that logs the rows of a transition table whose columns differ from those that
-- the capture functions were made for: the query of the source view over these rows. The result is NULL if the source
-- view is gone or differs from what idivm created.
CREATE OR REPLACE FUNCTION idivm.images(source integer, changed regclass, operation text) RETURNS text
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    view regclass := to_regclass(format('idivm_def.%I', 's' || source));
    query text := pg_get_viewdef(view);
    image text := 's' || source || '_image';
    ending text;
BEGIN
    SELECT E'\n   FROM ' || s.relation || ' t;' INTO ending
    FROM idivm.sources s JOIN idivm.source_members m ON m.source = s.id
    WHERE s.id = images.source AND m.member = changed;
    IF ending IS NULL THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = format('a trigger of table %s does not belong to capture as idivm has set it up', changed),
            HINT = 'Drop it, and run idivm doctor.';
    END IF;
    IF right(query, length(ending)) IS DISTINCT FROM ending THEN
        RETURN NULL;
    END IF;
    query := left(query, -length(ending));
    RETURN 'WITH ' || concat_ws(', ',
        CASE WHEN operation <> 'INSERT' THEN
            format('old_images AS (SELECT ROW(r.*)::idivm_log.%I AS image FROM (%s FROM old_rows AS t) AS r)', image, query) END,
        CASE WHEN operation <> 'DELETE' THEN
            format('new_images AS (SELECT ROW(r.*)::idivm_log.%I AS image FROM (%s FROM new_rows AS t) AS r)', image, query) END)
        || ' ';
END
$$;

-- Return whether a refresh of a view has anything to do.
CREATE OR REPLACE FUNCTION idivm.has_pending(view_id integer) RETURNS boolean
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    facts record;
    log record;
BEGIN
    SELECT v.time_dependent OR v.has_clock OR v.status = 'invalid'
               OR EXISTS (SELECT FROM idivm.view_errors e WHERE e.view = view_id) AS recompute,
           EXISTS (SELECT FROM idivm.sources s WHERE s.wal_since IS NOT NULL) AS any_wal, w AS watermark
    INTO facts FROM idivm.views v LEFT JOIN idivm.watermarks w ON w.view = v.id WHERE v.id = view_id;
    IF NOT FOUND THEN
        -- The view is gone.
        RETURN false;
    END IF;
    IF facts.recompute OR facts.any_wal AND view_id = ANY (idivm.views_missing_wal(ARRAY[view_id])) THEN
        RETURN true;
    END IF;
    FOR log IN
        SELECT vs.source, pg_relation_size(to_regclass('idivm_log.s' || vs.source || '_a'))
                              + pg_relation_size(to_regclass('idivm_log.s' || vs.source || '_b')) AS bytes
        FROM idivm.view_sources vs WHERE vs.view = view_id ORDER BY bytes DESC NULLS FIRST
    LOOP
        EXIT WHEN log.bytes = 0;
        IF idivm.has_any(log.source, (facts.watermark).mark) THEN
            RETURN true;
        END IF;
    END LOOP;
    RETURN idivm.is_foreign(facts.watermark) OR idivm.has_drifted(view_id);
END
$$;

CREATE OR REPLACE FUNCTION idivm.has_entries(segment regclass, other regclass) RETURNS boolean
    LANGUAGE sql
    RETURN pg_catalog.pg_relation_size(segment) > 0 OR pg_catalog.pg_relation_size(other) > 0;
COMMENT ON FUNCTION idivm.has_entries(regclass, regclass) IS
    'whether there is anything in one of the two segments of a log';

-- Return where the last page of a table begins.
CREATE OR REPLACE FUNCTION idivm.last_page(relation regclass) RETURNS tid
    LANGUAGE sql
    RETURN pg_catalog.format(
        '(%s,0)',
        greatest(pg_catalog.pg_relation_size(relation) / pg_catalog.current_setting('block_size')::integer - 1, 0)
    )::tid;
COMMENT ON FUNCTION idivm.last_page(regclass) IS 'the least position on the last page of a table';

CREATE OR REPLACE FUNCTION idivm.has_any(source integer, since idivm.watermark) RETURNS boolean
    LANGUAGE plpgsql
AS $$
DECLARE
    pending boolean;
BEGIN
    EXECUTE pg_catalog.format('SELECT idivm_log.%I($1)', 's' || source || '_any') INTO pending USING since;
    RETURN pending;
END
$$;
COMMENT ON FUNCTION idivm.has_any(integer, idivm.watermark) IS
    'whether the log of a source holds changes that are pending after a watermark';

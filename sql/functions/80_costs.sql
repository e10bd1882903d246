-- What refreshes cost, and whether recomputing is cheaper.

-- Return a number that follows the size of the tables that a view reads, and what ANALYZE knows of their rows.
CREATE OR REPLACE FUNCTION idivm.source_size(view_id integer) RETURNS double precision
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (SELECT sum(pg_relation_size(c.oid) + 100 * greatest(c.reltuples, 0))
            FROM idivm.view_sources vs JOIN idivm.source_members m ON m.source = vs.source JOIN pg_class c ON c.oid = m.member
            WHERE vs.view = view_id);
END
$$;
COMMENT ON FUNCTION idivm.source_size(integer) IS
    'a number that follows the size of the tables that a view reads, and what ANALYZE knows of their rows';

-- Return what is known about the work of recomputing a view, unless its tables have grown or shrunk by a tenth since. To ask
-- PostgreSQL for it plans the query, which may take as long as the query itself. Other callers than programs do not see what
-- is known.
CREATE OR REPLACE FUNCTION idivm.known_work(view_id integer, OUT query_work double precision, OUT rows_to_read double precision)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT has_table_privilege('idivm.costs', 'SELECT') THEN
        RETURN;
    END IF;
    SELECT c.known_work, c.known_rows INTO query_work, rows_to_read
    FROM idivm.costs c
    WHERE c.view = view_id AND abs(c.known_size - idivm.source_size(view_id)) <= c.known_size / 10;
END
$$;
COMMENT ON FUNCTION idivm.known_work(integer) IS
    'the work of recomputing a view, if it is known for the present size of the tables';

-- Remember the work of recomputing a view for the present size of its tables.
CREATE OR REPLACE FUNCTION idivm.note_work(view_id integer, query_work double precision) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE idivm.costs c
    SET known_work = query_work, known_rows = idivm.rows_to_read(view_id), known_size = idivm.source_size(view_id)
    WHERE c.view = view_id AND query_work > 0 AND (idivm.known_work(view_id)).query_work IS NULL;
END
$$;
COMMENT ON FUNCTION idivm.note_work(integer, double precision) IS
    'remembers the work of recomputing a view for the present size of its tables';

-- Return the rows of the tables that a view reads, and of its states: the rows per page of the last ANALYZE, times
-- the current number of pages.
CREATE OR REPLACE FUNCTION idivm.rows_to_read(view_id integer) RETURNS double precision
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    known double precision := (idivm.known_work(view_id)).rows_to_read;
BEGIN
    IF known IS NOT NULL THEN
        RETURN known;
    END IF;
    RETURN (
        SELECT coalesce(sum(CASE WHEN c.reltuples >= 0 AND c.relpages > 0
                                 THEN c.reltuples * pg_relation_size(c.oid)
                                      / (c.relpages * current_setting('block_size')::float8)
                                 ELSE pg_relation_size(c.oid) / 100 END), 0)::float8
        FROM pg_class c
        WHERE c.relkind = 'r'
          AND (c.oid IN (SELECT m.member FROM idivm.source_members m
                         JOIN idivm.view_sources vs ON vs.source = m.source WHERE vs.view = view_id)
               OR c.relnamespace = 'idivm_state'::regnamespace AND c.relname ~ ('_' || view_id || '$')));
END
$$;

-- Return PostgreSQL's cost estimate of a query, in rows that it processes; this may be many more than it reads. It is
-- 0 for a caller who may not read the query. The settings that force lookups in programs would make all other plans
-- look expensive, so they are reset here. A query over a stream, whose rows are not here, has no end.
CREATE OR REPLACE FUNCTION idivm.query_work(definition regclass) RETURNS double precision
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = on SET enable_hashjoin = on SET enable_mergejoin = on SET enable_material = on
    SET join_collapse_limit = 8
AS $$
DECLARE
    known double precision := (SELECT (idivm.known_work(substr(c.relname, 2)::integer)).query_work
                               FROM pg_class c WHERE c.oid = definition);
    expected json;
BEGIN
    IF known IS NOT NULL THEN
        RETURN known;
    END IF;
    IF idivm.has_streams()
       AND EXISTS (SELECT FROM idivm.relations_below(definition) AS below WHERE idivm.lacks_rows(below)) THEN
        RETURN 'infinity';
    END IF;
    EXECUTE format('EXPLAIN (FORMAT JSON) SELECT * FROM %s', definition) INTO expected;
    RETURN (expected -> 0 -> 'Plan' ->> 'Total Cost')::float8 / greatest(current_setting('cpu_tuple_cost')::float8, 0.001);
EXCEPTION WHEN insufficient_privilege THEN
    RETURN 0;
END
$$;

-- Return the work of recomputing a view, in rows: those that its query processes, and those that are compared.
CREATE OR REPLACE FUNCTION idivm.recompute_work(view_id integer, query_work double precision) RETURNS double precision
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN idivm.rows_to_read(view_id) + query_work;
END
$$;

-- Return how many seconds an access, a lookup or a row, usually takes in a large diff. In most views, an access takes between
-- a third of this time and three times as long: less if PostgreSQL finds rows by hashing, more if rows are written.
CREATE OR REPLACE FUNCTION idivm.usual_access_seconds() RETURNS double precision
    LANGUAGE sql IMMUTABLE
    RETURN 2e-6;
COMMENT ON FUNCTION idivm.usual_access_seconds() IS 'the seconds that a lookup or row usually takes in a large diff';

-- Return how many seconds computing all states of a view is expected to take, by earlier measurements. Before the
-- first one, use the measurements of other views, or those of a common machine.
CREATE OR REPLACE FUNCTION idivm.states_seconds(view_id integer, query_work double precision) RETURNS double precision
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN idivm.recompute_work(view_id, query_work) * coalesce(
        (SELECT coalesce(c.row_seconds, c.content_row_seconds / c.content_share,
                         c.access_seconds / idivm.usual_access_seconds() * 1e-7) FROM idivm.costs c WHERE c.view = view_id),
        (SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY c.row_seconds) FROM idivm.costs c), 1e-7);
END
$$;
COMMENT ON FUNCTION idivm.states_seconds(integer, double precision) IS
    'how many seconds computing all states of a view is expected to take';

-- Return how many seconds computing the content of a view alone is expected to take, or NULL if this is not known.
CREATE OR REPLACE FUNCTION idivm.content_seconds(view_id integer, query_work double precision) RETURNS double precision
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (
        SELECT coalesce(c.content_row_seconds * idivm.recompute_work(view_id, query_work),
                        c.content_share * idivm.states_seconds(view_id, query_work))
        FROM idivm.costs c WHERE c.view = view_id);
END
$$;
COMMENT ON FUNCTION idivm.content_seconds(integer, double precision) IS
    'how many seconds computing the content of a view alone is expected to take';

-- Return how many seconds recomputing a view is expected to take: all its states, or its content alone.
CREATE OR REPLACE FUNCTION idivm.recompute_seconds(view_id integer, query_work double precision) RETURNS double precision
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN least(idivm.states_seconds(view_id, query_work), idivm.content_seconds(view_id, query_work));
END
$$;

-- Return how many seconds an access takes in large diffs of a view. Before the first large diff is measured, assume the
-- usual time, or that of a row of the query if it is longer. The price measured in small diffs is not used: small diffs look
-- rows up in another way, and most of their accesses may read a single large group.
CREATE OR REPLACE FUNCTION idivm.access_seconds(view_id integer) RETURNS double precision
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN coalesce((SELECT coalesce(c.access_seconds, greatest(idivm.usual_access_seconds(), c.row_seconds))
                     FROM idivm.costs c WHERE c.view = view_id), idivm.usual_access_seconds());
END
$$;
COMMENT ON FUNCTION idivm.access_seconds(integer) IS 'the seconds that a lookup or row takes in large diffs of a view';

-- A refresh reads up to this number of pending changes without estimating its cost.
CREATE OR REPLACE FUNCTION idivm.least_pending() RETURNS bigint
    LANGUAGE sql IMMUTABLE
    RETURN 1000;

-- Return how many pending changes may be read. Reading and sorting a change takes about as long as processing 25 rows
-- of the query, and each change leads to so many accesses. With more changes, recomputing the view is faster than both
-- together.
CREATE OR REPLACE FUNCTION idivm.most_pending(view_id integer, query_work double precision, accesses double precision)
    RETURNS bigint
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN CASE WHEN query_work = 'infinity' THEN 1e18 ELSE least(1e18, greatest(idivm.least_pending(), 1 / nullif(
        25 / nullif(idivm.recompute_work(view_id, query_work), 0)
        + accesses * idivm.access_seconds(view_id) / nullif(idivm.recompute_seconds(view_id, query_work), 0), 0))) END::bigint;
END
$$;
COMMENT ON FUNCTION idivm.most_pending(integer, double precision, double precision) IS
    'how many pending changes with so many accesses each may be read before recomputing the view is cheaper';

-- Return whether recomputing a view is cheaper than reading and applying the pending changes of a source. The first check
-- finds the small logs, which are always read; the cost estimates of the second take longer than a small refresh.
CREATE OR REPLACE FUNCTION idivm.log_is_too_long(view_id integer, source integer, since idivm.watermark,
                                                 accesses double precision) RETURNS boolean
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN idivm.has_more_pending(source, since, idivm.least_pending())
        AND idivm.has_more_pending(source, since, idivm.most_pending(
            view_id, idivm.query_work(to_regclass('idivm_def.v' || view_id)), accesses));
END
$$;
COMMENT ON FUNCTION idivm.log_is_too_long(integer, integer, idivm.watermark, double precision) IS
    'whether recomputing a view is cheaper than to read and apply the pending changes of a source';

-- Record that a refresh took longer than recomputing the view, or was stopped for this reason. Refreshes that expect
-- as many accesses then recompute the view. Each recompute raises the bound, so that a diff is tried again, less
-- often after each further loss.
CREATE OR REPLACE FUNCTION idivm.note_loss(view_id integer, accesses double precision, variant_now text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF (accesses > 0 AND accesses < 1e18) IS TRUE THEN
        INSERT INTO idivm.costs AS c (view, variant, loses_from, losses) VALUES (view_id, variant_now, accesses, 1)
        ON CONFLICT (view) DO UPDATE SET loses_from = least(c.loses_from, excluded.loses_from),
                                         losses = least(c.losses + 1, 8);
    END IF;
END
$$;
COMMENT ON FUNCTION idivm.note_loss(integer, double precision, text) IS
    'remembers from how many accesses on a refresh takes longer than recomputing the view';

-- Record whether a long refresh took longer than recomputing the view. The first refresh of a session plans its
-- statements and says little.
CREATE OR REPLACE FUNCTION idivm.note_long(view_id integer, accesses double precision, query_work double precision,
                                           begun timestamptz, variant_now text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    session text := 'idivm.long_' || view_id;
    allowed double precision := CASE WHEN current_setting(session, true) = variant_now THEN 0.005 ELSE 0.5 END;
    seconds double precision;
BEGIN
    IF (query_work >= 0 AND query_work < 1e18 AND begun > '-infinity' AND begun <= clock_timestamp()) IS NOT TRUE THEN
        RETURN;
    END IF;
    seconds := extract(epoch FROM clock_timestamp() - begun);
    PERFORM set_config(session, variant_now, false);
    IF seconds > 1.25 * idivm.recompute_seconds(view_id, query_work) + allowed THEN
        PERFORM idivm.note_loss(view_id, accesses, variant_now);
    ELSIF accesses > 0 THEN
        UPDATE idivm.costs c SET loses_from = NULL, losses = 0 WHERE c.view = view_id AND c.loses_from <= accesses;
    END IF;
END
$$;
COMMENT ON FUNCTION idivm.note_long(integer, double precision, double precision, timestamptz, text) IS
    'remembers whether a refresh took longer than recomputing the view';

-- The same for programs, which do not estimate the work of the query. The first refresh of a session never counts as too
-- long if it took less than half a second, whatever the estimate.
CREATE OR REPLACE FUNCTION idivm.note_long(view_id integer, accesses double precision, definition regclass,
                                           begun timestamptz, variant_now text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    session text := 'idivm.long_' || view_id;
BEGIN
    IF current_setting(session, true) IS NOT DISTINCT FROM variant_now
       OR (clock_timestamp() BETWEEN begun AND begun + interval '500 milliseconds') IS NOT TRUE THEN
        PERFORM idivm.note_long(view_id, accesses, idivm.query_work(definition), begun, variant_now);
        RETURN;
    END IF;
    PERFORM set_config(session, variant_now, false);
    IF accesses > 0 THEN
        UPDATE idivm.costs c SET loses_from = NULL, losses = 0 WHERE c.view = view_id AND c.loses_from <= accesses;
    END IF;
END
$$;
COMMENT ON FUNCTION idivm.note_long(integer, double precision, regclass, timestamptz, text) IS
    'remembers whether a refresh took longer than recomputing the view';

-- Return a cost after another measurement. Disturbances only make things slower, so a cost follows lower measurements
-- quickly and higher ones slowly.
CREATE OR REPLACE FUNCTION idivm.followed(known double precision, measured double precision) RETURNS double precision
    LANGUAGE sql IMMUTABLE
    RETURN CASE WHEN measured > known THEN known + (least(measured, 2 * known) - known) / 8
                ELSE coalesce((known + measured) / 2, measured, known) END;
COMMENT ON FUNCTION idivm.followed(double precision, double precision) IS 'a cost after another measurement';

-- Record what recomputing took, with the rights of the calling program; invalid numbers are ignored. Each time,
-- accesses become a little cheaper, so that a single slow refresh does not decide for ever.
CREATE OR REPLACE FUNCTION idivm.note_recompute(view_id integer, query_work double precision, begun timestamptz, variant_now text)
    RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    by_row double precision;
BEGIN
    IF (query_work >= 0 AND query_work < 1e18 AND begun > '-infinity' AND begun <= clock_timestamp()) IS NOT TRUE THEN
        RETURN;
    END IF;
    by_row := extract(epoch FROM clock_timestamp() - begun) / nullif(idivm.recompute_work(view_id, query_work), 0);
    DELETE FROM idivm.costs c WHERE c.view = view_id AND c.variant <> variant_now;
    INSERT INTO idivm.costs AS c (view, row_seconds, variant) VALUES (view_id, by_row, variant_now)
    ON CONFLICT (view) DO UPDATE
    SET row_seconds = idivm.followed(c.row_seconds, excluded.row_seconds),
        access_seconds = 0.9 * idivm.access_seconds(view_id),
        loses_from = c.loses_from * (1 + 2.0 ^ -c.losses),
        variant = excluded.variant;
    PERFORM idivm.note_work(view_id, query_work);
END
$$;

-- Return how many seconds a diff with so many accesses is expected to take. A refresh of another kind than A recomputes
-- because its diff takes too long. To try a diff that lost before needs states that are computed for it, so the bound is
-- raised well above the diff before that.
CREATE OR REPLACE FUNCTION idivm.diff_seconds(view_id integer, kind "char", accesses double precision) RETURNS double precision
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE WHEN kind = 'A' AND accesses < coalesce((SELECT c.loses_from / 1.5 FROM idivm.costs c WHERE c.view = view_id), 'infinity')
                THEN accesses * idivm.access_seconds(view_id) ELSE 'infinity' END
$$;
COMMENT ON FUNCTION idivm.diff_seconds(integer, "char", double precision) IS
    'how many seconds a diff with so many lookups and rows is expected to take';

-- Return whether a refresh that recomputes computes the content alone, and leaves the other states behind. Until they are
-- computed, no diff can be applied. The orchestrator, serve and idivm.refresh_all compute them when nothing else is to do.
-- Otherwise, they are computed as soon as the refreshes without them have lost four times as much as computing them takes: on average, a
-- refresh then takes at most a quarter longer than its query.
CREATE OR REPLACE FUNCTION idivm.content_is_enough(view_id integer, query_work double precision, content_only boolean,
                                                   kind "char", accesses double precision) RETURNS boolean
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    states double precision := idivm.states_seconds(view_id, query_work);
    content double precision := idivm.content_seconds(view_id, query_work);
BEGIN
    IF states < 0.02 OR (SELECT v.maintain <> 'deferred' FROM idivm.views v WHERE v.id = view_id) THEN
        RETURN false;
    END IF;
    IF content_only IS NOT TRUE THEN
        -- Until the content was computed alone once, its time is only estimated.
        RETURN states > 1.25 * content + 0.005
            OR NOT EXISTS (SELECT FROM idivm.costs c WHERE c.view = view_id AND c.content_row_seconds > 0);
    END IF;
    content := coalesce(content, states / 2);
    RETURN coalesce((SELECT c.lost_seconds FROM idivm.costs c WHERE c.view = view_id), 0)
        + greatest(0, content - idivm.diff_seconds(view_id, kind, accesses)) < 4 * (states - content);
END
$$;
COMMENT ON FUNCTION idivm.content_is_enough(integer, double precision, boolean, "char", double precision) IS
    'whether a refresh that recomputes leaves the states behind the content for later';

-- Record what computing the content alone took, and what it lost.
CREATE OR REPLACE FUNCTION idivm.note_content(view_id integer, query_work double precision, content_only boolean, kind "char",
                                              accesses double precision, begun timestamptz, variant_now text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    seconds double precision := extract(epoch FROM clock_timestamp() - begun);
    lost double precision;
BEGIN
    IF (query_work >= 0 AND query_work < 1e18 AND begun > '-infinity' AND seconds >= 0
        AND accesses >= 0 AND accesses < 1e18) IS NOT TRUE THEN
        RETURN;
    END IF;
    lost := greatest(0, seconds - idivm.diff_seconds(view_id, kind, accesses));
    DELETE FROM idivm.costs c WHERE c.view = view_id AND c.variant <> variant_now;
    INSERT INTO idivm.costs AS c (view, content_row_seconds, lost_seconds, variant)
    VALUES (view_id, seconds / nullif(idivm.recompute_work(view_id, query_work), 0), 0, variant_now)
    ON CONFLICT (view) DO UPDATE
    SET content_row_seconds = idivm.followed(c.content_row_seconds, excluded.content_row_seconds),
        lost_seconds = CASE WHEN content_only THEN c.lost_seconds + lost ELSE 0 END,
        access_seconds = 0.98 * idivm.access_seconds(view_id),
        loses_from = c.loses_from * (1 + 2.0 ^ -c.losses / 8),
        variant = excluded.variant;
    PERFORM idivm.note_work(view_id, query_work);
END
$$;
COMMENT ON FUNCTION idivm.note_content(integer, double precision, boolean, "char", double precision, timestamptz, text) IS
    'remembers what computing the content of a view alone took, and what it lost';

-- Record what applying a diff took. Disturbances only make a refresh slower, so the price follows lower measurements
-- quickly and higher ones slowly. A session's first refresh of a view plans its statements and says nothing about
-- accesses, unless it is long. After the first few refreshes, only a sample is recorded, or a refresh so long that
-- another write does not matter. A session remembers until when it has nothing to record.

CREATE OR REPLACE FUNCTION idivm.note_diff(view_id integer, accesses double precision, begun timestamptz, variant_now text,
                                           large boolean) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    ended timestamptz := clock_timestamp();
    seconds double precision;
    session text := 'idivm.noted_' || view_id;
    -- The plan variant that the session knows, and the second until which it has nothing to record.
    heard text := current_setting(session, true);
    is_usual boolean;
    known idivm.costs;
BEGIN
    IF (accesses > 0 AND accesses < 1e18 AND begun > '-infinity' AND begun <= ended) IS NOT TRUE THEN
        RETURN;
    END IF;
    seconds := extract(epoch FROM ended - begun);
    is_usual := seconds < 0.02 AND NOT large;
    IF substr(heard, strpos(heard, ' ') + 1) IS DISTINCT FROM variant_now THEN
        PERFORM set_config(session, '0 ' || variant_now, false);
        IF seconds < 0.1 AND NOT large THEN
            RETURN;
        END IF;
    -- The session may have set this value to anything.
    ELSIF is_usual AND (CASE WHEN heard ~ '^[0-9]{1,12} '
                             THEN split_part(heard, ' ', 1)::numeric - extract(epoch FROM ended) BETWEEN 0 AND 61 END) THEN
        RETURN;
    END IF;
    SELECT * INTO known FROM idivm.costs c WHERE c.view = view_id;
    IF is_usual AND known.variant = variant_now AND known.refreshes >= 8 AND ended < known.noted_at + interval '1 minute' THEN
        PERFORM set_config(session, ceil(extract(epoch FROM known.noted_at) + 60) || ' ' || variant_now, false);
        RETURN;
    END IF;
    IF known.variant <> variant_now THEN
        DELETE FROM idivm.costs c WHERE c.view = view_id;
    END IF;
    INSERT INTO idivm.costs AS c (view, access_seconds, variant, price, refreshes, noted_at)
    VALUES (view_id, CASE WHEN large THEN seconds / accesses END, variant_now, seconds / accesses, 1, ended)
    ON CONFLICT (view) DO UPDATE
    SET access_seconds = coalesce((c.access_seconds + excluded.access_seconds) / 2, excluded.access_seconds,
                                  c.access_seconds),
        variant = excluded.variant,
        price = idivm.followed(c.price, excluded.price),
        refreshes = c.refreshes + 1,
        noted_at = excluded.noted_at;
END
$$;

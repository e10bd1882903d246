-- What refreshes of ordinary size took, for the choice between strategies; and what PostgreSQL expects
-- of a query, for the choice between applying a diff and computing anew.

ALTER TABLE idivm.costs
    ADD COLUMN way text,
    ADD COLUMN price double precision,
    ADD COLUMN refreshes integer NOT NULL DEFAULT 0,
    ADD COLUMN noted_at timestamptz;
-- These were of less work than is counted now.
UPDATE idivm.costs SET row_seconds = NULL;
COMMENT ON TABLE idivm.costs IS 'what refreshes of a view took';
COMMENT ON COLUMN idivm.costs.row_seconds IS 'of computing the states anew: seconds for each row of work, as idivm.work_anew counts it';
COMMENT ON COLUMN idivm.costs.way IS 'the strategy of the refreshes that were measured, and whether it had a cache';
COMMENT ON COLUMN idivm.costs.price IS 'of diffs of any size: seconds for each lookup or row that the cost model expects';
COMMENT ON COLUMN idivm.costs.refreshes IS 'how many refreshes the price was measured by';
COMMENT ON COLUMN idivm.costs.noted_at IS 'when the last of these was';

-- What PostgreSQL expects a query to cost, in rows that it goes through, which may be many more than it
-- reads. To who may not read it that is not known, and taken for nothing. A program that looks rows up
-- whatever the statistics say has settings that make all else look dear.
CREATE FUNCTION idivm.query_work(definition regclass) RETURNS double precision
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = on SET enable_hashjoin = on SET enable_mergejoin = on SET join_collapse_limit = 8
AS $$
DECLARE
    expected json;
BEGIN
    EXECUTE format('EXPLAIN (FORMAT JSON) SELECT * FROM %s', definition) INTO expected;
    RETURN (expected -> 0 -> 'Plan' ->> 'Total Cost')::float8 / greatest(current_setting('cpu_tuple_cost')::float8, 0.001);
EXCEPTION WHEN insufficient_privilege THEN
    RETURN 0;
END
$$;

-- The work of computing a view anew, in rows: what its query goes through, and what is compared.
CREATE FUNCTION idivm.work_anew(view_id integer, query_work double precision) RETURNS double precision
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT idivm.rows_to_read(view_id) + query_work
$$;

-- Whether to compute the states of a view anew takes less time than so many accesses, where its query is
-- expected to go through so many rows. Before a large diff was measured, an access is taken for a row that
-- is read: only applying such a diff teaches what it costs, while a view that is computed anew in doubt
-- meets an even larger one afterwards.
CREATE FUNCTION idivm.is_cheaper_anew(view_id integer, accesses double precision, query_work double precision)
    RETURNS boolean
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    known idivm.costs;
BEGIN
    SELECT * INTO known FROM idivm.costs c WHERE c.view = view_id;
    RETURN accesses * coalesce(known.access_seconds, known.row_seconds, 1)
         > idivm.work_anew(view_id, query_work) * coalesce(known.row_seconds, known.access_seconds / 4, 1);
END
$$;

-- As before, without what the query goes through: then the answer may be yes too early, never too late.
CREATE OR REPLACE FUNCTION idivm.is_cheaper_anew(view_id integer, accesses double precision) RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT idivm.is_cheaper_anew(view_id, accesses, 0)
$$;

-- Remembers what computing anew took. Accesses look cheaper each time, so that what one slow refresh said
-- of them does not stand for ever.
CREATE FUNCTION idivm.note_anew(view_id integer, query_work double precision, begun timestamptz, way_now text)
    RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    by_row double precision := extract(epoch FROM clock_timestamp() - begun)
                               / nullif(idivm.work_anew(view_id, query_work), 0);
BEGIN
    DELETE FROM idivm.costs c WHERE c.view = view_id AND c.way <> way_now;
    INSERT INTO idivm.costs AS c (view, row_seconds, way) VALUES (view_id, by_row, way_now)
    ON CONFLICT (view) DO UPDATE
    SET access_seconds = 0.9 * c.access_seconds,
        row_seconds = coalesce((c.row_seconds + excluded.row_seconds) / 2, excluded.row_seconds, c.row_seconds),
        way = excluded.way;
END
$$;

-- Remembers what applying a diff took. Whatever disturbs a refresh makes it longer: so the price follows
-- quickly what is less, and slowly what is more. A session's first refresh of a view plans its statements,
-- which says nothing of accesses, unless it is long. After the first few, one of many is noted, or one so
-- long that nobody finds another row written.
CREATE FUNCTION idivm.note_diff(view_id integer, accesses double precision, begun timestamptz, way_now text, large boolean)
    RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    ended timestamptz := clock_timestamp();
    seconds double precision := extract(epoch FROM ended - begun);
    session text := 'idivm.refreshed_' || view_id;
    is_first boolean := current_setting(session, true) IS DISTINCT FROM way_now;
    known idivm.costs;
BEGIN
    IF is_first THEN
        PERFORM set_config(session, way_now, false);
        IF seconds < 0.1 AND NOT large THEN
            RETURN;
        END IF;
    END IF;
    SELECT * INTO known FROM idivm.costs c WHERE c.view = view_id;
    IF known.way = way_now AND known.refreshes >= 8 AND ended < known.noted_at + interval '1 minute'
       AND seconds < 0.02 AND NOT large THEN
        RETURN;
    END IF;
    IF known.way <> way_now THEN
        DELETE FROM idivm.costs c WHERE c.view = view_id;
    END IF;
    INSERT INTO idivm.costs AS c (view, access_seconds, way, price, refreshes, noted_at)
    VALUES (view_id, CASE WHEN large THEN seconds / accesses END, way_now, seconds / accesses, 1, ended)
    ON CONFLICT (view) DO UPDATE
    SET access_seconds = coalesce((c.access_seconds + excluded.access_seconds) / 2, excluded.access_seconds,
                                  c.access_seconds),
        way = excluded.way,
        price = CASE WHEN c.price < excluded.price THEN c.price + (least(excluded.price, 2 * c.price) - c.price) / 8
                     ELSE coalesce((c.price + excluded.price) / 2, excluded.price) END,
        refreshes = c.refreshes + 1,
        noted_at = excluded.noted_at;
END
$$;

-- For programs from before this. As before, but of computing anew they do not tell what the query went through.
CREATE OR REPLACE FUNCTION idivm.note_cost(view_id integer, accesses double precision, begun timestamptz) RETURNS void
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    INSERT INTO idivm.costs AS c (view, access_seconds)
    VALUES (view_id, extract(epoch FROM clock_timestamp() - begun) / accesses)
    ON CONFLICT (view) DO UPDATE
    SET access_seconds = coalesce((c.access_seconds + excluded.access_seconds) / 2, excluded.access_seconds,
                                  0.9 * c.access_seconds)
$$;

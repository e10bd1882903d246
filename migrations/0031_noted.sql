-- What a session of before 0030 remembers of a view under the name used there is no such note: it would
-- fail to read it.

-- As before, but for the name.
CREATE OR REPLACE FUNCTION idivm.note_diff(view_id integer, accesses double precision, begun timestamptz, way_now text,
                                           large boolean) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    ended timestamptz := clock_timestamp();
    seconds double precision := extract(epoch FROM ended - begun);
    session text := 'idivm.noted_' || view_id;
    -- The way that the session knows, behind the second until which nothing is to be noted of it.
    heard text := current_setting(session, true);
    is_usual boolean := seconds < 0.02 AND NOT large;
    known idivm.costs;
BEGIN
    IF substr(heard, strpos(heard, ' ') + 1) IS DISTINCT FROM way_now THEN
        PERFORM set_config(session, '0 ' || way_now, false);
        IF seconds < 0.1 AND NOT large THEN
            RETURN;
        END IF;
    ELSIF is_usual AND extract(epoch FROM ended) < split_part(heard, ' ', 1)::numeric THEN
        RETURN;
    END IF;
    SELECT * INTO known FROM idivm.costs c WHERE c.view = view_id;
    IF is_usual AND known.way = way_now AND known.refreshes >= 8 AND ended < known.noted_at + interval '1 minute' THEN
        PERFORM set_config(session, ceil(extract(epoch FROM known.noted_at) + 60) || ' ' || way_now, false);
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

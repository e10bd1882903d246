-- What stands around a small refresh costs more where other work came between than when it is repeated:
-- it is done by fewer and shorter queries, and what is known for a while is not asked for again.

-- As before, but that logs are looked at one by one, until one has something for the view.
CREATE OR REPLACE FUNCTION idivm.refresh_alone(view_id integer) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    one record;
    source integer;
    due boolean;
BEGIN
    LOOP
        SELECT v.status = 'invalid' AS anew, w AS watermark, reads.tables, reads.sources
        INTO one
        FROM idivm.views v
        JOIN idivm.watermarks w ON w.view = v.id
        CROSS JOIN LATERAL (
            SELECT string_agg(s.relation::text, ', ' ORDER BY s.relation) AS tables, array_agg(s.id ORDER BY s.id) AS sources,
                   bool_or(EXISTS (SELECT FROM idivm.views below WHERE below.state = s.relation)) AS is_above
            FROM idivm.view_sources vs
            JOIN idivm.sources s ON s.id = vs.source
            WHERE vs.view = v.id
        ) AS reads
        WHERE v.id = view_id AND v.maintain = 'deferred' AND NOT v.moving AND NOT reads.is_above
          AND NOT EXISTS (SELECT FROM idivm.sources above WHERE above.relation = v.state);
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
        -- Who waited looks again.
        EXIT WHEN NOT idivm.lock_apart(ARRAY[view_id], '{}');
    END LOOP;
    due := one.anew;
    IF NOT due THEN
        FOREACH source IN ARRAY one.sources LOOP
            due := idivm.has_entries(to_regclass('idivm_log.s' || source || '_a'), to_regclass('idivm_log.s' || source || '_b'))
                   IS NOT FALSE AND idivm.has_any(source, (one.watermark).mark);
            EXIT WHEN due;
        END LOOP;
    END IF;
    IF NOT (due OR idivm.is_foreign(one.watermark) OR idivm.has_drifted(view_id)) THEN
        RETURN 0;
    END IF;
    EXECUTE 'LOCK TABLE ' || one.tables || ' IN SHARE MODE';
    RETURN coalesce(idivm.bring_up(view_id, false), 0);
END
$$;

-- As before, without a join.
CREATE OR REPLACE FUNCTION idivm.refresh(VARIADIC names text[])
    RETURNS TABLE (view text, changed bigint, seconds double precision)
    LANGUAGE plpgsql
AS $$
DECLARE
    name text;
    view_ids integer[] := '{}';
    done record;
BEGIN
    FOREACH name IN ARRAY coalesce(names, '{}') LOOP
        view_ids := view_ids OPERATOR(pg_catalog.||) idivm.view_id(name::pg_catalog.regclass);
    END LOOP;
    FOR done IN SELECT r.view_id, r.changed, r.seconds FROM idivm.refresh_views(view_ids) AS r LOOP
        view := (SELECT v.relation::pg_catalog.text FROM idivm.views v WHERE v.id OPERATOR(pg_catalog.=) done.view_id);
        changed := done.changed;
        seconds := done.seconds;
        RETURN NEXT;
    END LOOP;
END
$$;

-- As before, but a session that has found that nothing is to be noted for a while does not look again.
CREATE OR REPLACE FUNCTION idivm.note_diff(view_id integer, accesses double precision, begun timestamptz, way_now text,
                                           large boolean) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    ended timestamptz := clock_timestamp();
    seconds double precision := extract(epoch FROM ended - begun);
    session text := 'idivm.refreshed_' || view_id;
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

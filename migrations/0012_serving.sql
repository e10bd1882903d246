-- What serving and eager views ask for beside what refreshes do.

-- Whether to compute the states of a view anew takes less time than so many accesses. Before a large
-- diff was measured, an access is taken for a row that is read: only applying such a diff teaches
-- what it costs, while a view that is computed anew in doubt meets an even larger one afterwards.
CREATE OR REPLACE FUNCTION idivm.is_cheaper_anew(view_id integer, accesses double precision) RETURNS boolean
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    known idivm.costs;
BEGIN
    SELECT * INTO known FROM idivm.costs c WHERE c.view = view_id;
    RETURN accesses * coalesce(known.access_seconds, known.row_seconds, 1)
         > idivm.rows_to_read(view_id) * coalesce(known.row_seconds, known.access_seconds / 4, 1);
END
$$;

-- Remembers what a refresh took: one of so many accesses or, without them, one that computed anew.
-- Each of the latter makes accesses look cheaper, so that what one slow refresh said of them does not
-- stand for ever.
CREATE OR REPLACE FUNCTION idivm.note_cost(view_id integer, accesses double precision, begun timestamptz) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    seconds double precision := extract(epoch FROM clock_timestamp() - begun);
    by_access double precision := seconds / accesses;
    by_row double precision;
BEGIN
    IF accesses IS NULL THEN
        by_row := seconds / nullif(idivm.rows_to_read(view_id), 0);
        -- A few rows tell nothing but what a statement costs.
        IF by_row IS NULL OR seconds < 0.01 THEN
            RETURN;
        END IF;
    END IF;
    INSERT INTO idivm.costs AS c VALUES (view_id, by_access, by_row)
    ON CONFLICT (view) DO UPDATE
    SET access_seconds = coalesce((c.access_seconds + excluded.access_seconds) / 2, excluded.access_seconds,
                                  0.9 * c.access_seconds),
        row_seconds = coalesce((c.row_seconds + excluded.row_seconds) / 2, excluded.row_seconds, c.row_seconds);
END
$$;

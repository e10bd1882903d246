-- What programs want of tables, and what they cost.

CREATE TABLE idivm.made_indexes (
    view        integer NOT NULL REFERENCES idivm.views ON DELETE CASCADE,
    index       regclass NOT NULL,
    PRIMARY KEY (view, index)
);
CREATE INDEX ON idivm.made_indexes (index);
COMMENT ON TABLE idivm.made_indexes IS 'the indexes on tables that were made for views (create_indexes = on), and all such views that use them';

CREATE FUNCTION idivm.drop_unused_index() RETURNS trigger
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

CREATE TRIGGER drop_unused AFTER DELETE ON idivm.made_indexes
    FOR EACH ROW EXECUTE FUNCTION idivm.drop_unused_index();

CREATE TABLE idivm.costs (
    view        integer PRIMARY KEY REFERENCES idivm.views ON DELETE CASCADE,
    access_seconds double precision,
    row_seconds double precision
);
COMMENT ON TABLE idivm.costs IS 'what large refreshes of a view took';
COMMENT ON COLUMN idivm.costs.access_seconds IS 'of a large diff: seconds for each lookup or row that the cost model expects';
COMMENT ON COLUMN idivm.costs.row_seconds IS 'of computing the states anew: seconds for each row of the tables and of the states';

-- The rows of the tables that a view reads, and of its states. A table that was never analysed is
-- as large as its file says.
CREATE FUNCTION idivm.rows_to_read(view_id integer) RETURNS double precision
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(sum(CASE WHEN c.reltuples >= 0 THEN c.reltuples ELSE pg_relation_size(c.oid) / 100 END), 0)::float8
    FROM pg_class c
    WHERE c.relkind = 'r'
      AND (c.oid IN (SELECT m.member FROM idivm.source_members m
                     JOIN idivm.view_sources vs ON vs.source = m.source WHERE vs.view = view_id)
           OR c.relnamespace = 'idivm_state'::regnamespace AND c.relname ~ ('_' || view_id || '$'))
$$;

-- Whether to compute the states of a view anew takes less time than so many accesses. What was not
-- measured yet is taken to be in proportion: an access by an index costs as much as reading four rows.
CREATE FUNCTION idivm.is_cheaper_anew(view_id integer, accesses double precision) RETURNS boolean
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    known idivm.costs;
BEGIN
    SELECT * INTO known FROM idivm.costs c WHERE c.view = view_id;
    RETURN accesses * coalesce(known.access_seconds, 4 * known.row_seconds, 4)
         > idivm.rows_to_read(view_id) * coalesce(known.row_seconds, known.access_seconds / 4, 1);
END
$$;

-- Remembers what a refresh took: one of so many accesses or, without them, one that computed anew.
CREATE FUNCTION idivm.note_cost(view_id integer, accesses double precision, begun timestamptz) RETURNS void
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
    SET access_seconds = coalesce((c.access_seconds + excluded.access_seconds) / 2, excluded.access_seconds, c.access_seconds),
        row_seconds = coalesce((c.row_seconds + excluded.row_seconds) / 2, excluded.row_seconds, c.row_seconds);
END
$$;

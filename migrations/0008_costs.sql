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

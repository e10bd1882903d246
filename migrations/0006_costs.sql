-- What programs want and what they cost: indexes on tables.

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

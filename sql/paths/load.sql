-- Empty copies e1, e2, ... of the edges of a graph.
--
--   SET bench.tables = 10;        so many

DO $$
BEGIN
    FOR number IN 1 .. current_setting('bench.tables')::integer LOOP
        EXECUTE format('CREATE TABLE %I (a integer, b integer, w integer NOT NULL, PRIMARY KEY (a, b))', 'e' || number);
        EXECUTE format('CREATE INDEX ON %I (b)', 'e' || number);
    END LOOP;
END
$$;

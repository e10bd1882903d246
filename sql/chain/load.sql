-- Empty tables t1, t2, ..., each of which refers to the next.
--
--   SET bench.tables = 10;        so many

DO $$
DECLARE
    last integer := current_setting('bench.tables')::integer;
BEGIN
    FOR number IN REVERSE last .. 1 LOOP
        EXECUTE format(
            'CREATE TABLE %I (id integer PRIMARY KEY, kind integer NOT NULL, amount integer NOT NULL, next integer NOT NULL)',
            't' || number);
        IF number < last THEN
            EXECUTE format('ALTER TABLE %I ADD FOREIGN KEY (next) REFERENCES %I', 't' || number, 't' || number + 1);
        END IF;
    END LOOP;
END
$$;

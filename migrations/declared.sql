-- Runs after the files in sql/functions, in the same transaction. Drops the routines that an earlier version of these
-- files declared and this one does not, makes the new ones members of the extension, and notes what there is.
DO $declared$
DECLARE
    declared text[] := ARRAY(
        SELECT oid::regprocedure::text FROM pg_proc
        WHERE pronamespace = 'idivm'::regnamespace AND xmin = pg_current_xact_id()::xid ORDER BY 1);
    routine text;
BEGIN
    FOR routine IN
        SELECT r FROM idivm.declarations d, unnest(d.routines) AS r
        WHERE r <> ALL (declared) AND to_regprocedure(r) IS NOT NULL
    LOOP
        IF EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_proc'::regclass AND objid = routine::regprocedure
                   AND deptype = 'e') THEN
            EXECUTE 'ALTER EXTENSION idivm DROP ROUTINE ' || routine;
        END IF;
        EXECUTE 'DROP ROUTINE ' || routine;
    END LOOP;
    IF EXISTS (SELECT FROM pg_extension WHERE extname = 'idivm') THEN
        FOREACH routine IN ARRAY declared LOOP
            IF NOT EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_proc'::regclass
                           AND objid = routine::regprocedure AND deptype = 'e') THEN
                EXECUTE 'ALTER EXTENSION idivm ADD ROUTINE ' || routine;
            END IF;
        END LOOP;
    END IF;
    DELETE FROM idivm.declarations;
    INSERT INTO idivm.declarations (checksum, routines) VALUES ('', declared);
END
$declared$;

-- Capture in C, where the server has the module and a superuser runs this. It is no migration:
-- without it capture is the same, in plpgsql, and takes more time.
DO $module$
BEGIN
    IF to_regprocedure('idivm.capture_rows()') IS NULL
       AND (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN
        CREATE FUNCTION idivm.capture_rows() RETURNS trigger
            LANGUAGE c AS 'idivm', 'idivm_capture_rows';
        COMMENT ON FUNCTION idivm.capture_rows() IS 'logs the rows of a statement; called by the triggers of captured tables';
    END IF;
EXCEPTION WHEN undefined_file THEN
    -- The module is not there.
    NULL;
END
$module$;

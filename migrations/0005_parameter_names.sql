-- These functions have other names of parameters now, which a declaration cannot give to an existing function. The
-- declarations that follow create them again. The last one is a form in C of a function that has a parameter more.
DO $names$
DECLARE
    routine text;
BEGIN
    FOREACH routine IN ARRAY ARRAY[
        'idivm.has_entries(regclass, regclass)', 'idivm.log_bytes(regclass, regclass)',
        'idivm.note_shown(integer, regclass)', 'idivm.require_valid_plan(integer, text, integer[])',
        'idivm.recompute_state(regclass, text[], text[], text[], text, text[])', 'idivm.table_columns(regclass)',
        'idivm.lose_column(regclass, text)', 'idivm.index_lookup(regclass, text[], integer[], integer)',
        'idivm.keep_indexes(regclass)', 'idivm.unfit_table(regclass)',
        'idivm.show_changes(regclass, text, integer, integer[], integer[], boolean)',
        'idivm.showing(regclass, text, text[], integer[], integer[])',
        'idivm.run_program(integer, idivm.watermark, boolean)']
    LOOP
        CONTINUE WHEN to_regprocedure(routine) IS NULL;
        IF EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_proc'::regclass AND objid = routine::regprocedure
                   AND deptype = 'e') THEN
            EXECUTE 'ALTER EXTENSION idivm DROP FUNCTION ' || routine;
        END IF;
        EXECUTE 'DROP FUNCTION ' || routine;
    END LOOP;
END
$names$;

-- A dump could not restore functions that compare images by the operator *<> between rows of two columns or more.
DO $$
DECLARE
    comparing record;
BEGIN
    FOR comparing IN
        SELECT pg_get_functiondef(p.oid) AS definition FROM pg_proc p
        WHERE p.pronamespace = 'idivm_log'::regnamespace AND p.proname ~ '^s[0-9]+_changed$'
              AND pg_get_functiondef(p.oid) LIKE '% *<> %' AND pg_has_role(p.proowner, 'USAGE')
    LOOP
        EXECUTE regexp_replace(comparing.definition, '\(ROW\((.*)\) \*<> ROW\((.*)\)\)',
                               'pg_catalog.record_image_ne(ROW(\1), ROW(\2))');
    END LOOP;
END
$$;

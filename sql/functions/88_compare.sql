-- Compare the query of a view with a text, so that tools that create views from files skip unchanged views.

-- Print a query as PostgreSQL does, with qualified names. PostgreSQL may print its own text differently, so the
-- function prints twice.
CREATE OR REPLACE FUNCTION idivm.printed_query(query text, path text) RETURNS text
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    printed text := query;
BEGIN
    FOR attempt IN 1..2 LOOP
        PERFORM set_config('search_path', path, true);
        EXECUTE format(E'CREATE OR REPLACE TEMP VIEW idivm_printed AS (\n%s\n)', rtrim(printed, E'; \t\r\n'));
        PERFORM set_config('search_path', 'pg_catalog, pg_temp', true);
        printed := pg_get_viewdef('pg_temp.idivm_printed'::regclass);
    END LOOP;
    DROP VIEW pg_temp.idivm_printed;
    RETURN printed;
END
$$;
COMMENT ON FUNCTION idivm.printed_query(text, text) IS 'a query as PostgreSQL prints it with all names in full';

CREATE OR REPLACE FUNCTION idivm.has_query(
    view regclass, query text, path text DEFAULT pg_catalog.current_setting('search_path')) RETURNS boolean
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    current text := pg_get_viewdef(coalesce(
        (SELECT coalesce(to_regclass('idivm_def.q' || v.id), v.definition) FROM idivm.views v WHERE v.relation = view),
        view));
BEGIN
    RETURN current = query OR idivm.printed_query(query, path) = idivm.printed_query(current, path);
END
$$;
COMMENT ON FUNCTION idivm.has_query(regclass, text, text) IS
    'whether a maintained or plain view has this query, regardless of the layout of its text';

-- Views with temporal filters are right as of a time, which a refresh moves.

-- The time that such views are right as of after a refresh. Tests replace this function by one of their own time;
-- only the owner of idivm's functions can.
CREATE OR REPLACE FUNCTION idivm.clock() RETURNS timestamptz
    LANGUAGE sql STABLE
    RETURN pg_catalog.now();
COMMENT ON FUNCTION idivm.clock() IS 'the time that a refresh takes for the current time: the start of its transaction';

-- Whether a value that rows are compared with has changed since the last refresh.
CREATE OR REPLACE FUNCTION idivm.clock_moved(view_id integer) RETURNS boolean
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    moved boolean;
BEGIN
    EXECUTE format('SELECT idivm_state.%I()', 'clock_' || view_id || '_moved') INTO moved;
    RETURN moved;
END
$$;
COMMENT ON FUNCTION idivm.clock_moved(integer) IS
    'whether a value that rows of a view are compared with has changed since its last refresh';

CREATE OR REPLACE FUNCTION idivm.clock_of(view_id integer) RETURNS timestamptz
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    at timestamptz;
BEGIN
    EXECUTE format('SELECT c.at FROM idivm_def.%I c', 'c' || view_id) INTO at;
    RETURN at;
END
$$;
COMMENT ON FUNCTION idivm.clock_of(integer) IS 'the time as of which a view with temporal filters is right';

CREATE OR REPLACE FUNCTION idivm.as_of(view regclass) RETURNS timestamptz
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE WHEN v.has_clock THEN idivm.clock_of(v.id)
                ELSE (SELECT s.fresh_as_of FROM idivm.view_status() AS s WHERE s.view = v.relation) END
    FROM idivm.views v WHERE v.relation = as_of.view AND has_table_privilege(session_user, v.relation, 'SELECT')
$$;
COMMENT ON FUNCTION idivm.as_of(regclass) IS
    'the time as of which the content of a view is right: for a view that compares rows with now(), the time of its last refresh';

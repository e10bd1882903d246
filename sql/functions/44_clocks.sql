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

-- Whether no row of a view passes a bound between the time that it is right as of and another time, and whether this
-- then holds for all times in between. Both are false where it would take more than a look into indexes to tell, and
-- for views whose rows are compared with more than columns of tables.
CREATE OR REPLACE FUNCTION idivm.quiet_at(view_id integer, at timestamptz, OUT quiet boolean, OUT steady boolean)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms'
AS $$
DECLARE
    program regprocedure := to_regprocedure(format('idivm_state.%I(timestamptz)', 'clock_' || view_id || '_quiet'));
BEGIN
    quiet := false;
    steady := false;
    IF program IS NULL OR EXISTS (
        -- The columns of tables that the function reads.
        SELECT FROM pg_depend d JOIN pg_class c ON c.oid = d.refobjid
        WHERE d.classid = 'pg_proc'::regclass AND d.objid = program AND d.refclassid = 'pg_class'::regclass
          AND d.refobjsubid > 0 AND d.refobjid <> to_regclass('idivm_def.c' || view_id)
          AND (c.relkind = 'r' AND c.relhassubclass OR NOT EXISTS (
              SELECT FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid JOIN pg_am m ON m.oid = x.relam
              WHERE i.indrelid = d.refobjid AND i.indkey[0] = d.refobjsubid AND i.indpred IS NULL AND i.indisvalid
                AND m.amname = 'btree'))
    ) THEN
        RETURN;
    END IF;
    EXECUTE format('SELECT * FROM %s($1)', program::regproc) INTO quiet, steady USING at;
EXCEPTION WHEN OTHERS THEN
    IF idivm.ends_refresh(sqlstate) AND sqlstate <> '55P03' THEN
        RAISE;
    END IF;
    -- A table is locked, a right was taken away, or the time is out of range. Only the refresh waits, or reports it.
    quiet := false;
    steady := false;
END
$$;
COMMENT ON FUNCTION idivm.quiet_at(integer, timestamptz) IS
    'whether no row of a view passes a bound until a time, and whether this holds for all times before it';

-- Whether rows of a view may have passed a bound since its last refresh. For those who may not see idivm.status, this
-- is so whenever the time moved: nobody else learns about rows.
CREATE OR REPLACE FUNCTION idivm.rows_are_due(view_id integer) RETURNS boolean
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN idivm.clock_moved(view_id) AND NOT (
        has_function_privilege(session_user, 'idivm.view_status()', 'EXECUTE')
        AND (idivm.quiet_at(view_id, idivm.clock())).quiet);
END
$$;
COMMENT ON FUNCTION idivm.rows_are_due(integer) IS
    'whether rows of a view may have passed a bound since its last refresh';

-- The time until which a view, with the views below it, is right without a refresh; NULL if it may be wrong now. The
-- current time means that it is right, and that nothing is known about later. The times in between are searched by
-- halves, because an expression of the time cannot be inverted. So the result may be too early, and never too late.
CREATE OR REPLACE FUNCTION idivm.quiet_until(view_id integer) RETURNS timestamptz
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    horizon constant interval := '1 hour';
    nearest constant interval := '10 milliseconds';
    moment constant timestamptz := idivm.clock();
    views integer[] := ARRAY(SELECT id FROM idivm.refresh_order(ARRAY[view_id]) AS id);
    until timestamptz := moment + horizon;
    beyond timestamptz;
    middle timestamptz;
    clocked integer;
    state record;
BEGIN
    IF NOT has_function_privilege(session_user, 'idivm.view_status()', 'EXECUTE')
       OR EXISTS (SELECT FROM idivm.views v WHERE v.id = ANY (views) AND (v.status <> 'ready' OR v.time_dependent))
       OR cardinality(idivm.pending_views(views)) > 0 THEN
        RETURN NULL;
    END IF;
    FOR clocked IN SELECT v.id FROM idivm.views v WHERE v.id = ANY (views) AND v.has_clock LOOP
        state := idivm.quiet_at(clocked, moment);
        IF NOT state.quiet THEN
            RETURN NULL;
        ELSIF NOT state.steady THEN
            until := moment;
        ELSIF until > moment AND NOT (idivm.quiet_at(clocked, until)).quiet THEN
            beyond := until;
            until := moment;
            WHILE beyond - until > nearest LOOP
                middle := until + (beyond - until) / 2;
                IF (idivm.quiet_at(clocked, middle)).quiet THEN
                    until := middle;
                ELSE
                    beyond := middle;
                END IF;
            END LOOP;
        END IF;
    END LOOP;
    RETURN until;
END
$$;
COMMENT ON FUNCTION idivm.quiet_until(integer) IS
    'the time until which a view with temporal filters is right without a refresh, or NULL if it may be wrong now';

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

-- Reading a view that merges pending changes (maintain = on_read).

-- A read merges the changes of a log of up to so many bytes without a look at how many are pending.
CREATE OR REPLACE FUNCTION idivm.small_log() RETURNS bigint
    LANGUAGE sql IMMUTABLE
    RETURN 4194304;

-- Return 'N' or 'C' as idivm.read_kind does, or NULL if that is to be found out by queries. In C, a session remembers that
-- nothing has drifted, and looks the other facts up by indexes. `merged` and `constant` are the sources whose changes a read
-- merges, and the others.
CREATE OR REPLACE FUNCTION idivm.usual_read(view_id integer, merged integer[], constant integer[], most_bytes bigint)
    RETURNS "char"
    LANGUAGE sql STABLE STRICT PARALLEL RESTRICTED
    RETURN NULL::"char";
COMMENT ON FUNCTION idivm.usual_read(integer, integer[], integer[], bigint) IS
    'how a read of an on_read view computes its rows, where C finds this out without a query; else NULL';

-- Return how a read of a view computes its rows: 'N' from the stored content, because nothing is pending, 'C' from
-- the content and the pending changes, 'R' by the query of the view, 'Q' also by the query, because too many changes
-- are pending. The function idivm_state.read_<id>() of the view passes its logs, whether changes are pending in them,
-- and what is_steady said. Everything is asked in the snapshot of the statement that reads, so the functions are STABLE;
-- only the sizes and files of logs are as they are now.
CREATE OR REPLACE FUNCTION idivm.read_kind(view_id integer, has_pending boolean, is_steady boolean, logs regclass[])
    RETURNS "char"
    LANGUAGE plpgsql STABLE PARALLEL RESTRICTED
    SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    facts record;
    stack text;
    below integer;
    below_kind "char";
BEGIN
    SELECT v.status = 'ready' AND NOT idivm.is_foreign(w) AS usable, log.recycled, log.bytes
    INTO facts
    FROM idivm.views v
    JOIN idivm.watermarks w ON w.view = v.id
    CROSS JOIN LATERAL (
        SELECT bool_or(pg_relation_filenode(c.oid) IS DISTINCT FROM c.relfilenode) AS recycled,
               max(CASE WHEN has_pending THEN pg_relation_size(c.oid) END) AS bytes
        FROM pg_class c WHERE c.oid = ANY (logs)
    ) AS log
    WHERE v.id = view_id;
    IF facts.recycled THEN
        RAISE EXCEPTION 'the change log was collected after this transaction took its snapshot'
            USING ERRCODE = 'serialization_failure', HINT = 'Run the transaction again.';
    END IF;
    IF facts.usable IS NOT TRUE OR is_steady IS NOT TRUE AND idivm.has_drifted(view_id) THEN
        RETURN 'R';
    END IF;
    IF pg_current_xact_id_if_assigned() IS NOT NULL THEN
        GET DIAGNOSTICS stack = PG_CONTEXT;
        IF idivm.is_mid_statement(ARRAY[view_id], stack) THEN
            -- Rows may be in a table and not yet in its log.
            RETURN 'R';
        END IF;
    END IF;
    -- A read of an on_read view below shows more than the content that this view was computed from.
    FOR below IN
        SELECT v.id FROM idivm.view_sources vs JOIN idivm.sources s ON s.id = vs.source JOIN idivm.views v ON v.state = s.relation
        WHERE vs.view = view_id AND v.read_from IS NOT NULL
    LOOP
        EXECUTE format('SELECT idivm_state.%I()', 'read_' || below) INTO below_kind;
        IF below_kind <> 'N' THEN
            RETURN 'R';
        END IF;
    END LOOP;
    IF has_pending AND facts.bytes > idivm.small_log() AND idivm.has_too_many_to_merge(view_id) THEN
        RETURN 'Q';
    END IF;
    RETURN CASE WHEN has_pending THEN 'C' ELSE 'N' END;
END
$$;
COMMENT ON FUNCTION idivm.read_kind(integer, boolean, boolean, regclass[]) IS
    'how a read of an on_read view computes its rows: N from the content, C with pending changes, R or Q by the query';

-- Return whether the pending changes of a view take more pages than its tables, so that its query reads less than a read
-- that merges them. Smaller logs are merged without a look.
CREATE OR REPLACE FUNCTION idivm.has_too_many_to_merge(view_id integer) RETURNS boolean
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    since idivm.watermark := (SELECT w.mark FROM idivm.watermarks w WHERE w.view = view_id);
    segment record;
    pending numeric := 0;
    tables numeric;
BEGIN
    tables := (SELECT sum(pg_relation_size(m.member)) / current_setting('block_size')::integer
               FROM idivm.view_sources vs JOIN idivm.source_members m ON m.source = vs.source WHERE vs.view = view_id);
    FOR segment IN
        SELECT vs.source, c.oid::regclass AS name
        FROM idivm.view_sources vs
        JOIN pg_class c ON c.relnamespace = 'idivm_log'::regnamespace
                       AND c.relname IN ('s' || vs.source || '_a', 's' || vs.source || '_b')
        WHERE vs.view = view_id AND pg_relation_size(c.oid) > idivm.small_log()
    LOOP
        pending := pending + idivm.pending_pages(segment.source, segment.name, since);
    END LOOP;
    RETURN pending > tables;
END
$$;
COMMENT ON FUNCTION idivm.has_too_many_to_merge(integer) IS
    'whether so many changes are pending for an on_read view that a read runs the query instead of merging them';

-- Return that nothing has drifted, as a constant for the planner. The function idivm_state.read_<id>() asks it in a
-- statement that depends on the definition of the view, so PostgreSQL plans the statement again, and asks again, after a
-- change of a table, of its triggers, indexes and columns, or of a plain view below. Such a change of a user's function
-- may be hidden in another function, and PostgreSQL does not say that a table has lost an inheritance child. So false is
-- returned for a view that calls such functions or reads such tables; a read then looks by itself. Do not use it in indexes
-- or other stored expressions.
CREATE OR REPLACE FUNCTION idivm.is_steady(view_id integer) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN NOT EXISTS (SELECT FROM idivm.view_code k WHERE k.view = view_id AND k.bodies IS NOT NULL)
           AND NOT EXISTS (SELECT FROM idivm.view_sources vs
                           JOIN idivm.source_members m ON m.source = vs.source
                           JOIN pg_inherits i ON i.inhparent = m.member
                           JOIN pg_class c ON c.oid = i.inhrelid AND NOT c.relispartition
                           WHERE vs.view = view_id)
           AND NOT idivm.reads_unlogged(view_id) AND NOT idivm.has_drifted(view_id);
END
$$;
COMMENT ON FUNCTION idivm.is_steady(integer) IS
    'whether nothing had drifted when a statement was planned, for a view that calls no user code';

-- Tell the reader that too many changes are pending, once when the planner computes this constant; return true.
CREATE OR REPLACE FUNCTION idivm.tell_of_query(view_id integer) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    view text := (SELECT v.relation FROM idivm.views v WHERE v.id = view_id);
BEGIN
    RAISE NOTICE 'so many changes of % are pending that reads run its query', view
        USING HINT = format('CALL idivm.refresh_all(%L) brings it up to date; idivm serve keeps it up to date.', view);
    RETURN true;
END
$$;
COMMENT ON FUNCTION idivm.tell_of_query(integer) IS 'tells the reader of an on_read view that reads run its query';

-- Return how a read of a view would compute its rows, in words; NULL if it shows a stored content.
CREATE OR REPLACE FUNCTION idivm.reads_by(view_id integer) RETURNS text
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    kind "char";
BEGIN
    IF EXISTS (SELECT FROM idivm.views v WHERE v.id = view_id AND v.read_from IS NOT NULL) THEN
        EXECUTE format('SELECT idivm_state.%I()', 'read_' || view_id) INTO kind;
    END IF;
    RETURN CASE kind WHEN 'N' THEN 'content' WHEN 'C' THEN 'content and pending changes' WHEN 'R' THEN 'query' END;
END
$$;
COMMENT ON FUNCTION idivm.reads_by(integer) IS
    'how a read of an on_read view computes its rows: content, content and pending changes, or query';

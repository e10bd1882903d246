-- Reading a view that merges pending changes (maintain = on_read).

-- Return how a read of a view computes its rows: 'N' from the stored content, because nothing is pending, 'C' from
-- the content and the pending changes, 'R' by the query of the view. The relation looks for pending TRUNCATEs itself.
-- Everything is asked in the snapshot of the statement that reads, so the function is STABLE; only the sizes and files
-- of logs are as they are now.
CREATE OR REPLACE FUNCTION idivm.read_kind(view_id integer) RETURNS "char"
    LANGUAGE plpgsql STABLE PARALLEL RESTRICTED SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    one record;
    stack text;
BEGIN
    SELECT v.status = 'ready' AND NOT coalesce(idivm.is_foreign(w), true) AND log.readable AS usable,
           log.recycled, log.bytes
    INTO one
    FROM idivm.views v
    LEFT JOIN idivm.watermarks w ON w.view = v.id
    CROSS JOIN LATERAL (
        SELECT coalesce(bool_or(pg_relation_filenode(c.oid) IS DISTINCT FROM c.relfilenode), false) AS recycled,
               coalesce(sum(pg_relation_size(c.oid)), 0) AS bytes,
               coalesce(bool_and(idivm.may_merge(s.relation, v.definition)), false) AS readable
        FROM idivm.view_sources vs
        JOIN idivm.sources s ON s.id = vs.source
        CROSS JOIN (VALUES ('_a'), ('_b')) AS segment (suffix)
        LEFT JOIN pg_class c ON c.relname = 's' || vs.source || segment.suffix AND c.relnamespace = 'idivm_log'::regnamespace
        WHERE vs.view = v.id
    ) AS log
    WHERE v.id = view_id;
    IF one.recycled THEN
        RAISE EXCEPTION 'the change log was collected after this transaction took its snapshot'
            USING ERRCODE = 'serialization_failure', HINT = 'Run the transaction again.';
    END IF;
    IF one.usable IS NOT TRUE OR idivm.has_drifted(view_id) THEN
        RETURN 'R';
    END IF;
    IF pg_current_xact_id_if_assigned() IS NOT NULL THEN
        GET DIAGNOSTICS stack = PG_CONTEXT;
        IF idivm.is_mid_statement(ARRAY[view_id], stack) THEN
            -- Rows may be in a table and not yet in its log.
            RETURN 'R';
        END IF;
    END IF;
    RETURN CASE WHEN one.bytes = 0 THEN 'N' ELSE 'C' END;
END
$$;
COMMENT ON FUNCTION idivm.read_kind(integer) IS
    'how a read of an on_read view computes its rows: N from the content, C with pending changes, R by the query';

-- Return whether the owner of a definition still sees all rows of a table. If not, a read runs the query of the view,
-- which PostgreSQL treats like any query of this owner.
CREATE OR REPLACE FUNCTION idivm.may_merge(relation regclass, definition regclass) RETURNS boolean
    LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT has_any_column_privilege(r.oid, c.oid, 'SELECT')
           AND (NOT c.relrowsecurity OR r.rolsuper OR r.rolbypassrls
                OR NOT c.relforcerowsecurity AND pg_has_role(r.oid, c.relowner, 'USAGE'))
    FROM pg_class c
    JOIN pg_class d ON d.oid = definition
    JOIN pg_roles r ON r.oid = d.relowner
    WHERE c.oid = relation;
END;
COMMENT ON FUNCTION idivm.may_merge(regclass, regclass) IS
    'whether the owner of a definition may read a table, and no policy hides rows from this owner';

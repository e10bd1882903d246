-- Reading a view that merges pending changes (maintain = on_read).

-- Return how a read of a view computes its rows: 'N' from the stored content, because nothing is pending, 'C' from
-- the content and the pending changes, 'R' by the query of the view. The relation itself looks for pending changes
-- and TRUNCATEs. Everything is asked in the snapshot of the statement that reads, so the function is STABLE; only the
-- sizes and files of logs are as they are now.
CREATE OR REPLACE FUNCTION idivm.read_kind(view_id integer, has_pending boolean) RETURNS "char"
    LANGUAGE plpgsql STABLE PARALLEL RESTRICTED SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    one record;
    stack text;
BEGIN
    SELECT v.status = 'ready' AND NOT idivm.is_foreign(w) AND log.may_merge AS usable,
           log.recycled, log.bytes, w.catalog_state
    INTO one
    FROM idivm.views v
    JOIN idivm.watermarks w ON w.view = v.id
    JOIN pg_class d ON d.oid = v.definition
    CROSS JOIN LATERAL (
        SELECT bool_or(pg_relation_filenode(c.oid) IS DISTINCT FROM c.relfilenode) AS recycled,
               max(pg_relation_size(c.oid)) AS bytes,
               bool_and(has_any_column_privilege(d.relowner, s.relation, 'SELECT')
                        AND (NOT t.relrowsecurity OR idivm.sees_all_rows(d.relowner, s.relation))) AS may_merge
        FROM idivm.view_sources vs
        JOIN idivm.sources s ON s.id = vs.source
        JOIN pg_class t ON t.oid = s.relation
        CROSS JOIN (VALUES ('_a'), ('_b')) AS segment (suffix)
        LEFT JOIN pg_class c ON c.relname = 's' || vs.source || segment.suffix AND c.relnamespace = 'idivm_log'::regnamespace
        WHERE vs.view = v.id
    ) AS log
    WHERE v.id = view_id;
    IF one.recycled THEN
        RAISE EXCEPTION 'the change log was collected after this transaction took its snapshot'
            USING ERRCODE = 'serialization_failure', HINT = 'Run the transaction again.';
    END IF;
    IF one.usable IS NOT TRUE
       OR one.catalog_state IS DISTINCT FROM coalesce(idivm.catalog_state(view_id), 'unknown') AND idivm.has_drifted(view_id) THEN
        RETURN 'R';
    END IF;
    IF pg_current_xact_id_if_assigned() IS NOT NULL THEN
        GET DIAGNOSTICS stack = PG_CONTEXT;
        IF idivm.is_mid_statement(ARRAY[view_id], stack) THEN
            -- Rows may be in a table and not yet in its log.
            RETURN 'R';
        END IF;
    END IF;
    IF has_pending AND one.bytes > 262144 AND idivm.has_too_many_to_merge(view_id) THEN
        RETURN 'R';
    END IF;
    RETURN CASE WHEN has_pending THEN 'C' ELSE 'N' END;
END
$$;
COMMENT ON FUNCTION idivm.read_kind(integer, boolean) IS
    'how a read of an on_read view computes its rows: N from the content, C with pending changes, R by the query';

-- Return whether a role sees all rows of a table with row-level security. If the owner of a view does not, a read runs
-- the query of the view, which PostgreSQL treats like any query of this owner.
CREATE OR REPLACE FUNCTION idivm.sees_all_rows(reader oid, relation regclass) RETURNS boolean
    LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT r.rolsuper OR r.rolbypassrls OR NOT c.relforcerowsecurity AND pg_has_role(r.oid, c.relowner, 'USAGE')
    FROM pg_class c JOIN pg_roles r ON r.oid = reader WHERE c.oid = relation;
END;
COMMENT ON FUNCTION idivm.sees_all_rows(oid, regclass) IS 'whether no policy hides rows of a table from a role';

-- Return whether so many changes are pending that the query takes less time than merging them. It asks the planner for
-- nothing, because a read may run in parallel.
CREATE OR REPLACE FUNCTION idivm.has_too_many_to_merge(view_id integer) RETURNS boolean
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    since idivm.watermark := (SELECT w.mark FROM idivm.watermarks w WHERE w.view = view_id);
    source integer;
    most bigint;
BEGIN
    FOR source IN SELECT vs.source FROM idivm.view_sources vs WHERE vs.view = view_id LOOP
        CONTINUE WHEN idivm.log_bytes('idivm_log.s' || source || '_a', 'idivm_log.s' || source || '_b') <= 262144;
        most := coalesce(most, idivm.most_pending(view_id, 0, 1));
        IF idivm.has_more_pending(source, since, most) THEN
            RETURN true;
        END IF;
    END LOOP;
    RETURN false;
END
$$;
COMMENT ON FUNCTION idivm.has_too_many_to_merge(integer) IS
    'whether so many changes are pending for an on_read view that a read runs the query instead of merging them';

-- Return a digest of the rows of the system catalogs that idivm.has_drifted looks at, or NULL for a view that calls
-- user code or reads unlogged tables. Comparing it takes a tenth of the time.
CREATE OR REPLACE FUNCTION idivm.catalog_state(view_id integer) RETURNS text
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    RETURN (
        SELECT CASE WHEN bool_and(c.relpersistence <> 'u' AND c.relfilenode = m.file)
                         AND NOT EXISTS (SELECT FROM idivm.view_code k WHERE k.view = view_id AND k.bodies IS NOT NULL) THEN
            concat_ws(' ',
                string_agg(concat_ws(' ', c.oid, c.relhassubclass,
                    (SELECT string_agg(concat(t.oid, '.', t.xmin), ' ' ORDER BY t.oid) FROM pg_trigger t WHERE t.tgrelid = c.oid),
                    (SELECT string_agg(a.xmin::text, ' ' ORDER BY a.attnum) FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0),
                    (SELECT string_agg(concat(i.indexrelid, '.', i.xmin), ' ' ORDER BY i.indexrelid) FROM pg_index i WHERE i.indrelid = c.oid),
                    (SELECT string_agg(concat(d.oid, '.', d.xmin), ' ' ORDER BY d.oid) FROM pg_attrdef d WHERE d.adrelid = c.oid),
                    (SELECT string_agg(concat(k.oid, '.', k.xmin), ' ' ORDER BY k.oid) FROM pg_constraint k WHERE k.conrelid = c.oid),
                    (SELECT string_agg(h.inhrelid::text, ' ' ORDER BY h.inhrelid) FROM pg_inherits h
                     WHERE c.relhassubclass AND h.inhparent = c.oid)), '; ' ORDER BY m.source, m.number),
                (SELECT string_agg(concat(i.relation::oid, '.', r.xmin), ' ' ORDER BY i.relation)
                 FROM idivm.inlined_views i JOIN pg_rewrite r ON r.ev_class = i.relation WHERE i.view = view_id),
                (SELECT pg_database_collation_actual_version(b.oid) FROM pg_database b WHERE b.datname = current_database()))
            END
        FROM idivm.view_sources vs
        JOIN idivm.source_members m ON m.source = vs.source
        JOIN pg_class c ON c.oid = m.member
        WHERE vs.view = view_id);
END
$$;
COMMENT ON FUNCTION idivm.catalog_state(integer) IS
    'digest of the rows of the system catalogs that decide whether the objects that a view reads have changed';

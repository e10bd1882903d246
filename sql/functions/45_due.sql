-- Which of many views a refresh has anything to do for. The questions are those of idivm.has_drifted and
-- idivm.has_pending, asked of all tables at once, so that views over the same tables share the answers.

-- Return those of the given views that have drifted, as idivm.has_drifted tells of one view.
CREATE OR REPLACE FUNCTION idivm.drifted_views(view_ids integer[]) RETURNS integer[]
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    read integer[] := ARRAY(SELECT DISTINCT vs.source FROM unnest(view_ids) AS id JOIN idivm.view_sources vs ON vs.view = id);
    version text := pg_database_collation_actual_version((SELECT d.oid FROM pg_database d WHERE d.datname = current_database()));
    drifted integer[];
    rewritten integer[];
    replaced regclass[];
BEGIN
    drifted := ARRAY(
        SELECT s.id FROM unnest(read) AS source JOIN idivm.sources s ON s.id = source
        WHERE idivm.capture_is_broken(s.id)
           OR s.keyed AND idivm.key_is_gone(s.id)
           OR EXISTS (
               SELECT FROM idivm.source_members m LEFT JOIN pg_class c ON c.oid = m.member
               WHERE m.source = s.id AND (NOT idivm.carries_capture(m.source, m.member)
                                          OR (m.member <> s.relation OR c.relhassubclass) AND idivm.members_differ(s.id))));
    rewritten := ARRAY(
        SELECT source FROM unnest(read) AS source
        WHERE EXISTS (SELECT FROM idivm.source_members m JOIN pg_class c ON c.oid = m.member
                      WHERE m.source = source AND (c.relpersistence = 'u' OR c.relfilenode <> m.file)));
    replaced := ARRAY(
        SELECT i.relation FROM (
            SELECT DISTINCT i.relation, i.signature FROM unnest(view_ids) AS id JOIN idivm.inlined_views i ON i.view = id
        ) AS i
        WHERE i.signature IS DISTINCT FROM idivm.signature(i.relation));
    RETURN ARRAY(
        SELECT vs.view FROM unnest(view_ids) AS id JOIN idivm.view_sources vs ON vs.view = id
        WHERE vs.source = ANY (drifted) OR vs.source = ANY (rewritten) AND NOT idivm.is_witnessed(vs.view)
      UNION
        SELECT i.view FROM unnest(view_ids) AS id JOIN idivm.inlined_views i ON i.view = id
        WHERE i.relation = ANY (replaced) AND i.signature IS DISTINCT FROM idivm.signature(i.relation)
      UNION
        -- Views that rely on the same promises of a table are one case.
        SELECT unnest(alike.views)
        FROM (SELECT min(vs.view) AS view, vs.source, array_agg(vs.view) AS views
              FROM unnest(view_ids) AS id JOIN idivm.view_sources vs ON vs.view = id
              WHERE vs.not_null <> '{}' OR vs.keys <> '[]'
              GROUP BY vs.source, vs.not_null, vs.keys OFFSET 0) AS alike
        WHERE EXISTS (SELECT FROM idivm.broken_promises b WHERE b.view = alike.view AND b.source = alike.source)
      UNION
        SELECT c.view FROM unnest(view_ids) AS id JOIN idivm.changed_expressions c ON c.view = id
      UNION
        SELECT c.view FROM unnest(view_ids) AS id JOIN idivm.view_code c ON c.view = id
        WHERE (c.bodies IS NOT NULL OR c.locale IS DISTINCT FROM version) AND idivm.code_drift(c.view) IS NOT NULL
      UNION
        SELECT v.id FROM unnest(view_ids) AS id JOIN idivm.views v USING (id)
        LEFT JOIN pg_rewrite r ON r.ev_class = v.relation AND r.rulename = '_RETURN'
        WHERE CASE WHEN v.shown IS DISTINCT FROM concat_ws(' ', r.xmin, r.ctid) THEN NOT idivm.is_shown(v.id) END);
END
$$;
COMMENT ON FUNCTION idivm.drifted_views(integer[]) IS 'those of the given views that have drifted';

-- Return those of the given views for which the logs hold changes. Each log is read once: the transactions that one of
-- the views may not have consumed are compared with each watermark.
CREATE OR REPLACE FUNCTION idivm.pending_views(view_ids integer[]) RETURNS integer[]
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    most constant integer := 1000;
    pending integer[] := '{}';
    log record;
    late record;
BEGIN
    FOR log IN
        SELECT one.source, one.floor, one.views
        FROM (SELECT vs.source, array_agg(w.view) AS views,
                     (array_agg(pg_snapshot_xmin((w.mark).snapshot) ORDER BY pg_snapshot_xmin((w.mark).snapshot)))[1] AS floor
              FROM unnest(view_ids) AS id JOIN idivm.view_sources vs ON vs.view = id JOIN idivm.watermarks w ON w.view = id
              GROUP BY vs.source OFFSET 0) AS one
        WHERE idivm.has_entries(to_regclass('idivm_log.s' || one.source || '_a'),
                                to_regclass('idivm_log.s' || one.source || '_b'))
          AND NOT idivm.capture_is_broken(one.source)
    LOOP
        EXECUTE format(
            'SELECT array_agg(c.xid) AS xids, array_agg(c.seq) AS seqs'
            ' FROM (SELECT xid, max(seq) AS seq FROM idivm_log.%I WHERE xid >= $1 GROUP BY xid LIMIT $2) AS c', 's' || log.source)
        INTO late USING log.floor, most;
        CONTINUE WHEN late.xids IS NULL;
        pending := pending || CASE WHEN cardinality(late.xids) < most THEN ARRAY(
            SELECT w.view FROM unnest(log.views) AS id JOIN idivm.watermarks w ON w.view = id
            WHERE EXISTS (SELECT FROM unnest(late.xids, late.seqs) AS c (xid, seq)
                          WHERE idivm.is_pending(c.xid, c.seq, w.mark, log.source)))
        ELSE ARRAY(
            SELECT w.view FROM unnest(log.views) AS id JOIN idivm.watermarks w ON w.view = id
            WHERE idivm.has_any(log.source, w.mark)) END;
    END LOOP;
    RETURN pending;
END
$$;
COMMENT ON FUNCTION idivm.pending_views(integer[]) IS 'those of the given views for which the change logs hold changes';

-- Return those of the given views that are not up to date, or that a refresh has to look at for another reason.
CREATE OR REPLACE FUNCTION idivm.due_views(view_ids integer[]) RETURNS integer[]
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    RETURN idivm.drifted_views(view_ids) || idivm.pending_views(view_ids) || ARRAY(
        SELECT v.id FROM unnest(view_ids) AS id JOIN idivm.views v USING (id) LEFT JOIN idivm.watermarks w ON w.view = id
        WHERE v.status <> 'ready' OR v.time_dependent OR idivm.is_foreign(w)
      UNION ALL
        SELECT e.view FROM unnest(view_ids) AS id JOIN idivm.view_errors e ON e.view = id);
END
$$;
COMMENT ON FUNCTION idivm.due_views(integer[]) IS 'those of the given views that a refresh has something to do for';

-- Return the views of a refresh of these views that have something to do, or will have it once the views below them
-- are refreshed; lower views first.
CREATE OR REPLACE FUNCTION idivm.due(view_ids integer[]) RETURNS integer[]
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    ordered integer[] := ARRAY(SELECT id FROM idivm.refresh_order(view_ids) AS id);
    due integer[] := idivm.due_views(ordered);
BEGIN
    IF due = '{}' THEN
        RETURN due;
    END IF;
    RETURN ARRAY(
        WITH RECURSIVE reached(id) AS (
            SELECT unnest(due)
          UNION
            SELECT vs.view FROM reached r JOIN idivm.views v ON v.id = r.id
            JOIN idivm.sources s ON s.relation = v.state JOIN idivm.view_sources vs ON vs.source = s.id
        )
        SELECT o.id FROM unnest(ordered) WITH ORDINALITY AS o (id, place) JOIN reached USING (id) ORDER BY o.place);
END
$$;
COMMENT ON FUNCTION idivm.due(integer[]) IS
    'which views a refresh of the given views has something to do for, lower views first';

-- Return those of the given views for which idivm.trouble has a sentence.
CREATE OR REPLACE FUNCTION idivm.troubled_views(view_ids integer[]) RETURNS integer[]
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    RETURN idivm.drifted_views(view_ids) || ARRAY(
        SELECT vs.view FROM unnest(view_ids) AS id JOIN idivm.view_sources vs ON vs.view = id
        WHERE vs.source = ANY (ARRAY(
            SELECT s.id FROM idivm.sources s
            JOIN pg_class t ON t.oid = s.relation
            JOIN pg_class shown ON shown.oid = to_regclass('idivm_def.s' || s.id)
            WHERE NOT has_table_privilege(shown.relowner, t.oid, 'SELECT') AND EXISTS (
                SELECT FROM idivm.source_columns c
                WHERE c.source = s.id AND has_column_privilege(shown.relowner, t.oid, c.attnum, 'SELECT') IS NOT TRUE))));
END
$$;
COMMENT ON FUNCTION idivm.troubled_views(integer[]) IS 'those of the given views that have a trouble';

-- Return those of the given views that read maintained views.
CREATE OR REPLACE FUNCTION idivm.upper_views(view_ids integer[]) RETURNS integer[]
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT ARRAY(
        SELECT vs.view FROM unnest(view_ids) AS id JOIN idivm.view_sources vs ON vs.view = id
        JOIN idivm.sources s ON s.id = vs.source JOIN idivm.views below ON below.state = s.relation
      UNION ALL
        SELECT v.id FROM unnest(view_ids) AS id JOIN idivm.views v USING (id) WHERE v.time_dependent)
$$;
COMMENT ON FUNCTION idivm.upper_views(integer[]) IS 'those of the given views that read maintained views';

-- Which of many views a refresh has anything to do for. The questions are those of idivm.has_drifted and
-- idivm.has_pending, asked of all tables at once, so that views over the same tables share the answers.

-- Up to so many views, each refresh finds out by itself whether it has anything to do; for more, idivm.work_of does.
CREATE OR REPLACE FUNCTION idivm.few_views() RETURNS integer
    LANGUAGE sql IMMUTABLE
    RETURN 4;

-- Has the statements of a function planned for the number of views that it got, if there are many: the planner expects
-- ten, and would look up one after the other.
CREATE OR REPLACE FUNCTION idivm.plan_for_many(view_ids integer[]) RETURNS text
    LANGUAGE sql
    RETURN CASE WHEN cardinality(view_ids) > 100 THEN pg_catalog.set_config('plan_cache_mode', 'force_custom_plan', true) END;

-- Return those of the given views that have drifted, as idivm.has_drifted tells of one view. What most databases have
-- none of is looked for first, so that no join with all views looks for it.
CREATE OR REPLACE FUNCTION idivm.drifted_views(view_ids integer[]) RETURNS integer[]
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    drifted integer[];
    sources integer[];
    rewritten integer[];
    version text;
BEGIN
    IF idivm.plan_for_many(view_ids) IS NOT NULL THEN
        -- These settings of this function end with it.
        PERFORM set_config('enable_seqscan', 'on', true), set_config('enable_hashjoin', 'on', true);
    END IF;
    -- The relation that users read. Views that rely on the same promises of a table are one case.
    drifted := ARRAY(
        SELECT v.id FROM unnest(view_ids) AS id JOIN idivm.views v USING (id)
        LEFT JOIN pg_rewrite r ON r.ev_class = v.relation AND r.rulename = '_RETURN'
        WHERE CASE WHEN v.shown IS DISTINCT FROM concat_ws(' ', r.xmin, r.ctid) THEN NOT idivm.is_shown(v.id) END
      UNION ALL
        SELECT unnest(alike.views)
        FROM (SELECT min(vs.view) AS view, vs.source, array_agg(vs.view) AS views
              FROM unnest(view_ids) AS id JOIN idivm.view_sources vs ON vs.view = id
              WHERE vs.not_null <> '{}' OR vs.keys <> '[]'
              GROUP BY vs.source, vs.not_null, vs.keys OFFSET 0) AS alike
        WHERE EXISTS (SELECT FROM idivm.broken_promises b WHERE b.view = alike.view AND b.source = alike.source));
    SELECT array_agg(s.id) FILTER (WHERE idivm.capture_is_broken(s.id) OR s.keyed AND NOT has.key OR NOT has.capture),
           array_agg(s.id) FILTER (WHERE has.file IS NOT TRUE)
    INTO sources, rewritten
    FROM idivm.sources s
    CROSS JOIN LATERAL (
        SELECT EXISTS (
                   SELECT FROM pg_index i
                   WHERE i.indrelid = s.relation AND idivm.is_plain_key(i)
                     AND (SELECT count(*) FROM idivm.source_columns k WHERE k.source = s.id AND k.in_key) = i.indnkeyatts
                     AND NOT EXISTS (
                         SELECT FROM idivm.source_columns k
                         WHERE k.source = s.id AND k.in_key AND k.attnum <> ALL (i.indkey[:i.indnkeyatts - 1]::smallint[]))) AS key,
               (SELECT bool_and(idivm.carries_capture(m.source, m.member)
                                AND NOT ((m.member <> s.relation OR c.relhassubclass) AND idivm.members_differ(s.id)))
                FROM idivm.source_members m LEFT JOIN pg_class c ON c.oid = m.member WHERE m.source = s.id) AS capture,
               (SELECT bool_and(c.relpersistence <> 'u' AND c.relfilenode = m.file)
                FROM idivm.source_members m JOIN pg_class c ON c.oid = m.member WHERE m.source = s.id) AS file
        OFFSET 0
    ) AS has
    WHERE s.id IN (SELECT vs.source FROM unnest(view_ids) AS id JOIN idivm.view_sources vs ON vs.view = id);
    IF sources IS NOT NULL OR rewritten IS NOT NULL THEN
        drifted := drifted || ARRAY(
            SELECT vs.view FROM unnest(view_ids) AS id JOIN idivm.view_sources vs ON vs.view = id
            WHERE vs.source = ANY (sources) OR vs.source = ANY (rewritten) AND NOT idivm.is_witnessed(vs.view));
    END IF;
    IF EXISTS (SELECT FROM idivm.inlined_views) THEN
        drifted := drifted || ARRAY(
            SELECT i.view FROM unnest(view_ids) AS id JOIN idivm.inlined_views i ON i.view = id
            WHERE i.signature IS DISTINCT FROM idivm.signature(i.relation));
    END IF;
    IF EXISTS (SELECT FROM idivm.view_expressions) THEN
        drifted := drifted || ARRAY(
            SELECT c.view FROM unnest(view_ids) AS id JOIN idivm.changed_expressions c ON c.view = id);
    END IF;
    IF EXISTS (SELECT FROM idivm.view_code) THEN
        version := pg_database_collation_actual_version(
            (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()));
        drifted := drifted || ARRAY(
            SELECT c.view FROM unnest(view_ids) AS id JOIN idivm.view_code c ON c.view = id
            WHERE (c.bodies IS NOT NULL OR c.locale IS DISTINCT FROM version) AND idivm.code_drift(c.view) IS NOT NULL);
    END IF;
    RETURN drifted;
END
$$;
COMMENT ON FUNCTION idivm.drifted_views(integer[]) IS 'those of the given views that have drifted';

-- Return those of the given views for which the logs hold changes, or `at_least` one of them. Each log is read once: the
-- transactions that one of the views may not have consumed are compared with each watermark.
CREATE OR REPLACE FUNCTION idivm.pending_views(view_ids integer[], at_least integer DEFAULT NULL) RETURNS integer[]
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    most constant integer := 1000;
    most_bytes constant bigint := 16777216;
    pending integer[] := '{}';
    log record;
    late record;
BEGIN
    PERFORM idivm.plan_for_many(view_ids);
    -- CASE keeps the planner from asking about all views before it joins them with those of the log.
    FOR log IN
        SELECT grouped.source, grouped.floor, grouped.views
        FROM (SELECT vs.source, array_agg(w.view) AS views,
                     (array_agg(pg_snapshot_xmin((w.mark).snapshot) ORDER BY pg_snapshot_xmin((w.mark).snapshot)))[1] AS floor
              FROM unnest(view_ids) AS id JOIN idivm.view_sources vs ON vs.view = id JOIN idivm.watermarks w ON w.view = id
              GROUP BY vs.source OFFSET 0) AS grouped
        WHERE idivm.has_entries(to_regclass('idivm_log.s' || grouped.source || '_a'),
                                to_regclass('idivm_log.s' || grouped.source || '_b'))
          AND NOT idivm.capture_is_broken(grouped.source)
    LOOP
        EXIT WHEN cardinality(pending) >= at_least;
        -- The last page of a long log shows most views that have something to do.
        IF cardinality(log.views) = 1 OR pg_relation_size(to_regclass('idivm_log.s' || log.source || '_a'))
           + pg_relation_size(to_regclass('idivm_log.s' || log.source || '_b')) > most_bytes THEN
            pending := pending || ARRAY(
                SELECT w.view FROM unnest(log.views) AS id JOIN idivm.watermarks w ON w.view = id
                WHERE CASE WHEN w.view = id THEN idivm.has_any(log.source, w.mark) END);
            CONTINUE;
        END IF;
        EXECUTE format(
            'SELECT array_agg(c.xid) AS xids, array_agg(c.seq) AS seqs'
            ' FROM (SELECT xid, max(seq) AS seq FROM idivm_log.%I WHERE xid >= $1 GROUP BY xid LIMIT $2) AS c', 's' || log.source)
        INTO late USING log.floor, most;
        CONTINUE WHEN late.xids IS NULL;
        pending := pending || CASE WHEN cardinality(late.xids) < most THEN ARRAY(
            SELECT w.view FROM unnest(log.views) AS id JOIN idivm.watermarks w ON w.view = id
            WHERE CASE WHEN w.view = id THEN EXISTS (
                SELECT FROM unnest(late.xids, late.seqs) AS c (xid, seq)
                WHERE idivm.is_pending(c.xid, c.seq, w.mark, log.source)) END)
        ELSE ARRAY(
            SELECT w.view FROM unnest(log.views) AS id JOIN idivm.watermarks w ON w.view = id
            WHERE CASE WHEN w.view = id THEN idivm.has_any(log.source, w.mark) END) END;
    END LOOP;
    RETURN pending;
END
$$;
COMMENT ON FUNCTION idivm.pending_views(integer[], integer) IS 'those of the given views for which the change logs hold changes';

-- Return those of the given views that are not up to date, or that a refresh has to look at for another reason, and those
-- that have drifted. The caller may know for which the logs hold changes.
CREATE OR REPLACE FUNCTION idivm.due_and_drifted(view_ids integer[], pending integer[] DEFAULT NULL, OUT due integer[], OUT drifted integer[])
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    PERFORM idivm.plan_for_many(view_ids);
    drifted := idivm.drifted_views(view_ids);
    due := drifted || coalesce(pending, idivm.pending_views(view_ids)) || ARRAY(
        SELECT v.id FROM unnest(view_ids) AS id JOIN idivm.views v USING (id) LEFT JOIN idivm.watermarks w ON w.view = id
        WHERE v.status <> 'ready' OR v.time_dependent OR idivm.is_foreign(w)
              OR v.has_clock AND idivm.clock_moved(v.id)
      UNION ALL
        SELECT e.view FROM unnest(view_ids) AS id JOIN idivm.view_errors e ON e.view = id) || idivm.views_missing_wal(view_ids);
END
$$;
COMMENT ON FUNCTION idivm.due_and_drifted(integer[], integer[]) IS
    'those of the given views that a refresh has something to do for, and those that have drifted';

-- Return the views of a refresh of these views that have something to do, or will have it once the views below them
-- are refreshed; lower views first. The caller may know for which of the given views the logs hold changes. Also return
-- the views that have drifted. After an error, return all views as due, and NULL as drifted.
CREATE OR REPLACE FUNCTION idivm.work_of(view_ids integer[], pending integer[] DEFAULT NULL, OUT due integer[], OUT drifted integer[])
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    ordered integer[] := view_ids;
BEGIN
    PERFORM idivm.plan_for_many(view_ids);
    IF cardinality(view_ids) < 100
       OR EXISTS (SELECT FROM idivm.sources s JOIN idivm.views below ON below.state = s.relation)
       OR EXISTS (SELECT FROM idivm.views v WHERE v.time_dependent) THEN
        ordered := ARRAY(SELECT id FROM idivm.refresh_order(view_ids) AS id);
    END IF;
    BEGIN
        SELECT d.due, d.drifted INTO due, drifted
        -- The order holds the given views, and those below them.
        FROM idivm.due_and_drifted(ordered, CASE WHEN cardinality(ordered) <= cardinality(view_ids) THEN pending END) AS d;
        due := due || ARRAY(
            -- Of a table that is gone, has_table_privilege knows nothing. Rights of others are checked each time.
            SELECT v.id FROM unnest(ordered) AS id JOIN idivm.views v USING (id)
            WHERE (has_table_privilege(v.state, 'SELECT') IS NULL OR v.types IS NOT NULL)
              AND v.id NOT IN (SELECT idivm.synchronous_views()));
    EXCEPTION WHEN OTHERS THEN
        IF idivm.ends_refresh(sqlstate) THEN
            RAISE;
        END IF;
        -- The refresh of one of the views meets the error again.
        due := ordered;
        RETURN;
    END;
    IF due = '{}' THEN
        RETURN;
    END IF;
    due := ARRAY(
        WITH RECURSIVE reached(id) AS (
            SELECT unnest(due)
          UNION
            SELECT vs.view FROM reached r JOIN idivm.views v ON v.id = r.id
            JOIN idivm.sources s ON s.relation = v.state JOIN idivm.view_sources vs ON vs.source = s.id
        )
        SELECT o.id FROM unnest(ordered) WITH ORDINALITY AS o (id, place) JOIN reached USING (id) ORDER BY o.place);
END
$$;
COMMENT ON FUNCTION idivm.work_of(integer[], integer[]) IS
    'which views a refresh of the given views has something to do for, lower views first, and which have drifted';

-- Return those of the given views for which idivm.trouble has a sentence.
CREATE OR REPLACE FUNCTION idivm.troubled_views(view_ids integer[]) RETURNS integer[]
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    PERFORM idivm.plan_for_many(view_ids);
    RETURN idivm.drifted_views(view_ids) || ARRAY(
        SELECT vs.view FROM unnest(view_ids) AS id JOIN idivm.view_sources vs ON vs.view = id
        WHERE vs.source = ANY (ARRAY(
            SELECT s.id
            FROM (SELECT DISTINCT vs.source AS id
                  FROM unnest(view_ids) AS id JOIN idivm.view_sources vs ON vs.view = id) AS used
            JOIN idivm.sources s USING (id)
            JOIN pg_class t ON t.oid = s.relation
            JOIN pg_class definition ON definition.oid = to_regclass('idivm_def.s' || s.id)
            WHERE NOT has_table_privilege(definition.relowner, t.oid, 'SELECT') AND EXISTS (
                SELECT FROM idivm.source_columns c
                WHERE c.source = s.id
                  AND has_column_privilege(definition.relowner, t.oid, c.attnum, 'SELECT') IS NOT TRUE))));
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

-- Return whether a refresh of these views has work to do. The search ends with the first view that has.
CREATE OR REPLACE FUNCTION idivm.is_due(view_ids integer[]) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    view_id integer;
    pending integer[];
BEGIN
    IF cardinality(view_ids) > idivm.few_views() THEN
        pending := idivm.pending_views(view_ids, 1);
        RETURN pending <> '{}' OR cardinality((idivm.work_of(view_ids, pending)).due) > 0;
    END IF;
    FOR view_id IN SELECT id FROM idivm.refresh_order(view_ids) AS id LOOP
        IF idivm.has_pending(view_id) THEN
            RETURN true;
        END IF;
        IF EXISTS (SELECT FROM idivm.views v
                   WHERE v.id = view_id AND (has_table_privilege(v.state, 'SELECT') IS NULL OR v.types IS NOT NULL)
                     AND v.id NOT IN (SELECT idivm.synchronous_views())) THEN
            RETURN true;
        END IF;
    END LOOP;
    RETURN false;
EXCEPTION WHEN OTHERS THEN
    IF idivm.ends_refresh(sqlstate) THEN
        RAISE;
    END IF;
    -- The refresh meets the error again, and says which view it is of.
    RETURN true;
END
$$;
COMMENT ON FUNCTION idivm.is_due(integer[]) IS 'whether a refresh of these views has anything to do';

-- Return those of the given views whose refreshes left the states behind the content, and which have nothing else to do.
-- The states of a view that was taken over wait for its first changes.
CREATE OR REPLACE FUNCTION idivm.without_states(view_ids integer[]) RETURNS integer[]
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    behind integer[] := ARRAY(
        SELECT w.view FROM idivm.watermarks w JOIN idivm.views v ON v.id = w.view
        WHERE w.content_only AND w.refreshes > 0 AND w.view = ANY (view_ids) AND v.status = 'ready'
          AND NOT EXISTS (SELECT FROM idivm.view_errors e WHERE e.view = w.view));
BEGIN
    RETURN ARRAY(SELECT id FROM unnest(behind) AS id WHERE id <> ALL (idivm.pending_views(behind)));
END
$$;
COMMENT ON FUNCTION idivm.without_states(integer[]) IS
    'those of the given views of which only the content is current, and which have no changes pending';

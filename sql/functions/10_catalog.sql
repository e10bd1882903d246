-- Functions that read the catalog: clusters, views, their order and their queries.

-- Return a digest of a view's query, or of a table's columns. A query that reads a whole row as one value changes
-- its result when the columns of the table change, although no row is written.
CREATE OR REPLACE FUNCTION idivm.signature(relation regclass) RETURNS text
    LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT coalesce(
        (SELECT md5(ev_action::text) FROM pg_rewrite WHERE ev_class = relation AND rulename = '_RETURN'),
        (SELECT md5(string_agg(concat_ws(' ', attnum, atttypid::bigint, atttypmod, attname), ', ' ORDER BY attnum))
         FROM pg_attribute WHERE attrelid = relation AND attnum > 0 AND NOT attisdropped));
END;
COMMENT ON FUNCTION idivm.signature(regclass) IS
    'digest of the query of a view or of the columns of a table; a rename does not change it';

-- Return where PostgreSQL keeps the query of a view: whoever replaces it writes another row. Unlike a digest, this
-- does not read the query.
CREATE OR REPLACE FUNCTION idivm.place_of(relation regclass) RETURNS text
    LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT concat_ws(' ', r.xmin, r.ctid) FROM pg_rewrite r WHERE r.ev_class = relation AND r.rulename = '_RETURN';
END;

-- Return the advisory lock class that refreshes and creations of views use.
CREATE OR REPLACE FUNCTION idivm.lock_class() RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN 1768187766;

CREATE OR REPLACE FUNCTION idivm.refuse_write() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION '% is maintained from its query: change the tables that it reads instead',
        format('%I.%I', tg_table_schema, tg_table_name)
        USING ERRCODE = 'object_not_in_prerequisite_state';
END
$$;
COMMENT ON FUNCTION idivm.refuse_write() IS 'INSTEAD OF trigger of every maintained view';

-- Return what a watermark belongs to: the cluster, and the watermark table. A dump that is restored into the same
-- cluster contains watermarks whose transactions exist there, but its tables were filled by other transactions.
-- The restored watermark table has another OID, which shows this. A copy made by CREATE DATABASE ... TEMPLATE
-- keeps the OID, and its watermarks are valid.
CREATE OR REPLACE FUNCTION idivm.cluster() RETURNS bigint
    LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT system_identifier # 'idivm.watermarks'::regclass::oid::bigint FROM pg_control_system();
END;

-- Return the ID of a maintained view, or NULL for a view that waits to be planned.
CREATE OR REPLACE FUNCTION idivm.view_id(relation regclass) RETURNS integer
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    found_id integer := (SELECT v.id FROM idivm.views v WHERE v.relation = view_id.relation);
BEGIN
    IF found_id IS NULL AND NOT EXISTS (SELECT FROM idivm.unplanned_views u WHERE u.relation = view_id.relation) THEN
        RAISE EXCEPTION '% is not a view that idivm maintains', relation
            USING ERRCODE = 'undefined_object',
                  HINT = 'SELECT view FROM idivm.status lists the views that it maintains.';
    END IF;
    RETURN found_id;
END
$$;

-- Whether the rows of a table stay in files (83_streams.sql). Everybody may ask; the rest of idivm.streams is not for all.
CREATE OR REPLACE FUNCTION idivm.is_stream(relation oid) RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT EXISTS (SELECT FROM idivm.streams s WHERE s.relation = is_stream.relation AND s.reading IS NOT NULL)
$$;
COMMENT ON FUNCTION idivm.is_stream(oid) IS 'whether the rows of a table stay in files';

CREATE OR REPLACE FUNCTION idivm.has_streams() RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT EXISTS (SELECT FROM idivm.streams s WHERE s.reading IS NOT NULL)
$$;
COMMENT ON FUNCTION idivm.has_streams() IS 'whether the rows of any table stay in files';

-- Return a table and its partitions or inheritance children. The children of a stream only carry its rows for a
-- transaction.
CREATE OR REPLACE FUNCTION idivm.descendants(relation regclass) RETURNS SETOF regclass
    LANGUAGE sql STABLE
BEGIN ATOMIC
    WITH RECURSIVE tree(member) AS (
        SELECT relation
      UNION
        SELECT i.inhrelid::regclass FROM tree JOIN pg_inherits i ON i.inhparent = tree.member
        WHERE NOT idivm.is_stream(tree.member)
    )
    SELECT member FROM tree;
END;

-- Return the distinct views of a list in refresh order, lower views first. Views that the snapshot does not
-- contain stay in the list, and refresh_synchronous handles them.
CREATE OR REPLACE FUNCTION idivm.in_order(view_ids integer[]) RETURNS integer[]
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    pending integer[] := ARRAY(SELECT DISTINCT id FROM unnest(view_ids) AS id ORDER BY id);
BEGIN
    -- Writers call this at each commit, and usually no view reads another view.
    IF cardinality(pending) > 1 AND EXISTS (
        SELECT FROM idivm.views v
        WHERE v.id = ANY (pending) AND (v.time_dependent OR EXISTS (
            SELECT FROM idivm.sources s JOIN idivm.view_sources vs ON vs.source = s.id
            WHERE s.relation = v.state AND vs.view = ANY (pending)))
    ) THEN
        pending := ARRAY(
            SELECT d.id FROM unnest(pending) AS d (id)
            LEFT JOIN idivm.refresh_order(pending) WITH ORDINALITY AS o (id, place) ON o.id = d.id
            ORDER BY o.place, d.id);
    END IF;
    RETURN pending;
END
$$;

-- Limits of logs --------------------------------------------------------------------------------
--
-- A log keeps its rows until the view that lags most has read them. The options log_limit and on_log_limit of a
-- view, or of the database (ALTER DATABASE ... SET idivm.log_limit), set the maximum size and what happens beyond
-- it. Settings of a session have no effect, because a session would decide for all others.
CREATE OR REPLACE FUNCTION idivm.database_setting(name text) RETURNS text
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (SELECT substr(line, length(name) + 2)
            FROM pg_db_role_setting s CROSS JOIN unnest(s.setconfig) AS line
            WHERE s.setrole = 0 AND starts_with(line, name || '=')
              AND s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
            ORDER BY s.setdatabase DESC LIMIT 1);
END
$$;

CREATE OR REPLACE FUNCTION idivm.layout(member regclass) RETURNS text
    LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT member::oid || ':' || coalesce(string_agg(a.attnum::text, ' ' ORDER BY a.attnum), '')
    FROM pg_attribute a WHERE a.attrelid = member AND a.attnum > 0 AND NOT a.attisdropped;
END;

-- Support for programs: a program itself computes the size of the logs that it reads.

-- Return the cluster as a constant for the planner, which may store it in plans: a plan ends with its session, and
-- a session never changes its cluster. Do not use it in indexes or other stored expressions.
CREATE OR REPLACE FUNCTION idivm.cluster_of_session() RETURNS bigint
    LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN idivm.cluster();
END
$$;

-- Support for programs ---------------------------------------------------------------------------
--
-- An expression costs a tenth of a statement, so these functions are inlined expressions where possible.
CREATE OR REPLACE FUNCTION idivm.ascending(numbers integer[]) RETURNS integer[]
    LANGUAGE sql IMMUTABLE
    RETURN ARRAY(SELECT DISTINCT n FROM unnest(numbers) AS n ORDER BY n);

-- Return the size of the state tables of a view.
CREATE OR REPLACE FUNCTION idivm.state_bytes(view_id integer) RETURNS bigint
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint
    FROM pg_class c
    WHERE c.relnamespace = 'idivm_state'::regnamespace AND c.relkind = 'r' AND c.relname ~ ('_' || view_id || '$')
$$;

-- Return the maintained views that a view reads. Changes of views without a table cannot be captured, so a view
-- above them is recomputed at each refresh; pg_depend finds them through the definition and plain views. Most
-- views read no view; the function finds that out without looking at other views.

CREATE OR REPLACE FUNCTION idivm.views_below(view_id integer) RETURNS SETOF integer
    LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT lower_view.id
    FROM idivm.view_sources vs
    JOIN idivm.sources s ON s.id = vs.source
    JOIN idivm.views lower_view ON lower_view.state = s.relation
    WHERE vs.view = view_id
  UNION ALL
    SELECT lower_view.id
    FROM (SELECT v.id, v.definition FROM idivm.views v WHERE v.id = view_id AND v.time_dependent OFFSET 0) AS v
    CROSS JOIN LATERAL (
        SELECT below.id
        FROM pg_rewrite r
        JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid AND d.refclassid = 'pg_class'::regclass
        JOIN idivm.views below ON below.relation = d.refobjid
        JOIN pg_class c ON c.oid = below.state AND c.relkind = 'v'
        WHERE r.ev_class = v.definition
           OR r.ev_class IN (SELECT i.relation FROM idivm.inlined_views i WHERE i.view = v.id)
        OFFSET 0
    ) AS lower_view;
END;

-- Return the given views with all maintained views below them, lower views first. Most views read no view, and planning
-- the query that follows them down would be a tenth of the first refresh of a session.
CREATE OR REPLACE FUNCTION idivm.refresh_order(view_ids integer[]) RETURNS SETOF integer
    LANGUAGE plpgsql STABLE ROWS 10 SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    given integer[];
    is_above boolean;
BEGIN
    -- PostgreSQL would plan EXISTS in this place twice.
    SELECT array_agg(v.id ORDER BY v.id), bool_or(v.time_dependent OR (
               SELECT true FROM idivm.view_sources vs JOIN idivm.sources s ON s.id = vs.source
               JOIN idivm.views below ON below.state = s.relation WHERE vs.view = v.id LIMIT 1))
    INTO given, is_above FROM idivm.views v WHERE v.id = ANY (view_ids);
    IF is_above IS NOT TRUE THEN
        RETURN QUERY SELECT id FROM unnest(given) AS id;
        RETURN;
    END IF;
    RETURN QUERY
    WITH RECURSIVE needed(id, depth) AS (
        SELECT v.id, 0 FROM unnest(view_ids) AS id JOIN idivm.views v USING (id)
      UNION
        (WITH last AS (SELECT * FROM needed)
        SELECT below.id, n.depth + 1
        FROM last n
        JOIN idivm.view_sources vs ON vs.view = n.id
        JOIN idivm.sources s ON s.id = vs.source
        JOIN idivm.views below ON below.state = s.relation
      UNION ALL
        SELECT below.id, n.depth + 1
        FROM last n
        JOIN idivm.views v ON v.id = n.id AND v.time_dependent
        CROSS JOIN LATERAL idivm.views_below(v.id) AS below (id))
    )
    SELECT n.id FROM needed n GROUP BY n.id ORDER BY max(n.depth) DESC, n.id;
END
$$;

-- Return whether a watermark is missing or comes from a cluster with other transactions. A clone has the same
-- system identifier as its origin, so a dump of the origin may contain transactions in the clone's future. A
-- snapshot of this cluster cannot: each ended transaction in it wrote its commit record before the watermark's
-- commit, and a crash loses later records first.
CREATE OR REPLACE FUNCTION idivm.is_foreign(w idivm.watermarks) RETURNS boolean
    LANGUAGE sql STABLE
    RETURN coalesce(w.cluster <> idivm.cluster_of_session()
                    OR pg_snapshot_xmax((w.mark).snapshot) > pg_snapshot_xmax(pg_current_snapshot()), true);

-- Return whether idivm wrote a comment. idivm never replaces comments of users.
CREATE OR REPLACE FUNCTION idivm.is_own_comment(comment text) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    RETURN comment LIKE '% (maintained by idivm: %)';

-- Return the query of a planned view as its owner wrote it, and the names of its columns for readers.
CREATE OR REPLACE FUNCTION idivm.query_of(v idivm.views, OUT query text, OUT columns text[])
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT pg_get_viewdef(coalesce(to_regclass('idivm_def.q' || v.id), v.definition)),
           coalesce(idivm.table_columns(v.relation),
                    ARRAY(SELECT a.attname::text FROM pg_attribute a
                          WHERE a.attrelid = v.relation AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum))
$$;
COMMENT ON FUNCTION idivm.query_of(idivm.views) IS 'the query of a planned view, and the names of its columns';

-- Write the query, mode and strategy of a view as its comment, unless a user has commented on it.
CREATE OR REPLACE FUNCTION idivm.describe(view regclass) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    present text := obj_description(view, 'pg_class');
    described record;
    wanted text;
BEGIN
    -- Everybody may call this for views that are not planned yet, and for no other views.
    SELECT pg_get_viewdef(idivm.waiting_query(u)) AS query, coalesce(u.options ->> 'maintain', 'deferred') AS mode, 'not planned' AS strategy
    INTO described FROM idivm.unplanned_views u WHERE u.relation = view;
    IF NOT FOUND THEN
        SELECT (idivm.query_of(v)).query, v.maintain AS mode, 'strategy ' || v.strategy AS strategy
        INTO described FROM idivm.views v WHERE v.relation = view;
    END IF;
    wanted := format('%s (maintained by idivm: %s, %s)', trim(regexp_replace(rtrim(described.query, ';'), '\s+', ' ', 'g')),
                     described.mode, described.strategy);
    IF coalesce(idivm.is_own_comment(present), true) AND present IS DISTINCT FROM wanted AND idivm.owns(view) THEN
        EXECUTE format('COMMENT ON %s %s IS %L', idivm.kind_of(view), view, wanted);
    END IF;
END
$$;
COMMENT ON FUNCTION idivm.describe(regclass) IS 'writes the query, mode and strategy of a view as its comment, unless a user has commented on it';

-- What people and monitoring ask of the catalog: idivm.status and idivm.history. Their columns are documented in
-- docs/reference/sql-entry.md and stay.

-- The stale views below a view, at any depth: if there are any, the view is stale too. The caller passes the views that miss
-- changes in the WAL, because finding them decodes the slot.
CREATE OR REPLACE FUNCTION idivm.stale_below(view_id integer, missing_wal integer[]) RETURNS text[]
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
    WITH RECURSIVE below(id) AS (
        SELECT idivm.views_below(view_id)
      UNION
        SELECT idivm.views_below(b.id) FROM below b
    )
    SELECT coalesce(array_agg(v.relation::text ORDER BY v.id), '{}')
    FROM below b JOIN idivm.views v USING (id)
    WHERE v.status <> 'ready' OR v.time_dependent OR v.paused_mode IS NOT NULL
          OR v.has_clock AND idivm.rows_are_due(v.id) OR idivm.pending_changes(v.id) > 0
          OR v.id = ANY (missing_wal)
$$;
COMMENT ON FUNCTION idivm.stale_below(integer, integer[]) IS 'the stale views that a view reads, directly or through other views';

-- Runs with the rights of the catalog's owner, for roles that may refresh views: pending rows are counted in the logs.
CREATE OR REPLACE FUNCTION idivm.view_status()
    RETURNS TABLE (view regclass, mode text, strategy text, state text, fresh_as_of timestamptz, lag interval,
                   pending_rows bigint, refreshed_at timestamptz, refresh_ms double precision, refresh_rows bigint,
                   recomputed boolean, last_error text, failed_at timestamptz, bytes bigint, log_bytes bigint,
                   schedule text, refresh_group text, waits_for text, waits_since timestamptz)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH missing AS MATERIALIZED (
        SELECT idivm.views_missing_wal(ARRAY(SELECT v.id FROM idivm.views v)) AS wal
    )
    SELECT s.relation, s.mode, s.strategy, s.state, f.fresh_as_of, clock_timestamp() - f.fresh_as_of, s.pending_rows,
           s.refreshed_at, s.refresh_ms, s.refresh_rows, s.recomputed, s.last_error, s.failed_at, s.bytes, s.log_bytes,
           idivm.schedule_of(s.options), nullif(s.options ->> 'refresh_group', ''), wait.reason,
           CASE WHEN wait.reason IS NOT NULL THEN s.held_since END
    FROM (
        SELECT v.relation, v.id, v.has_clock, coalesce(v.paused_mode, v.maintain) AS mode, v.strategy,
               CASE WHEN v.paused_mode IS NOT NULL THEN 'paused'
                    WHEN v.status = 'invalid' OR lost.reason IS NOT NULL OR idivm.trouble(v.id) IS NOT NULL THEN 'invalid'
                    WHEN e.view IS NOT NULL THEN 'failed'
                    WHEN p.rows > 0 OR v.time_dependent OR v.has_clock AND idivm.rows_are_due(v.id)
                         OR cardinality(idivm.stale_below(v.id, missing.wal)) > 0 OR v.id = ANY (missing.wal) THEN 'behind'
                    ELSE 'fresh' END AS state,
               p.rows AS pending_rows, w.refreshed_at, w.seconds * 1000 AS refresh_ms, w.changed AS refresh_rows,
               w.recomputed AS recomputed, coalesce(lost.reason, e.message) AS last_error, e.at AS failed_at,
               CASE c.relkind WHEN 'v' THEN idivm.state_bytes(v.id) ELSE pg_total_relation_size(c.oid) END AS bytes,
               idivm.log_kept(v.id) AS log_bytes, v.options, w.held_since
        FROM idivm.views v
        CROSS JOIN missing
        JOIN pg_class r ON r.oid = v.relation
        LEFT JOIN pg_class c ON c.oid = v.state
        LEFT JOIN idivm.watermarks w ON w.view = v.id
        LEFT JOIN idivm.view_errors e ON e.view = v.id
        CROSS JOIN LATERAL (SELECT idivm.pending_changes(v.id) AS rows OFFSET 0) AS p
        CROSS JOIN LATERAL (SELECT idivm.lost_query(v.relation) AS reason OFFSET 0) AS lost
        WHERE v.status <> 'building' AND NOT EXISTS (SELECT FROM idivm.unplanned_views u WHERE u.relation = v.relation)
      UNION ALL
        SELECT u.relation, NULL, false, coalesce(u.options ->> 'maintain', 'deferred'), NULL,
               CASE WHEN idivm.waiting_query(u) IS NULL THEN 'invalid' ELSE 'not planned' END,
               CASE WHEN u.number IS NULL THEN 0 END, u.filled_at, NULL, NULL, NULL,
               coalesce(idivm.lost_query(u.relation), u.refusal),
               u.refused_at, CASE WHEN u.number IS NULL THEN 0 ELSE pg_total_relation_size(r.oid) END, 0, u.options, NULL
        FROM idivm.unplanned_views u JOIN pg_class r ON r.oid = u.relation
    ) AS s
    CROSS JOIN LATERAL (
        SELECT CASE WHEN s.state = 'fresh' OR s.state = 'not planned' AND s.refreshed_at IS NULL THEN clock_timestamp()
                    WHEN s.has_clock THEN idivm.clock_of(s.id) ELSE s.refreshed_at END AS fresh_as_of
        OFFSET 0
    ) AS f
    CROSS JOIN LATERAL (
        SELECT CASE WHEN s.state IN ('behind', 'invalid', 'failed') AND s.options ?| '{refresh_group,gate}' THEN idivm.waits_for(s.id) END
        OFFSET 0
    ) AS wait (reason)
    ORDER BY s.relation::text COLLATE "C"
$$;
COMMENT ON FUNCTION idivm.view_status() IS 'what idivm.status shows';

CREATE OR REPLACE VIEW idivm.status AS SELECT * FROM idivm.view_status();
COMMENT ON VIEW idivm.status IS 'each maintained view: how it is maintained, how fresh it is, and its last refresh';

-- Why a refresh recomputed a view although nothing had drifted.
CREATE OR REPLACE FUNCTION idivm.why_recomputed(kind "char", was_invalid boolean, options jsonb DEFAULT '{}') RETURNS text
    LANGUAGE sql IMMUTABLE
    RETURN CASE WHEN kind = 'A' THEN 'recomputing was expected to take less time than applying the changes'
                WHEN kind = 'O' THEN 'applying the changes would have taken longer; only the content was computed'
                WHEN kind = 'S' THEN 'the tables behind the content were not current'
                WHEN kind IS NULL THEN 'the content changes with time'
                WHEN was_invalid THEN 'the view was invalid'
                ELSE 'a table was truncated, '
                     || coalesce('a table changed as the option ' || (
                            SELECT string_agg(name, ' or ') FROM unnest('{static,updatable,append_only}'::text[]) AS name
                            WHERE options ? name) || ' excludes, ', '')
                     || 'or the changes were too many or took too long' END;

-- How long a refresh is kept, and how many for each view: ALTER DATABASE ... SET idivm.history_age = '90 days'.
CREATE OR REPLACE FUNCTION idivm.history_limits(OUT age interval, OUT refreshes integer)
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(idivm.database_setting('idivm.history_age'), '30 days')::interval,
           coalesce(idivm.database_setting('idivm.history_refreshes'), '1000')::integer
$$;
COMMENT ON FUNCTION idivm.history_limits() IS 'the age and number up to which the refreshes of a view are kept';

-- The caller holds the view's lock, so no other transaction trims the same rows.
CREATE OR REPLACE FUNCTION idivm.trim_history(view_id integer) RETURNS void
    LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$
    DELETE FROM idivm.past_refreshes p
    USING idivm.history_limits() AS most
    WHERE p.view = view_id AND (p.at < clock_timestamp() - most.age OR p.at < (
        SELECT newer.at FROM idivm.past_refreshes newer WHERE newer.view = view_id
        ORDER BY newer.at DESC OFFSET most.refreshes - 1 LIMIT 1))
$$;
COMMENT ON FUNCTION idivm.trim_history(integer) IS 'deletes what idivm.history no longer shows of a view';

CREATE OR REPLACE VIEW idivm.history AS
SELECT v.relation AS view, p.at, p.changed AS rows_changed, p.seconds * 1000 AS milliseconds, p.role,
       p.recomputed IS NOT NULL OR v.strategy = 'recompute' AND p.error IS NULL AS recomputed,
       coalesce(p.recomputed, CASE WHEN v.strategy = 'recompute' AND p.error IS NULL THEN 'the strategy is recompute' END)
           AS reason,
       p.error
FROM idivm.past_refreshes p
JOIN idivm.views v ON v.id = p.view
CROSS JOIN idivm.history_limits() AS most
WHERE p.at >= clock_timestamp() - most.age
ORDER BY p.at DESC;
COMMENT ON VIEW idivm.history IS 'the refreshes of maintained views, latest first';

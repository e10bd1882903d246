-- Views whose content is no table, but a query over state tables: a view in idivm_state in its place.

-- As before, and such a view goes first; one that is kept turns away from the tables until it is
-- given new ones.
CREATE OR REPLACE FUNCTION idivm.drop_states(view_id integer, keep_content boolean) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    found_tables text;
    one record;
BEGIN
    FOR one IN
        SELECT c.oid::regclass AS name, v.id IS NOT NULL AS kept, (
                   SELECT string_agg(concat_ws(' ',
                              'NULL::' || format_type(a.atttypid, a.atttypmod),
                              'COLLATE ' || nullif(a.attcollation, 0)::regcollation,
                              'AS ' || quote_ident(a.attname)), ', ' ORDER BY a.attnum)
                   FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0) AS columns
        FROM pg_class c
        LEFT JOIN idivm.views v ON v.id = view_id AND v.state = c.oid AND keep_content
        WHERE c.relnamespace = 'idivm_state'::regnamespace AND c.relkind = 'v'
          AND c.relname ~ ('_' || view_id || '$')
    LOOP
        IF one.kept THEN
            EXECUTE format('CREATE OR REPLACE VIEW %s AS SELECT %s WHERE false', one.name, one.columns);
        ELSE
            EXECUTE format('DROP VIEW %s', one.name);
        END IF;
    END LOOP;
    SELECT string_agg(c.oid::regclass::text, ', ') INTO found_tables
    FROM pg_class c
    WHERE c.relnamespace = 'idivm_state'::regnamespace AND c.relkind = 'r'
      AND c.relname ~ ('_' || view_id || '$')
      AND NOT (keep_content AND EXISTS (SELECT FROM idivm.views v WHERE v.id = view_id AND v.state = c.oid));
    IF found_tables IS NOT NULL THEN
        EXECUTE 'DROP TABLE ' || found_tables;
    END IF;
END
$$;

-- How much the state tables of a view take.
CREATE FUNCTION idivm.state_bytes(view_id integer) RETURNS bigint
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint
    FROM pg_class c
    WHERE c.relnamespace = 'idivm_state'::regnamespace AND c.relkind = 'r' AND c.relname ~ ('_' || view_id || '$')
$$;

-- The maintained views that a view reads. Of those without a table no change can be captured, so that
-- what reads them is computed at each refresh; it is found by what its definition, or a plain view in
-- between, depends on.
CREATE FUNCTION idivm.views_below(view_id integer) RETURNS SETOF integer
    LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT lower_view.id
    FROM idivm.view_sources vs
    JOIN idivm.sources s ON s.id = vs.source
    JOIN idivm.views lower_view ON lower_view.state = s.relation
    WHERE vs.view = view_id
  UNION ALL
    SELECT lower_view.id
    FROM idivm.views v
    JOIN pg_rewrite r ON r.ev_class = v.definition
                      OR r.ev_class IN (SELECT i.relation FROM idivm.inlined_views i WHERE i.view = view_id)
    JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid AND d.refclassid = 'pg_class'::regclass
    JOIN idivm.views lower_view ON lower_view.relation = d.refobjid
    JOIN pg_class c ON c.oid = lower_view.state AND c.relkind = 'v'
    WHERE v.id = view_id AND v.moving;
END;

-- As before, and the lower ones whose content is no table.
CREATE OR REPLACE FUNCTION idivm.refresh_order(view_ids integer[]) RETURNS SETOF integer
    LANGUAGE sql STABLE
BEGIN ATOMIC
    WITH RECURSIVE needed(id, depth) AS (
        SELECT v.id, 0 FROM idivm.views v WHERE v.id = ANY (view_ids)
      UNION
        SELECT below.id, n.depth + 1 FROM needed n CROSS JOIN LATERAL idivm.views_below(n.id) AS below (id)
    )
    SELECT id FROM needed GROUP BY id ORDER BY max(depth) DESC, id;
END;

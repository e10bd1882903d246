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
        SELECT c.oid::regclass AS name, v.definition, (
                   SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum)
                   FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0) AS columns
        FROM pg_class c
        LEFT JOIN idivm.views v ON v.id = view_id AND v.state = c.oid AND keep_content
        WHERE c.relnamespace = 'idivm_state'::regnamespace AND c.relkind = 'v'
          AND c.relname ~ ('_' || view_id || '$')
    LOOP
        IF one.definition IS NULL THEN
            EXECUTE format('DROP VIEW %s', one.name);
        ELSE
            EXECUTE format('CREATE OR REPLACE VIEW %s AS SELECT * FROM %s AS d (%s) WHERE false',
                           one.name, one.definition, one.columns);
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

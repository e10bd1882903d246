-- Views that DROP ... CASCADE drops with a relation that they read, and event triggers that report this
-- immediately.

-- Return the rights that other roles than the owner have on a relation. The type aclitem could not be restored in
-- a cluster that lacks a role.
CREATE OR REPLACE FUNCTION idivm.grants_on(relation regclass) RETURNS jsonb
    LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT coalesce(jsonb_agg(jsonb_build_array(a.privilege_type, r.rolname, a.is_grantable)
                              ORDER BY a.privilege_type, r.rolname), '[]')
    FROM pg_class c
    CROSS JOIN LATERAL aclexplode(c.relacl) AS a
    LEFT JOIN pg_roles r ON r.oid = a.grantee
    WHERE c.oid = relation AND a.grantee <> c.relowner;
END;
COMMENT ON FUNCTION idivm.grants_on(regclass) IS 'the rights of others on a relation, as privilege, role and grant option';

-- Store the rights on views. A restored view gets them again; after a drop they could not be read.
CREATE OR REPLACE FUNCTION idivm.note_grants() RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- A role that may only refresh leaves this to others.
    IF has_table_privilege('idivm.views', 'UPDATE') THEN
        UPDATE idivm.views v SET grants = idivm.grants_on(v.relation)
        WHERE v.relation IS NOT NULL AND v.grants IS DISTINCT FROM idivm.grants_on(v.relation);
    END IF;
END
$$;
COMMENT ON FUNCTION idivm.note_grants() IS 'stores the rights on maintained views';

-- Store a view that was dropped with a relation that it reads, and warn the session.
CREATE OR REPLACE FUNCTION idivm.note_dropped(view_id integer, name text, cause text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    name := (SELECT string_agg(quote_ident(part), '.' ORDER BY place)
             FROM unnest(parse_ident(name)) WITH ORDINALITY AS p (part, place));
    INSERT INTO idivm.dropped_views AS d (name, view, query, columns, options, search_path, grants, cause, at)
    SELECT note_dropped.name, v.id, v.query,
           ARRAY(SELECT c.value ->> 'name'
                 FROM jsonb_array_elements(v.plan -> 'program' -> 'states') AS s,
                      jsonb_array_elements(s -> 'columns') WITH ORDINALITY AS c (value, place)
                 WHERE s -> 'role' = v.plan -> 'program' -> 'content' AND (c.value -> 'hidden') IS DISTINCT FROM 'true'
                 ORDER BY c.place),
           v.options, v.search_path, v.grants, note_dropped.cause, clock_timestamp()
    FROM idivm.views v WHERE v.id = view_id AND v.status <> 'building'
      AND NOT EXISTS (SELECT FROM idivm.dropped_views known WHERE known.view = view_id)
    ON CONFLICT ON CONSTRAINT dropped_views_pkey DO UPDATE
    SET view = excluded.view, query = excluded.query, columns = excluded.columns, options = excluded.options,
        search_path = excluded.search_path, grants = excluded.grants, cause = excluded.cause, at = excluded.at;
    IF FOUND THEN
        RAISE WARNING 'the maintained view % was dropped by %', note_dropped.name, note_dropped.cause
            USING HINT = format('Run idivm restore %s to create it again once what it reads is there.', note_dropped.name);
    END IF;
END
$$;

-- If a superuser installs the extension, event triggers report immediately what refreshes would find later.

CREATE OR REPLACE FUNCTION idivm.refuse_replacement() RETURNS event_trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    replaced regclass;
BEGIN
    -- Only idivm's own statements create relations that read its state tables. A user who writes such a view
    -- passes; is_shown() finds the replaced relation later.
    FOR replaced IN
        SELECT v.relation
        FROM pg_event_trigger_ddl_commands() AS c
        LEFT JOIN pg_rewrite r ON c.classid = 'pg_rewrite'::regclass AND r.oid = c.objid
        JOIN idivm.views v ON v.relation::oid = CASE WHEN c.classid = 'pg_class'::regclass THEN c.objid ELSE r.ev_class END
        WHERE NOT EXISTS (SELECT FROM idivm.unplanned_views u WHERE u.relation = v.relation) AND (EXISTS (
            SELECT FROM pg_rewrite own
            JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = own.oid AND d.refclassid = 'pg_class'::regclass
            JOIN pg_class used ON used.oid = d.refobjid AND used.oid <> own.ev_class
            WHERE own.ev_class = v.relation AND used.relnamespace NOT IN ('idivm_def'::regnamespace, 'idivm_state'::regnamespace))
           OR NOT EXISTS (
            SELECT FROM pg_rewrite own
            JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = own.oid AND d.refclassid = 'pg_class'::regclass
            JOIN pg_class used ON used.oid = d.refobjid AND used.relnamespace = 'idivm_def'::regnamespace
            WHERE own.ev_class = v.relation))
    LOOP
        RAISE EXCEPTION '% is maintained by idivm: another query in its place would hide the maintained content', replaced
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Run CREATE OR REPLACE VIEW by idivm, or drop the view first.';
    END LOOP;
END
$$;
COMMENT ON FUNCTION idivm.refuse_replacement() IS 'event trigger that refuses CREATE OR REPLACE VIEW on a maintained view';

CREATE OR REPLACE FUNCTION idivm.note_cascade() RETURNS event_trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    lost record;
BEGIN
    PERFORM idivm.note_dropped(v.id, gone.object_identity, format('DROP %s %s CASCADE', upper(root.object_type), root.object_identity))
    FROM (SELECT * FROM pg_event_trigger_dropped_objects()) AS gone
    JOIN idivm.views v ON gone.classid = 'pg_class'::regclass AND gone.objsubid = 0 AND gone.objid = v.relation::oid
    CROSS JOIN LATERAL (
        SELECT o.object_type, o.object_identity FROM pg_event_trigger_dropped_objects() AS o WHERE o.original LIMIT 1
    ) AS root
    WHERE NOT gone.original
      AND EXISTS (SELECT FROM pg_event_trigger_dropped_objects() AS o
                  WHERE o.classid = 'pg_class'::regclass AND o.objid = v.definition::oid);
    -- The table of a view does not depend on its definition.
    FOR lost IN
        SELECT v.id, v.relation::text AS name, format('DROP %s %s CASCADE', upper(root.object_type), root.object_identity) AS cause
        FROM (SELECT * FROM pg_event_trigger_dropped_objects()) AS gone
        JOIN idivm.views v ON gone.classid = 'pg_class'::regclass AND gone.objsubid = 0 AND gone.objid = v.definition::oid
        JOIN pg_class c ON c.oid = v.relation AND c.relkind = 'r'
        CROSS JOIN LATERAL (
            SELECT o.object_type, o.object_identity, o.schema_name FROM pg_event_trigger_dropped_objects() AS o WHERE o.original LIMIT 1
        ) AS root
        WHERE NOT gone.original AND root.schema_name NOT LIKE 'idivm\_%'
    LOOP
        PERFORM idivm.drop_lost_table(lost.id);
        PERFORM idivm.note_dropped(lost.id, lost.name, lost.cause);
    END LOOP;
END
$$;
COMMENT ON FUNCTION idivm.note_cascade() IS 'event trigger that warns about maintained views that DROP ... CASCADE drops';

CREATE OR REPLACE PROCEDURE idivm.guard_views()
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_event_trigger WHERE evtname = 'idivm_refuse_replacement') THEN
        CREATE EVENT TRIGGER idivm_refuse_replacement ON ddl_command_end WHEN TAG IN ('CREATE VIEW', 'CREATE RULE')
            EXECUTE FUNCTION idivm.refuse_replacement();
    END IF;
    IF NOT EXISTS (SELECT FROM pg_event_trigger WHERE evtname = 'idivm_note_cascade') THEN
        CREATE EVENT TRIGGER idivm_note_cascade ON sql_drop EXECUTE FUNCTION idivm.note_cascade();
    END IF;
END
$$;
COMMENT ON PROCEDURE idivm.guard_views() IS
    'creates the event triggers that refuse to replace maintained views and report their drops; needs a superuser';

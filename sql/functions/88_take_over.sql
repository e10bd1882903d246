-- Replace a relation by a relation of another kind under the same name: a materialized view by a maintained view,
-- or the reverse.
--
-- PostgreSQL cannot change the kind of a relation. So these functions rename the former relation, create a new one
-- under its name, transfer the properties of the name, make the readers of the former relation read the new one,
-- and drop the former relation. If an object still depends on it, the drop fails and nothing has changed.
--
-- All functions run with the rights of their caller, who owns idivm's catalog and has the rights of the owners of
-- the relations. They parse texts of other roles, and PostgreSQL runs some code while it parses a query. So the
-- caller must trust the code in these texts (docs/rights.md).

-- Return the SQL keyword for a kind of relation.
CREATE OR REPLACE FUNCTION idivm.kind_of(relation regclass) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE c.relkind WHEN 'v' THEN 'VIEW' WHEN 'm' THEN 'MATERIALIZED VIEW' ELSE 'TABLE' END
    FROM pg_class c WHERE c.oid = relation
$$;
COMMENT ON FUNCTION idivm.kind_of(regclass) IS 'the SQL keyword for a kind of relation';

-- Return statements that give a new relation of this name the owner, the rights and the comments of an existing
-- relation. They revoke the rights that default privileges gave to the new relation.
CREATE OR REPLACE FUNCTION idivm.properties_of(relation regclass, kind text) RETURNS SETOF text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT property.statement
    FROM pg_class c
    CROSS JOIN LATERAL (
        SELECT 0 AS place, format('ALTER TABLE %s OWNER TO %s', relation, c.relowner::regrole) AS statement
      UNION ALL
        SELECT 1, format('SELECT idivm.revoke_defaults(%L::regclass, %L)', relation::text, c.relacl IS NOT NULL)
      UNION ALL
        SELECT 2, format('GRANT %s ON %s TO %s%s', a.privilege_type, relation,
                         CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END,
                         CASE WHEN a.is_grantable AND a.grantee <> c.relowner THEN ' WITH GRANT OPTION' END)
        FROM aclexplode(c.relacl) AS a
      UNION ALL
        SELECT 2, format('GRANT %s (%I) ON %s TO %s%s', a.privilege_type, t.attname, relation,
                         CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END,
                         CASE WHEN a.is_grantable AND a.grantee <> c.relowner THEN ' WITH GRANT OPTION' END)
        FROM pg_attribute t CROSS JOIN LATERAL aclexplode(t.attacl) AS a
        WHERE t.attrelid = relation AND t.attnum > 0 AND NOT t.attisdropped
      UNION ALL
        SELECT 3, format('COMMENT ON %s %s IS %L', kind, relation, d.description)
        FROM pg_description d WHERE d.classoid = 'pg_class'::regclass AND d.objoid = relation AND d.objsubid = 0
          AND NOT idivm.is_own_comment(d.description)
      UNION ALL
        SELECT 3, format('COMMENT ON COLUMN %s.%I IS %L', relation, t.attname, d.description)
        FROM pg_description d JOIN pg_attribute t ON t.attrelid = d.objoid AND t.attnum = d.objsubid
        WHERE d.classoid = 'pg_class'::regclass AND d.objoid = relation AND d.objsubid > 0
    ) AS property
    WHERE c.oid = relation
    ORDER BY property.place
$$;
COMMENT ON FUNCTION idivm.properties_of(regclass, text) IS
    'statements that give another relation of the same name the owner, the rights and the comments of a relation';

-- Apply the result of idivm.properties_of for a former relation of this name to a new relation, and create the
-- indexes again. Properties of missing columns are skipped with a notice.
CREATE OR REPLACE FUNCTION idivm.give_properties(relation regclass, former oid, properties text[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    statement text;
BEGIN
    FOREACH statement IN ARRAY properties LOOP
        BEGIN
            EXECUTE statement;
        EXCEPTION WHEN undefined_column THEN
            RAISE NOTICE '% loses a comment or a right: %', relation, sqlerrm;
        END;
    END LOOP;
    IF idivm.may_change_catalog() THEN
        UPDATE idivm.view_indexes i SET relation = give_properties.relation WHERE i.relation = former;
    END IF;
END
$$;
COMMENT ON FUNCTION idivm.give_properties(regclass, oid, text[]) IS
    'gives a new relation the owner, the rights, the comments and the indexes of a former relation of its name';

-- Revoke the rights that default privileges gave to other roles, and to the owner if the owner's own rights
-- follow.
CREATE OR REPLACE FUNCTION idivm.revoke_defaults(relation regclass, owners_too boolean) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    statement text;
BEGIN
    FOR statement IN
        SELECT DISTINCT format('REVOKE ALL ON %s FROM %s', relation,
                               CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END)
        FROM pg_class c CROSS JOIN LATERAL aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) AS a
        WHERE c.oid = relation AND (owners_too OR a.grantee <> c.relowner)
    LOOP
        EXECUTE statement;
    END LOOP;
END
$$;

-- Return the readers of a relation. For a view, the text is a statement that makes it read the relation that then
-- has the name; for a materialized view, it is the query, because it must be created again. Other dependent
-- objects keep the relation from being dropped.
CREATE OR REPLACE FUNCTION idivm.dependents_of(relation regclass)
    RETURNS TABLE (dependent oid, owner oid, object text, statement text, query text, is_filled boolean)
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT DISTINCT c.oid, c.relowner, c.oid::regclass::text,
           CASE WHEN r.rulename <> '_RETURN' THEN regexp_replace(pg_get_ruledef(r.oid), '^CREATE RULE', 'CREATE OR REPLACE RULE')
                WHEN c.relkind = 'v' THEN format('CREATE OR REPLACE VIEW %s%s AS %s', c.oid::regclass,
                                                 idivm.options_clause(c.oid), pg_get_viewdef(c.oid)) END,
           CASE WHEN c.relkind = 'm' THEN pg_get_viewdef(c.oid) END, c.relispopulated
    FROM pg_depend d
    JOIN pg_rewrite r ON r.oid = d.objid AND r.ev_class <> relation
    JOIN pg_class c ON c.oid = r.ev_class
    WHERE d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = relation
  UNION
    SELECT NULL, p.proowner, p.oid::regprocedure::text, pg_get_functiondef(p.oid), NULL, NULL
    FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid AND p.prokind <> 'a'
    WHERE d.classid = 'pg_proc'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = relation
  UNION
    SELECT NULL, c.relowner, p.polname || ' on ' || c.oid::regclass,
           format('ALTER POLICY %I ON %s%s%s', p.polname, c.oid::regclass,
                  ' USING (' || pg_get_expr(p.polqual, p.polrelid) || ')',
                  ' WITH CHECK (' || pg_get_expr(p.polwithcheck, p.polrelid) || ')'), NULL, NULL
    FROM pg_depend d JOIN pg_policy p ON p.oid = d.objid JOIN pg_class c ON c.oid = p.polrelid
    WHERE d.classid = 'pg_policy'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = relation
$$;
COMMENT ON FUNCTION idivm.dependents_of(regclass) IS 'the readers of a relation, with the statements that make them read another relation of this name';

-- Return statements that create the indexes and statistics of a materialized view again.
CREATE OR REPLACE FUNCTION idivm.storage_of(relation regclass) RETURNS SETOF text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT part.statement
    FROM (
        SELECT 0 AS place, i.indexrelid AS oid, pg_get_indexdef(i.indexrelid) AS statement
        FROM pg_index i WHERE i.indrelid = relation
      UNION ALL
        SELECT 1, d.objoid, format('COMMENT ON INDEX %s IS %L', d.objoid::regclass, d.description)
        FROM pg_index i JOIN pg_description d ON d.classoid = 'pg_class'::regclass AND d.objoid = i.indexrelid
        WHERE i.indrelid = relation
      UNION ALL
        SELECT 1, c.oid, format('ALTER MATERIALIZED VIEW %s CLUSTER ON %I', relation, c.relname)
        FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = relation AND i.indisclustered
      UNION ALL
        SELECT 2, e.oid, pg_get_statisticsobjdef(e.oid) FROM pg_statistic_ext e WHERE e.stxrelid = relation
      UNION ALL
        SELECT 2, a.attrelid, format('ALTER MATERIALIZED VIEW %s ALTER COLUMN %I SET STATISTICS %s', relation, a.attname, a.attstattarget)
        FROM pg_attribute a WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped AND a.attstattarget >= 0
    ) AS part
    ORDER BY part.place, part.oid
$$;
COMMENT ON FUNCTION idivm.storage_of(regclass) IS 'statements that create the indexes and statistics of a materialized view again';

-- Refuse to parse a text of a role whose code the caller does not trust.
CREATE OR REPLACE FUNCTION idivm.refuse_distrusted(relation regclass, owner oid, object text) RETURNS void
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    reason text;
BEGIN
    IF relation IS NOT NULL THEN
        reason := idivm.distrusted(relation, '{}', current_user::regrole);
    ELSIF NOT idivm.trusts(current_user::regrole, owner) THEN
        reason := format('it belongs to the role %s, which the role %s does not trust', owner::regrole, current_user);
    END IF;
    IF reason IS NOT NULL THEN
        RAISE insufficient_privilege USING MESSAGE = format('%s cannot be turned to another relation: %s', object, reason);
    END IF;
END
$$;

-- Store the definition of a user's index on a maintained view. idivm has its own indexes beside these. The
-- definitions are stored because each new plan stores the content in a new table.
CREATE OR REPLACE FUNCTION idivm.note_index(view regclass, index regclass) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    code text := (SELECT pg_describe_object(d.refclassid, d.refobjid, 0) FROM idivm.index_code(index) AS d LIMIT 1);
BEGIN
    IF code IS NOT NULL THEN
        RAISE insufficient_privilege USING
            MESSAGE = format('the index %s uses the %s, which does not belong to a superuser, and every refresh would run it', index, code);
    END IF;
    INSERT INTO idivm.view_indexes AS known (relation, name, is_unique, definition, comment)
    -- The index of a key WITHOUT OVERLAPS is unique as that of a constraint alone.
    SELECT view, c.relname, i.indisunique AND NOT i.indisexclusion,
           ltrim(described.text), obj_description(index, 'pg_class')
    FROM pg_index i
    JOIN pg_class c ON c.oid = i.indexrelid
    -- The text after the name of the table; the name itself may contain the same word.
    CROSS JOIN LATERAL (
        SELECT substr(pg_get_indexdef(index), length(format('CREATE %sINDEX %I ON %s', CASE WHEN i.indisunique THEN 'UNIQUE ' END,
                                                            c.relname, i.indrelid::regclass)) + 1) AS text) AS described
    WHERE i.indexrelid = index
    ON CONFLICT ON CONSTRAINT view_indexes_pkey DO UPDATE
    SET is_unique = excluded.is_unique, definition = excluded.definition, comment = excluded.comment;
END
$$;
COMMENT ON FUNCTION idivm.note_index(regclass, regclass) IS 'stores the definition of an index for the content of a maintained view';

-- Return the code of users that an index runs: its functions and the functions behind its operator classes and
-- types. Their owner could make them run at each refresh with the rights of the view's owner. Superusers may do
-- that, because idivm trusts them.
CREATE OR REPLACE FUNCTION idivm.index_code(index regclass) RETURNS SETOF pg_depend
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT d.*
    FROM pg_depend d
    CROSS JOIN LATERAL (
        SELECT p.proowner AS owner FROM pg_proc p WHERE d.refclassid = 'pg_proc'::regclass AND p.oid = d.refobjid
        UNION ALL
        SELECT o.opcowner FROM pg_opclass o WHERE d.refclassid = 'pg_opclass'::regclass AND o.oid = d.refobjid
        UNION ALL
        SELECT o.oprowner FROM pg_operator o WHERE d.refclassid = 'pg_operator'::regclass AND o.oid = d.refobjid
        UNION ALL
        SELECT t.typowner FROM pg_type t WHERE d.refclassid = 'pg_type'::regclass AND t.oid = d.refobjid
    ) AS code
    WHERE d.classid = 'pg_class'::regclass AND d.objid = index AND d.refobjid >= 16384
      AND NOT (SELECT r.rolsuper FROM pg_roles r WHERE r.oid = code.owner)
$$;
COMMENT ON FUNCTION idivm.index_code(regclass) IS 'the objects of an index that run code and do not belong to superusers';

-- Create the indexes of users on the table that holds the content of a view. An index with a missing column is
-- dropped with a notice.
--
-- The content has a unique index on its key, which also serves as the user's index on the same columns. Other
-- indexes are not unique: within a refresh, a row may receive a value before another row loses it, and programs
-- skip rows that already exist.
CREATE OR REPLACE FUNCTION idivm.make_indexes(view regclass, view_id integer, state regclass) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    wanted idivm.view_indexes;
    index_name name;
BEGIN
    IF idivm.kind_of(state) <> 'TABLE' THEN
        RETURN;
    END IF;
    FOR wanted IN SELECT * FROM idivm.view_indexes i WHERE i.relation = view ORDER BY i.name LOOP
        index_name := left(wanted.name::text, 50) || '_' || view_id;
        CONTINUE WHEN to_regclass(format('idivm_state.%I', index_name)) IS NOT NULL OR EXISTS (
            SELECT FROM pg_index i
            WHERE i.indrelid = state AND i.indisunique
              AND substring(pg_get_indexdef(i.indexrelid) FROM ' (USING .*?)(?: NULLS NOT DISTINCT)?$')
                  = regexp_replace(wanted.definition, ' NULLS NOT DISTINCT$', ''));
        BEGIN
            EXECUTE format('CREATE INDEX %I ON %s %s', index_name, state, wanted.definition);
            IF wanted.comment IS NOT NULL THEN
                EXECUTE format('COMMENT ON INDEX idivm_state.%I IS %L', index_name, wanted.comment);
            END IF;
        EXCEPTION WHEN undefined_column OR undefined_object OR undefined_function OR datatype_mismatch THEN
            RAISE NOTICE 'the index % of % is dropped: %', wanted.name, view, sqlerrm;
            DELETE FROM idivm.view_indexes i WHERE i.relation = view AND i.name = wanted.name;
        END;
    END LOOP;
END
$$;
COMMENT ON FUNCTION idivm.make_indexes(regclass, integer, regclass) IS
    'creates the indexes of users on the table that holds the content of a view';

-- Replace a relation by another relation with the same name, owner, rights, comments and readers. A materialized
-- view is filled with the rights of its owner, as by REFRESH. `storage` contains statements for its indexes.
CREATE OR REPLACE FUNCTION idivm.exchange(relation regclass, kind text, query text, storage text[] DEFAULT '{}', with_data boolean DEFAULT true)
    RETURNS regclass
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    name text := relation;
    former_kind text := idivm.kind_of(relation);
    former_name name := 'idivm_former_' || relation::oid;
    was pg_class;
    columns text[] := ARRAY(SELECT a.attname::text FROM pg_attribute a
                            WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped
                              AND (former_kind <> 'TABLE' OR a.attname NOT LIKE '\_\_ivm\_%')
                            ORDER BY a.attnum);
    properties text[];
    readers jsonb[];
    reader jsonb;
    statement text;
    new regclass;
BEGIN
    SELECT * INTO was FROM pg_class c WHERE c.oid = relation;
    IF NOT idivm.owns(relation) THEN
        RAISE insufficient_privilege USING MESSAGE = format('must be owner of %s', name);
    END IF;
    PERFORM idivm.refuse_distrusted(relation, was.relowner, name);
    -- This changes nothing, but waits for readers and blocks new ones. LOCK TABLE does not accept materialized
    -- views.
    EXECUTE format('ALTER TABLE %s OWNER TO %s', relation, was.relowner::regrole);
    properties := ARRAY(SELECT idivm.properties_of(relation, kind));
    readers := ARRAY(SELECT to_jsonb(d) FROM idivm.dependents_of(relation) AS d);
    FOREACH reader IN ARRAY readers LOOP
        PERFORM idivm.refuse_distrusted((reader ->> 'dependent')::oid, (reader ->> 'owner')::oid, reader ->> 'object');
    END LOOP;
    EXECUTE format('ALTER %s %s RENAME TO %I', former_kind, name, former_name);
    IF kind = 'VIEW' THEN
        new := idivm.show_query(name, columns, query, 'pg_catalog, pg_temp', false);
    ELSE
        EXECUTE format(
            'CREATE MATERIALIZED VIEW %s (%s)%s%s%s AS %s WITH NO DATA', name,
            (SELECT string_agg(quote_ident(c), ', ' ORDER BY place) FROM unnest(columns) WITH ORDINALITY AS u (c, place)),
            ' USING ' || (SELECT quote_ident(a.amname) FROM pg_am a WHERE a.oid = was.relam),
            CASE was.relkind WHEN 'm' THEN idivm.options_clause(relation) END,
            ' TABLESPACE ' || (SELECT quote_ident(s.spcname) FROM pg_tablespace s WHERE s.oid = was.reltablespace),
            rtrim(query, E'; \n'));
        new := name::regclass;
    END IF;
    PERFORM idivm.give_properties(new, relation, properties);
    IF kind <> 'VIEW' AND with_data THEN
        EXECUTE format('REFRESH MATERIALIZED VIEW %s', new);
    END IF;
    FOREACH reader IN ARRAY readers LOOP
        IF reader ->> 'query' IS NULL THEN
            EXECUTE reader ->> 'statement';
        ELSE
            PERFORM idivm.exchange(m.oid, 'MATERIALIZED VIEW', reader ->> 'query', ARRAY(SELECT idivm.storage_of(m.oid)),
                                   (reader ->> 'is_filled')::boolean)
            FROM (SELECT (reader ->> 'dependent')::oid AS oid) AS m;
        END IF;
    END LOOP;
    BEGIN
        EXECUTE format('DROP %s %s.%I', former_kind, was.relnamespace::regnamespace, former_name);
    EXCEPTION WHEN dependent_objects_still_exist THEN
        GET STACKED DIAGNOSTICS statement = PG_EXCEPTION_DETAIL;
        RAISE dependent_objects_still_exist USING
            MESSAGE = format('%s cannot become another kind of relation: %s', name,
                             replace(replace(statement, E'\n', '; '), format('%s.%I', was.relnamespace::regnamespace, former_name), name));
    END;
    FOREACH statement IN ARRAY storage LOOP
        EXECUTE statement;
    END LOOP;
    RETURN new;
END
$$;
COMMENT ON FUNCTION idivm.exchange(regclass, text, text, text[], boolean) IS
    'replaces a relation by another relation with the same name, owner, rights, comments and readers';

-- Return the query of a relation that idivm can take over: a materialized view, or the table of a view that pg_ivm
-- maintains. Return NULL for any other relation.
CREATE OR REPLACE FUNCTION idivm.adoptable(relation regclass, OUT query text, OUT is_pg_ivm boolean)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    schema name;
    held boolean;
BEGIN
    is_pg_ivm := false;
    IF (SELECT c.relkind = 'm' FROM pg_class c WHERE c.oid = relation) THEN
        query := pg_get_viewdef(relation);
        RETURN;
    END IF;
    -- The catalog of pg_ivm was in pg_catalog in earlier versions and is now in its own schema. Its function runs
    -- with the rights of the caller, so only a role that the caller trusts may own it.
    FOR schema IN
        SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        JOIN pg_proc p ON p.pronamespace = n.oid AND p.proname = 'get_immv_def'
        WHERE c.relname = 'pg_ivm_immv' AND n.nspname IN ('pgivm', 'pg_catalog')
          AND idivm.trusts(current_user::regrole, c.relowner) AND idivm.trusts(current_user::regrole, p.proowner)
    LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM %I.pg_ivm_immv i WHERE i.immvrelid = $1)', schema) INTO held USING relation;
        IF held THEN
            IF NOT idivm.trusts(current_user::regrole, (SELECT c.relowner FROM pg_class c WHERE c.oid = relation)) THEN
                RAISE insufficient_privilege USING
                    MESSAGE = format('the query of %s belongs to a role that %s does not trust', relation, current_user);
            END IF;
            EXECUTE format('SELECT %I.get_immv_def($1)', schema) INTO query USING relation;
            is_pg_ivm := true;
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION idivm.adoptable(regclass) IS 'the query of a relation that idivm can take over, or NULL';

-- Return the properties of a materialized view that a maintained view does not have; idivm.adopt drops them.
CREATE OR REPLACE FUNCTION idivm.lost_by_adopting(relation regclass) RETURNS SETOF text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT format('the index %s, which uses the %s of a role that is no superuser', i.indexrelid::regclass,
                  pg_describe_object(code.refclassid, code.refobjid, 0))
    FROM pg_index i CROSS JOIN LATERAL (SELECT * FROM idivm.index_code(i.indexrelid) LIMIT 1) AS code WHERE i.indrelid = relation
  UNION ALL
    SELECT format('the check that %s is unique: the index is kept without it, unless its columns are the key of the view', i.indexrelid::regclass)
    FROM pg_index i WHERE i.indrelid = relation AND i.indisunique
  UNION ALL
    SELECT format('the statistics object %s', e.stxname) FROM pg_statistic_ext e WHERE e.stxrelid = relation
  UNION ALL
    SELECT format('the statistics target of the column %s', a.attname)
    FROM pg_attribute a WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped AND a.attstattarget >= 0
  UNION ALL
    SELECT format('the storage parameters %s', array_to_string(c.reloptions, ', '))
    FROM pg_class c WHERE c.oid = relation AND c.reloptions IS NOT NULL
  UNION ALL
    SELECT format('the tablespace %s', t.spcname)
    FROM pg_class c JOIN pg_tablespace t ON t.oid = c.reltablespace WHERE c.oid = relation
  UNION ALL
    SELECT format('the order of %s, by which CLUSTER arranges the rows', i.indexrelid::regclass)
    FROM pg_index i WHERE i.indrelid = relation AND i.indisclustered
  UNION ALL
    SELECT format('the trigger %s', t.tgname)
    FROM pg_trigger t WHERE t.tgrelid = relation AND NOT t.tgisinternal AND t.tgname NOT LIKE 'IVM\_trigger\_%'
$$;
COMMENT ON FUNCTION idivm.lost_by_adopting(regclass) IS 'the properties of a materialized view that a maintained view does not have';

-- Turn a maintained view back into a materialized view.
CREATE OR REPLACE FUNCTION idivm.release(view regclass) RETURNS regclass
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    view_id integer := idivm.own_view(view);
    above integer[] := coalesce(idivm.views_above(view_id), '{}');
    query text;
    indexes text[];
    released regclass;
BEGIN
    PERFORM idivm.refuse_guest('release', view);
    IF above <> '{}' THEN
        RAISE dependent_objects_still_exist USING
            MESSAGE = format('the maintained views %s read %s', idivm.names_of(above), view), HINT = 'Release or drop them first.';
    END IF;
    IF view_id IS NOT NULL THEN
        PERFORM idivm.hold_views(ARRAY[view_id]);
    END IF;
    query := coalesce((SELECT q.query FROM idivm.views v CROSS JOIN LATERAL idivm.query_of(v) AS q
                       WHERE v.id = view_id AND NOT EXISTS (SELECT FROM idivm.unplanned_views u WHERE u.relation = view)),
                      pg_get_viewdef(view));
    indexes := ARRAY(
        SELECT statement FROM idivm.view_indexes i
        CROSS JOIN LATERAL (VALUES
            (0, format('CREATE %sINDEX %I ON %s %s', CASE WHEN i.is_unique THEN 'UNIQUE ' END, i.name, view, i.definition)),
            (1, format('COMMENT ON INDEX %s.%I IS %L', (SELECT c.relnamespace::regnamespace FROM pg_class c WHERE c.oid = view),
                       i.name, i.comment))) AS s (place, statement)
        WHERE i.relation = view AND (s.place = 0 OR i.comment IS NOT NULL)
        ORDER BY s.place, i.name);
    IF idivm.kind_of(view) = 'TABLE' THEN
        indexes := ARRAY(SELECT CASE WHEN i.indisexclusion THEN regexp_replace(pg_get_indexdef(i.indexrelid), '^CREATE UNIQUE ', 'CREATE ')
                                     ELSE pg_get_indexdef(i.indexrelid) END
                         FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
                         WHERE i.indrelid = view AND c.relname NOT LIKE '%\_idivm' ORDER BY i.indexrelid);
    END IF;
    released := idivm.exchange(view, 'MATERIALIZED VIEW', query, indexes);
    DELETE FROM idivm.unplanned_views u WHERE u.relation = view;
    DELETE FROM idivm.view_indexes i WHERE i.relation = released;
    PERFORM idivm.uninstall(view_id, true);
    RETURN released;
END
$$;
COMMENT ON FUNCTION idivm.release(regclass) IS 'turns a maintained view back into a materialized view of its query';

-- Create an index on the content of a view. `definition` is the text after the name of the table in CREATE INDEX.
-- PostgreSQL parses it for an empty table with the columns of the view, and the function stores the text that
-- PostgreSQL prints.
CREATE OR REPLACE FUNCTION idivm.create_index(
    view regclass, definition text, name name DEFAULT NULL, is_unique boolean DEFAULT false,
    path text DEFAULT pg_catalog.current_setting('search_path'), if_not_exists boolean DEFAULT false)
    RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    view_id integer := idivm.own_view(view);
    columns text := (SELECT string_agg(format('%I %s%s', a.attname, format_type(a.atttypid, a.atttypmod),
                                              ' COLLATE ' || nullif(a.attcollation, 0)::regcollation), ', ' ORDER BY a.attnum)
                     FROM pg_attribute a WHERE a.attrelid = view AND a.attnum > 0);
    created regclass;
BEGIN
    PERFORM idivm.refuse_guest('index', view);
    IF idivm.kind_of(view) = 'TABLE' THEN
        PERFORM set_config('search_path', path, true);
        EXECUTE format('CREATE %sINDEX %s%s ON %s %s', CASE WHEN is_unique THEN 'UNIQUE ' END,
                       CASE WHEN if_not_exists THEN 'IF NOT EXISTS ' END, quote_ident(create_index.name), view, definition);
        RETURN;
    END IF;
    IF if_not_exists AND EXISTS (SELECT FROM idivm.view_indexes i WHERE i.relation = view AND i.name = create_index.name) THEN
        RAISE NOTICE USING ERRCODE = 'duplicate_table',
            MESSAGE = format('relation "%s" already exists, skipping', create_index.name);
        RETURN;
    END IF;
    EXECUTE format('CREATE TABLE idivm_load.%I (%s)', view::oid || '_columns', columns);
    PERFORM set_config('search_path', path, true);
    BEGIN
        EXECUTE format('CREATE %sINDEX %s ON idivm_load.%I %s', CASE WHEN is_unique THEN 'UNIQUE ' END, quote_ident(create_index.name),
                       view::oid || '_columns', definition);
    EXCEPTION WHEN syntax_error THEN
        RAISE syntax_error USING
            MESSAGE = format('no index on %s was created: %s', view, sqlerrm),
            HINT = 'Give the text that follows the table in CREATE INDEX: ''(shop)'', or ''USING hash (shop)''.';
    END;
    PERFORM set_config('search_path', 'pg_catalog, pg_temp', true);
    SELECT i.indexrelid INTO created FROM pg_index i WHERE i.indrelid = format('idivm_load.%I', view::oid || '_columns')::regclass;
    IF create_index.name IS NULL THEN
        create_index.name := left(format('%s%s', (SELECT c.relname FROM pg_class c WHERE c.oid = view),
                                         substr((SELECT c.relname FROM pg_class c WHERE c.oid = created), length(view::oid || '_columns') + 1)), 63);
        EXECUTE format('ALTER INDEX %s RENAME TO %I', created, create_index.name);
    END IF;
    IF EXISTS (SELECT FROM idivm.view_indexes i WHERE i.relation = view AND i.name = create_index.name) THEN
        RAISE duplicate_table USING MESSAGE = format('%s has an index %I already', view, create_index.name);
    END IF;
    PERFORM idivm.note_index(view, created);
    EXECUTE format('DROP TABLE idivm_load.%I', view::oid || '_columns');
    PERFORM idivm.make_indexes(view, v.id, v.state) FROM idivm.views v WHERE v.id = view_id;
    IF is_unique THEN
        RAISE NOTICE 'the index % of % does not check that rows are unique', create_index.name, view;
    END IF;
END
$$;
COMMENT ON FUNCTION idivm.create_index(regclass, text, name, boolean, text, boolean) IS
    'creates an index on the content of a view; new plans keep the index';

-- Return the index of this name on the table in which users read a view, if there is such a table.
CREATE OR REPLACE FUNCTION idivm.index_on_table(view regclass, name name) RETURNS regclass
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT i.indexrelid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = view AND c.relname = name
$$;

CREATE OR REPLACE FUNCTION idivm.drop_index(view regclass, name name) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    view_id integer := idivm.own_view(view);
    on_table regclass := idivm.index_on_table(view, name);
BEGIN
    PERFORM idivm.refuse_guest('index', view);
    IF on_table IS NOT NULL THEN
        EXECUTE format('DROP INDEX %s', on_table);
        RETURN;
    END IF;
    DELETE FROM idivm.view_indexes i WHERE i.relation = view AND i.name = drop_index.name;
    IF NOT FOUND THEN
        RAISE undefined_object USING MESSAGE = format('%s has no index %I of its users', view, name);
    END IF;
    EXECUTE format('DROP INDEX IF EXISTS idivm_state.%I', left(name::text, 50) || '_' || view_id);
END
$$;
COMMENT ON FUNCTION idivm.drop_index(regclass, name) IS 'drops an index that idivm.create_index created';

CREATE OR REPLACE FUNCTION idivm.rename_index(view regclass, name name, new_name name) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    view_id integer := idivm.own_view(view);
    on_table regclass := idivm.index_on_table(view, name);
BEGIN
    PERFORM idivm.refuse_guest('index', view);
    IF on_table IS NOT NULL THEN
        EXECUTE format('ALTER INDEX %s RENAME TO %I', on_table, new_name);
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM idivm.view_indexes i WHERE i.relation = view AND i.name = new_name) THEN
        RAISE duplicate_table USING MESSAGE = format('%s has an index %I already', view, new_name);
    END IF;
    UPDATE idivm.view_indexes i SET name = new_name WHERE i.relation = view AND i.name = rename_index.name;
    IF NOT FOUND THEN
        RAISE undefined_object USING MESSAGE = format('%s has no index %I of its users', view, name);
    END IF;
    EXECUTE format('ALTER INDEX IF EXISTS idivm_state.%I RENAME TO %I',
                   left(name::text, 50) || '_' || view_id, left(new_name::text, 50) || '_' || view_id);
END
$$;
COMMENT ON FUNCTION idivm.rename_index(regclass, name, name) IS 'renames an index that idivm.create_index created';

-- Trust: whose rights and whose code a maintained view depends on.
--
-- The program of a view runs with the rights of the view's owner, in other roles' writes. It therefore reads no
-- more than PostgreSQL would let the query of the view read, and calls no code of a role that the owner does not
-- trust.

-- Return whether a role trusts another role. A role trusts itself, the roles that it is a member of, superusers,
-- and the owner of idivm's catalog, whose functions its programs call anyway. A superuser has the rights of all
-- roles, but this does not mean that it trusts them.
--
-- A recursive query begins with a hash table for as many rows as PostgreSQL expects, up to work_mem. It expects many
-- more than there are, and clearing that memory took milliseconds.
CREATE OR REPLACE FUNCTION idivm.trusts(who oid, whom oid) RETURNS boolean
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET work_mem = '64kB'
AS $$
BEGIN
    RETURN (
        WITH RECURSIVE roles(role) AS (
            SELECT who
          UNION
            SELECT m.roleid FROM roles JOIN pg_auth_members m ON m.member = roles.role
        )
        SELECT whom IN (SELECT role FROM roles)
            OR coalesce((SELECT rolsuper FROM pg_roles WHERE oid = whom), false)
            OR whom = (SELECT nspowner FROM pg_namespace WHERE nspname = 'idivm')
            OR whom = 'pg_database_owner'::regrole
               AND (SELECT datdba FROM pg_database WHERE datname = current_database()) IN (SELECT role FROM roles)
    );
END
$$;
COMMENT ON FUNCTION idivm.trusts(oid, oid) IS 'whether code of one role may run with the rights of another role';

-- Return the objects of a table with expressions whose constant parts the planner evaluates: functions of a partition
-- key, indexes and extended statistics with expressions, also of partitions and inheritance children, and the
-- constraints of these relations. For example, an index on mallory.f(1) makes the planner call mallory.f for every
-- query over the table.
CREATE OR REPLACE FUNCTION idivm.planned_with(relation oid) RETURNS TABLE (class oid, object oid)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off SET work_mem = '64kB'
AS $$
BEGIN
    RETURN QUERY
    WITH RECURSIVE family(member) AS (
        SELECT relation
      UNION
        SELECT i.inhrelid FROM family f JOIN pg_inherits i ON i.inhparent = f.member
    )
    SELECT 'pg_class'::regclass::oid, i.indexrelid
    FROM family f JOIN pg_index i ON i.indrelid = f.member
    WHERE i.indexprs IS NOT NULL OR i.indpred IS NOT NULL
    UNION ALL
    SELECT 'pg_statistic_ext'::regclass, s.oid
    FROM family f JOIN pg_statistic_ext s ON s.stxrelid = f.member WHERE s.stxexprs IS NOT NULL
    UNION ALL
    -- By constraints of partitions and children, the planner decides whether to read them.
    SELECT 'pg_constraint'::regclass, k.oid
    FROM family f JOIN pg_constraint k ON k.conrelid = f.member AND k.contype = 'c' WHERE f.member <> relation
    UNION ALL
    SELECT d.refclassid, d.refobjid
    FROM family f JOIN pg_partitioned_table p ON p.partrelid = f.member AND p.partexprs IS NOT NULL
    JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = p.partrelid AND d.objsubid = 0
    WHERE d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass);
END
$$;
COMMENT ON FUNCTION idivm.planned_with(oid) IS 'the objects of a table whose expressions the planner evaluates as far as they are constant';

-- Return the objects of users that run code when a query is planned or executed, or that lead to such objects, as far
-- as PostgreSQL's catalog shows it: functions, also behind operators, casts and aggregates; domains; foreign tables.
-- The search includes plain views, the types of the columns that are read, and what planners evaluate. An operator
-- leads to its commutator and its negator, which the planner may call instead. A type leads to its casts, which
-- to_jsonb(), quote_literal() and || call.
CREATE OR REPLACE FUNCTION idivm.objects_behind(definition regclass, types oid[])
    RETURNS TABLE (class oid, object oid)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
    -- The function looks up a few objects by OID; the planner would choose scans, or compile the query.
    SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off SET jit = off
    SET work_mem = '64kB'
AS $$
BEGIN
    RETURN QUERY
    WITH RECURSIVE used(class, object) AS (
        (SELECT 'pg_class'::regclass::oid, definition::oid
         UNION ALL SELECT 'pg_type'::regclass, t FROM unnest(types) AS t
         UNION ALL SELECT 'pg_type'::regclass, a.atttypid FROM pg_attribute a
                   WHERE a.attrelid = definition AND a.attnum > 0 AND NOT a.attisdropped)
      UNION
        SELECT further.class, further.object
        FROM used u CROSS JOIN LATERAL (
            SELECT d.refclassid AS class, d.refobjid AS object
            FROM pg_depend d WHERE d.classid = u.class AND d.objid = u.object
              AND d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass, 'pg_type'::regclass)
            UNION ALL
            SELECT 'pg_rewrite'::regclass, r.oid
            -- A materialized view below is read as stored.
            FROM pg_rewrite r JOIN pg_class c ON c.oid = r.ev_class AND (c.relkind = 'v' OR c.oid = definition)
            WHERE u.class = 'pg_class'::regclass AND r.ev_class = u.object AND r.rulename = '_RETURN'
            UNION ALL
            -- A maintained view below is read as stored.
            SELECT 'pg_class'::regclass, c.oid
            FROM pg_depend d JOIN pg_class c ON c.oid = d.refobjid AND c.relkind IN ('v', 'f')
            WHERE u.class IN ('pg_rewrite'::regclass, 'pg_proc'::regclass) AND d.classid = u.class AND d.objid = u.object
              AND d.refclassid = 'pg_class'::regclass
              AND NOT EXISTS (SELECT FROM idivm.views v WHERE v.relation = c.oid)
            UNION ALL
            SELECT 'pg_type'::regclass, a.atttypid
            FROM pg_depend d JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
            WHERE u.class = 'pg_rewrite'::regclass AND d.classid = u.class AND d.objid = u.object
              AND d.refclassid = 'pg_class'::regclass AND d.refobjsubid > 0
            UNION ALL
            SELECT 'pg_type'::regclass, part.type
            FROM pg_type t CROSS JOIN LATERAL (
                SELECT t.typbasetype UNION ALL SELECT t.typelem
                UNION ALL SELECT a.atttypid FROM pg_attribute a
                          WHERE t.typrelid <> 0 AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
                UNION ALL SELECT unnest(ARRAY[r.rngtypid, r.rngsubtype]) FROM pg_range r
                          WHERE t.oid IN (r.rngtypid, r.rngmultitypid)
            ) AS part (type)
            WHERE u.class = 'pg_type'::regclass AND t.oid = u.object
            UNION ALL
            -- For any other type, the planner may go through all constraints of the database.
            SELECT 'pg_constraint'::regclass, k.oid
            FROM (SELECT t.oid FROM pg_type t WHERE t.oid = u.object AND t.typtype = 'd' OFFSET 0) AS domain
            JOIN pg_constraint k ON k.contypid = domain.oid
            WHERE u.class = 'pg_type'::regclass
            UNION ALL
            SELECT 'pg_proc'::regclass, f.oid
            FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
            JOIN idivm.rings r ON r.schema = n.nspname AND r.name IN (p.proname, left(p.proname, -4))
            CROSS JOIN LATERAL unnest(ARRAY[r.plus, r.times, r.negate, r.zero, r.one, r.lift]) AS ring (part)
            JOIN pg_proc f ON f.oid = to_regprocedure(ring.part)
            WHERE u.class = 'pg_proc'::regclass AND p.oid = u.object
            UNION ALL
            SELECT planned.class, planned.object
            FROM pg_depend d JOIN pg_class c ON c.oid = d.refobjid AND c.relkind IN ('r', 'p', 'm')
            CROSS JOIN LATERAL idivm.planned_with(c.oid) AS planned
            WHERE u.class IN ('pg_rewrite'::regclass, 'pg_proc'::regclass) AND d.classid = u.class AND d.objid = u.object
              AND d.refclassid = 'pg_class'::regclass
              -- A materialized view does not read itself.
              AND NOT EXISTS (SELECT FROM pg_rewrite w
                              WHERE u.class = 'pg_rewrite'::regclass AND w.oid = u.object AND w.ev_class = c.oid)
            UNION ALL
            SELECT 'pg_operator'::regclass, other.operator
            FROM pg_operator o CROSS JOIN LATERAL unnest(ARRAY[o.oprcom, o.oprnegate]) AS other (operator)
            WHERE u.class = 'pg_operator'::regclass AND o.oid = u.object
            UNION ALL
            SELECT 'pg_proc'::regclass, k.castfunc FROM pg_cast k
            WHERE u.class = 'pg_type'::regclass AND u.object >= 16384 AND k.castsource = u.object
        ) AS further
        -- Built-in objects have smaller OIDs and depend only on built-in objects.
        WHERE further.object >= 16384
    )
    SELECT u.class, u.object FROM used u;
END
$$;
COMMENT ON FUNCTION idivm.objects_behind(regclass, oid[]) IS 'the objects of users that a query may call, or that lead to such objects';

-- Return the code that runs when a query is planned or executed: functions; domains, whose owners can add
-- constraints at any time; foreign tables with their servers.
CREATE OR REPLACE FUNCTION idivm.code_behind(definition regclass, types oid[])
    RETURNS TABLE (what text, owner oid)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off
AS $$
BEGIN
    RETURN QUERY
    WITH used AS MATERIALIZED (SELECT o.class, o.object FROM idivm.objects_behind(definition, types) AS o)
    SELECT CASE p.prokind WHEN 'a' THEN 'the aggregate ' ELSE 'the function ' END || p.oid::regprocedure, p.proowner
    FROM used u JOIN pg_proc p ON u.class = 'pg_proc'::regclass AND p.oid = u.object
    UNION ALL
    SELECT 'the domain ' || t.oid::regtype, t.typowner
    FROM used u JOIN pg_type t ON u.class = 'pg_type'::regclass AND t.oid = u.object AND t.typtype = 'd'
    UNION ALL
    SELECT 'the foreign table ' || c.oid::regclass, owners.owner
    FROM used u JOIN pg_class c ON u.class = 'pg_class'::regclass AND c.oid = u.object AND c.relkind = 'f'
    JOIN pg_foreign_table f ON f.ftrelid = c.oid
    JOIN pg_foreign_server s ON s.oid = f.ftserver
    CROSS JOIN LATERAL unnest(ARRAY[c.relowner, s.srvowner]) AS owners (owner);
END
$$;
COMMENT ON FUNCTION idivm.code_behind(regclass, oid[]) IS 'the code of users that a query calls, with its owners';

-- Return why a role, by default the owner of the definition, does not trust the code of a query.
CREATE OR REPLACE FUNCTION idivm.distrusted(definition regclass, types oid[], who oid DEFAULT NULL) RETURNS text
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    RETURN (
        SELECT format('it calls %s of the role %s, which the role %s does not trust; let %s own the view, or GRANT %s TO %s'
                      ' if such code may run with the rights of %s', c.what, its.name, r.name, its.name, its.name, r.name, r.name)
        FROM (SELECT coalesce(who, (SELECT d.relowner FROM pg_class d WHERE d.oid = definition)) AS role) AS runs
        CROSS JOIN idivm.code_behind(definition, types) AS c
        CROSS JOIN LATERAL (SELECT quote_ident(pg_get_userbyid(c.owner)) AS name) AS its
        CROSS JOIN LATERAL (SELECT quote_ident(pg_get_userbyid(runs.role)) AS name) AS r
        WHERE NOT idivm.trusts(runs.role, c.owner)
        ORDER BY c.what COLLATE "C" LIMIT 1
    );
END
$$;

-- Return the owners of a view: the owner of its definition, with whose rights the program runs, and the owner of
-- the relation that users read. They differ if an orchestrator has planned the view of another role.
CREATE OR REPLACE FUNCTION idivm.owners(view_id integer) RETURNS SETOF oid
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT DISTINCT c.relowner
    FROM idivm.views v JOIN pg_class c ON c.oid IN (v.definition, coalesce(v.relation, to_regclass(v.name)))
    WHERE v.id = view_id
$$;
COMMENT ON FUNCTION idivm.owners(integer) IS 'the owners of a view''s definition and of the relation that users read';

-- Return why PostgreSQL would refuse to let the query of a view read its relations. For a relation below a plain
-- view, PostgreSQL checks the rights of the owner of the plain view or, if it is a security_invoker view, of the
-- role that runs the query: in a refresh, the owner of the maintained view.
CREATE OR REPLACE FUNCTION idivm.unreadable(view_id integer) RETURNS text
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    RETURN (
        SELECT format('%s may not read %s%s, which %s; grant the right, or change the view',
                      quote_ident(pg_get_userbyid(a.asked)),
                      CASE WHEN a.hides THEN 'all rows of ' WHEN a.columns = '{}' THEN '' ELSE 'all that is used of ' END,
                      a.relation,
                      CASE WHEN a.through = a.definition THEN 'its query reads' ELSE format('its query reads through %s', a.through) END)
        FROM (
            SELECT r.through, r.relation, r.columns, v.definition, asks.asked,
                   c.relrowsecurity AND NOT coalesce((SELECT o.rolsuper OR o.rolbypassrls FROM pg_roles o WHERE o.oid = asks.asked), false)
                   AND (c.relforcerowsecurity OR NOT pg_has_role(asks.asked, c.relowner, 'USAGE')) AS hides
            FROM idivm.view_reads r
            JOIN idivm.views v ON v.id = r.view
            JOIN pg_class d ON d.oid = v.definition
            JOIN pg_class t ON t.oid = r.through
            JOIN pg_class c ON c.oid = r.relation
            CROSS JOIN LATERAL (
                SELECT t.relowner AS asked WHERE t.oid <> d.oid AND NOT EXISTS (
                    SELECT FROM pg_options_to_table(t.reloptions) o
                    WHERE o.option_name = 'security_invoker' AND o.option_value::boolean)
                UNION
                SELECT o.owner FROM idivm.owners(v.id) AS o (owner)
                WHERE t.oid = d.oid OR EXISTS (
                    SELECT FROM pg_options_to_table(t.reloptions) o
                    WHERE o.option_name = 'security_invoker' AND o.option_value::boolean)) AS asks
            WHERE r.view = view_id
        ) AS a
        WHERE a.hides OR NOT (
            has_table_privilege(a.asked, a.relation, 'SELECT')
            OR CASE WHEN a.columns = '{}' THEN has_any_column_privilege(a.asked, a.relation, 'SELECT')
                    -- Nothing is known about dropped columns.
                    ELSE NOT EXISTS (SELECT FROM unnest(a.columns) AS n
                                     WHERE NOT has_column_privilege(a.asked, a.relation, n, 'SELECT')) END)
        ORDER BY a.relation::text COLLATE "C" LIMIT 1
    );
END
$$;

-- Return why the query of a view may not call a function. PostgreSQL checks the role that runs the query, also
-- below plain views.
CREATE OR REPLACE FUNCTION idivm.uncallable(view_id integer) RETURNS text
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    RETURN (
        SELECT format('%s may not call %s; grant the right, or change the view',
                      quote_ident(pg_get_userbyid(o.owner)), f.oid::regprocedure)
        FROM idivm.views v
        CROSS JOIN LATERAL idivm.owners(v.id) AS o (owner)
        CROSS JOIN LATERAL (
            SELECT v.definition::oid UNION ALL SELECT i.relation FROM idivm.inlined_views i WHERE i.view = v.id
        ) AS own (relation)
        JOIN pg_rewrite r ON r.ev_class = own.relation AND r.rulename = '_RETURN'
        JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
                        AND d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass)
        CROSS JOIN LATERAL (
            SELECT d.refobjid WHERE d.refclassid = 'pg_proc'::regclass
            UNION ALL
            SELECT p.oprcode::oid FROM pg_operator p WHERE d.refclassid = 'pg_operator'::regclass AND p.oid = d.refobjid
        ) AS f (oid)
        WHERE v.id = view_id AND NOT has_function_privilege(o.owner, f.oid, 'EXECUTE')
        ORDER BY f.oid::regprocedure::text COLLATE "C" LIMIT 1
    );
END
$$;

-- Return whether a role that the owner of a view does not trust has replaced a plain view below it. Planning the
-- view again finds out what that plain view now reads and calls.
CREATE OR REPLACE FUNCTION idivm.replaced(view_id integer) RETURNS text
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    RETURN (
        SELECT format('%s, which it reads, was replaced by %s, whom its owner does not trust; plan it again by idivm refresh',
                      i.relation, quote_ident(pg_get_userbyid(c.relowner)))
        FROM idivm.views v
        JOIN pg_class d ON d.oid = v.definition
        JOIN idivm.inlined_views i ON i.view = v.id
        JOIN pg_class c ON c.oid = i.relation AND c.relkind = 'v'
        WHERE v.id = view_id AND NOT idivm.trusts(d.relowner, c.relowner)
          AND i.signature IS DISTINCT FROM idivm.signature(i.relation)
        ORDER BY i.relation LIMIT 1
    );
END
$$;

-- Lock plain views of roles that the owner of a view does not trust until the end of the transaction, so that the
-- result of the checks still holds when they are read. PREPARE locks all relations in the statement, and neither
-- plans the query nor checks rights.
CREATE OR REPLACE FUNCTION idivm.hold_views_below(view_id integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    held record;
    next bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
    changer bigint;
BEGIN
    SELECT v.definition, array_agg(i.relation) AS views INTO held
    FROM idivm.views v
    JOIN pg_class d ON d.oid = v.definition
    JOIN idivm.inlined_views i ON i.view = v.id
    JOIN pg_class c ON c.oid = i.relation AND c.relkind = 'v'
    WHERE v.id = view_id AND NOT idivm.trusts(d.relowner, c.relowner)
    GROUP BY v.definition;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    EXECUTE format('PREPARE idivm_views_below AS TABLE %s', held.definition);
    DEALLOCATE idivm_views_below;
    IF current_setting('transaction_isolation') NOT IN ('repeatable read', 'serializable') THEN
        RETURN;
    END IF;
    -- PostgreSQL uses the current definition of a view, but a query on the catalog sees the snapshot's.
    FOR changer IN
        SELECT r.xmax::text::bigint FROM pg_rewrite r WHERE r.ev_class = ANY (held.views) AND r.xmax <> '0'
    LOOP
        changer := changer + (next & ~4294967295);
        IF changer - next > 2147483648 THEN
            changer := changer - 4294967296;
        END IF;
        IF pg_xact_status(changer::text::xid8) <> 'aborted' THEN
            RAISE EXCEPTION 'a plain view was replaced after this transaction took its snapshot'
                USING ERRCODE = 'serialization_failure', HINT = 'Run the transaction again.';
        END IF;
    END LOOP;
END
$$;

-- Return why a view may not be maintained, or NULL. A view that reads only views of its owner and calls no code of
-- users needs no check: PostgreSQL itself checks the rights to its tables.
CREATE OR REPLACE FUNCTION idivm.looks_forbidden(view_id integer) RETURNS text
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (SELECT coalesce(idivm.distrusted(v.definition, v.types), idivm.replaced(v.id), idivm.unreadable(v.id),
                            idivm.uncallable(v.id))
            FROM idivm.views v WHERE v.id = view_id AND v.types IS NOT NULL);
END
$$;

-- Return the same as looks_forbidden. In C, a session remembers that a view may be maintained until PostgreSQL tells it of
-- a change to roles, rights or definitions.
CREATE OR REPLACE FUNCTION idivm.refusal(view_id integer) RETURNS text
    LANGUAGE sql
    RETURN idivm.looks_forbidden(view_id);

-- Return why a view may not be maintained, or NULL, and lock the plain views that the answer depends on.
CREATE OR REPLACE FUNCTION idivm.forbidden(view_id integer) RETURNS text
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM idivm.hold_views_below(view_id);
    RETURN idivm.refusal(view_id);
END
$$;
COMMENT ON FUNCTION idivm.forbidden(integer) IS 'why a view may not be maintained: what its owner may not read or does not trust';

-- Mark a synchronous view, and the views above it, as stale until a refresh with the necessary rights; writers
-- continue.
CREATE OR REPLACE FUNCTION idivm.leave_behind(view_id integer, reason text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    left_one record;
BEGIN
    FOR left_one IN
        WITH RECURSIVE readers(id) AS (
            SELECT view_id
          UNION
            SELECT v.id FROM readers r JOIN idivm.views v ON r.id IN (SELECT idivm.views_below(v.id))
        )
        UPDATE idivm.views v SET status = 'invalid'
        FROM readers r WHERE v.id = r.id AND v.status = 'ready'
        RETURNING v.id, v.name
    LOOP
        PERFORM idivm.note_error(left_one.id, '42501', reason, '');
        RAISE WARNING '% is not kept up to date any more: %', left_one.name, reason;
    END LOOP;
END
$$;

-- Return whether a role that the owner of a view does not trust may add code to what the view reads: a table, a type
-- or an operator of such a role gets an index with an expression, a cast, or a negator at any time.
CREATE OR REPLACE FUNCTION idivm.may_get_code(view_id integer, captured oid[]) RETURNS boolean
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN EXISTS (
        SELECT
        FROM idivm.views v JOIN pg_class d ON d.oid = v.definition
        CROSS JOIN LATERAL (
            SELECT c.relowner FROM idivm.view_reads r JOIN pg_class c ON c.oid = r.relation WHERE r.view = v.id
            UNION
            SELECT coalesce(t.typowner, o.oprowner)
            FROM idivm.objects_behind(v.definition, captured) AS used
            LEFT JOIN pg_type t ON used.class = 'pg_type'::regclass AND t.oid = used.object
            LEFT JOIN pg_operator o ON used.class = 'pg_operator'::regclass AND o.oid = used.object
            WHERE used.object >= 16384
        ) AS by (owner)
        WHERE v.id = view_id AND by.owner IS NOT NULL AND NOT idivm.trusts(d.relowner, by.owner));
END
$$;
COMMENT ON FUNCTION idivm.may_get_code(integer, oid[]) IS 'whether a role that the owner of a view does not trust may add code to what it reads';

-- Store what a view reads, and whether each refresh must check rights or code of other roles.
CREATE OR REPLACE FUNCTION idivm.note_reads(view_id integer, captured oid[], reads jsonb) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM idivm.view_reads r WHERE r.view = view_id;
    INSERT INTO idivm.view_reads
    SELECT view_id, r.through, r.relation, r.columns
    FROM jsonb_to_recordset(reads) AS r (through oid, relation oid, columns smallint[]);
    UPDATE idivm.views v
    SET types = CASE WHEN EXISTS (SELECT FROM idivm.view_reads r WHERE r.view = v.id AND r.through <> v.definition)
                       OR EXISTS (SELECT FROM idivm.code_behind(v.definition, captured))
                       OR EXISTS (SELECT FROM idivm.view_sources vs
                                  JOIN pg_class s ON s.oid = to_regclass('idivm_def.s' || vs.source)
                                  JOIN pg_class d ON d.oid = v.definition
                                  WHERE vs.view = v.id AND s.relowner <> d.relowner)
                       OR (SELECT count(*) > 1 FROM idivm.owners(v.id))
                       OR idivm.may_get_code(v.id, captured)
                     THEN captured::regtype[] END
    WHERE v.id = view_id;
END
$$;

-- Transfer the objects of a view to the owner of its definition after another role has planned it, and let the
-- owner of the relation that users read, and the roles with grants on it, read the content.
CREATE OR REPLACE FUNCTION idivm.hand_over(view_id integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    statement text;
BEGIN
    FOR statement IN
        SELECT format('ALTER %s %s OWNER TO %s', object.kind, object.name, d.relowner::regrole)
        FROM idivm.views v
        JOIN pg_class d ON d.oid = v.definition
        CROSS JOIN LATERAL (
            SELECT 'FUNCTION', p.oid::regprocedure::text, p.proowner FROM pg_proc p
            WHERE p.pronamespace = 'idivm_state'::regnamespace AND p.proname IN ('refresh_' || v.id, 'content_' || v.id, 'read_' || v.id)
            UNION ALL
            SELECT CASE c.relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END, c.oid::regclass::text, c.relowner FROM pg_class c
            WHERE c.relnamespace = 'idivm_state'::regnamespace AND c.relkind IN ('r', 'v')
              AND c.relname ~ ('_' || v.id || '$')
        ) AS object (kind, name, owner)
        WHERE v.id = view_id AND object.owner <> d.relowner
      UNION ALL
        SELECT format('GRANT SELECT ON %s TO %s WITH GRANT OPTION', coalesce(v.read_from, v.state), c.relowner::regrole)
        FROM idivm.views v JOIN pg_class c ON c.oid = v.relation JOIN pg_class d ON d.oid = v.definition
        WHERE v.id = view_id AND c.relowner <> d.relowner
    LOOP
        EXECUTE statement;
    END LOOP;
    PERFORM idivm.give_table(view_id);
END
$$;

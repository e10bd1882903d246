-- The functions and other objects that PostgreSQL runs for the query of a view.

-- Return the objects of users that a query calls, transitively. Level 0: the program may name the object. Level 1:
-- a function behind an operator, an aggregate or a type. Level 2: an object that these use, found by pg_depend or,
-- for bodies that PostgreSQL stores as text, by the words in the text.
--
-- Built-in objects have no entries in pg_depend, so the search ends there.
CREATE OR REPLACE FUNCTION idivm.objects_called(view_id integer) RETURNS TABLE (class oid, object oid, level integer)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
    SET work_mem = '64kB'
AS $$
DECLARE
    first_unpinned CONSTANT oid := 12000;
    first_user CONSTANT oid := 16384;
    own CONSTANT oid[] := ARRAY(
        SELECT n.oid FROM pg_namespace n
        WHERE n.nspname IN ('idivm', 'idivm_def', 'idivm_feed', 'idivm_load', 'idivm_log', 'idivm_state'));
    followed CONSTANT oid[] := ARRAY[
        'pg_class', 'pg_proc', 'pg_operator', 'pg_type', 'pg_collation', 'pg_ts_config', 'pg_ts_dict',
        'pg_ts_parser', 'pg_ts_template', 'pg_opclass', 'pg_opfamily']::regclass[]::oid[];
BEGIN
    RETURN QUERY
    WITH RECURSIVE used(class, object, part, level) AS (
        (SELECT 'pg_rewrite'::regclass::oid, r.oid, 0, 0
         FROM idivm.views v JOIN pg_rewrite r ON r.ev_class = v.definition
         WHERE v.id = view_id
       UNION ALL
         -- The program also reads the columns of keys.
         SELECT 'pg_class'::regclass::oid, s.relation::oid, c.attnum::integer, 0
         FROM idivm.view_sources vs
         JOIN idivm.sources s ON s.id = vs.source
         JOIN idivm.source_columns c ON c.source = s.id AND c.in_key
         WHERE vs.view = view_id
       UNION ALL
         SELECT 'pg_ts_config'::regclass::oid, c.oid, 0, 2
         FROM idivm.views v, pg_ts_config c JOIN pg_namespace n ON n.oid = c.cfgnamespace
         WHERE v.id = view_id AND n.nspname <> 'pg_catalog'
           -- A cast to regconfig could fail, and a read beside parallel workers may not catch errors.
           AND v.settings ->> 'default_text_search_config' IN (
               concat(quote_ident(n.nspname), '.', quote_ident(c.cfgname)),
               format('"%s"."%s"', replace(n.nspname, '"', '""'), replace(c.cfgname, '"', '""'))))
      UNION
        SELECT next.class, next.object, next.part, greatest(u.level, next.level)
        FROM used u CROSS JOIN LATERAL (
            SELECT d.refclassid, d.refobjid, d.refobjsubid,
                   CASE WHEN u.class IN ('pg_rewrite'::regclass, 'pg_attrdef'::regclass) THEN 0
                        WHEN u.class = 'pg_type'::regclass AND d.refclassid = 'pg_type'::regclass THEN 0
                        WHEN d.refclassid <> 'pg_proc'::regclass THEN 2
                        WHEN u.class IN ('pg_operator'::regclass, 'pg_type'::regclass) THEN 1
                        WHEN EXISTS (SELECT FROM pg_aggregate a WHERE u.class = 'pg_proc'::regclass AND a.aggfnoid = u.object) THEN 1
                        ELSE 2 END
            FROM pg_depend d
            WHERE d.classid = u.class AND d.objid = u.object AND u.class <> 'pg_class'::regclass
              AND d.refclassid = ANY (followed)
          UNION ALL
            SELECT 'pg_rewrite'::regclass, r.oid, 0, 0
            FROM pg_class c JOIN pg_rewrite r ON r.ev_class = c.oid
            WHERE u.class = 'pg_class'::regclass AND c.oid = u.object AND c.relkind = 'v'
              AND c.oid >= first_user AND NOT EXISTS (SELECT FROM idivm.views v WHERE v.relation = c.oid)
          UNION ALL
            SELECT behind.class, behind.object, 0, 0
            FROM pg_attribute a
            CROSS JOIN LATERAL (
                SELECT 'pg_type'::regclass, a.atttypid WHERE a.atttypid >= first_unpinned
              UNION ALL
                SELECT 'pg_collation'::regclass, a.attcollation WHERE a.attcollation >= first_unpinned
              UNION ALL
                SELECT 'pg_attrdef'::regclass, k.oid FROM pg_attrdef k
                WHERE a.attgenerated = 'v' AND k.adrelid = a.attrelid AND k.adnum = a.attnum
            ) AS behind (class, object)
            WHERE u.class = 'pg_class'::regclass AND u.part > 0 AND a.attrelid = u.object AND a.attnum = u.part
          UNION ALL
            SELECT 'pg_constraint'::regclass, k.oid, 0, 2
            FROM pg_constraint k WHERE u.class = 'pg_type'::regclass AND k.contypid = u.object
          UNION ALL
            SELECT 'pg_opclass'::regclass, c.oid, 0, 2
            FROM pg_opclass c WHERE u.class = 'pg_type'::regclass AND c.opcintype = u.object AND c.opcdefault
          UNION ALL
            SELECT 'pg_proc'::regclass, p.amproc::oid, 0, 2
            FROM pg_opclass c JOIN pg_amproc p ON p.amprocfamily = c.opcfamily AND p.amproclefttype = c.opcintype
            WHERE u.class = 'pg_opclass'::regclass AND c.oid = u.object AND p.amproc >= first_unpinned
          UNION ALL
            SELECT 'pg_operator'::regclass, o.amopopr, 0, 2
            FROM pg_opclass c JOIN pg_amop o ON o.amopfamily = c.opcfamily AND o.amoplefttype = c.opcintype
            WHERE u.class = 'pg_opclass'::regclass AND c.oid = u.object AND o.amopopr >= first_unpinned
          UNION ALL
            SELECT named.class, named.object, 0, 2
            FROM pg_proc p
            JOIN pg_language l ON l.oid = p.prolang AND l.lanname NOT IN ('internal', 'c')
            CROSS JOIN LATERAL idivm.names_in(p.prosrc) AS words
            CROSS JOIN LATERAL (
                SELECT 'pg_proc'::regclass, f.oid FROM pg_proc f
                WHERE f.proname = ANY (words) AND f.oid >= first_user
              UNION ALL
                SELECT 'pg_type'::regclass, t.oid FROM pg_type t
                WHERE t.typname = ANY (words) AND t.oid >= first_user AND t.typtype IN ('d', 'e')
              UNION ALL
                SELECT 'pg_operator'::regclass, o.oid FROM pg_operator o
                WHERE o.oid >= first_user AND strpos(p.prosrc, o.oprname) > 0
            ) AS named (class, object)
            WHERE u.class = 'pg_proc'::regclass AND p.oid = u.object AND p.prosqlbody IS NULL
              AND p.pronamespace <> ALL (own)
        ) AS next (class, object, part, level)
        -- idivm's own functions change only with its version, and idivm doctor handles that.
        WHERE CASE next.class
              WHEN 'pg_proc'::regclass THEN (SELECT p.pronamespace <> ALL (own) FROM pg_proc p WHERE p.oid = next.object)
              WHEN 'pg_type'::regclass THEN (SELECT t.typnamespace <> ALL (own) FROM pg_type t WHERE t.oid = next.object)
              ELSE true END
    )
    SELECT u.class, u.object, min(u.level) FROM used u
    WHERE u.class IN ('pg_proc'::regclass, 'pg_operator'::regclass, 'pg_type'::regclass, 'pg_collation'::regclass,
                      'pg_ts_config'::regclass, 'pg_ts_dict'::regclass)
    GROUP BY u.class, u.object;
END
$$;
COMMENT ON FUNCTION idivm.objects_called(integer) IS
    'the functions, operators, types, collations and text search objects of users that the query of a view calls';

-- Return the words of a text as identifiers. Each word may be the name of a function. Characters beyond ASCII are
-- parts of words.
CREATE OR REPLACE FUNCTION idivm.names_in(body text) RETURNS name[]
    LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT array_agg(DISTINCT left(word, 63)::name)
    FROM (
        SELECT lower(word) FROM regexp_split_to_table(body, '[\x01-\x23\x25-\x2f\x3a-\x40\x5b-\x5e\x60\x7b-\x7f]+') AS word
        WHERE word <> '' AND word !~ '^[0-9]'
      UNION ALL
        SELECT replace(quoted[1], '""', '"') FROM regexp_matches(body, '"((?:[^"]|"")+)"', 'g') AS quoted
    ) AS words (word);
END;
COMMENT ON FUNCTION idivm.names_in(text) IS 'the words of a text that may be names of functions';

-- Return the current state of the objects that the query of a view calls. Digests contain names instead of OIDs,
-- so that a restored dump has the same digests.
CREATE OR REPLACE FUNCTION idivm.code_now(view_id integer) RETURNS idivm.view_code
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET quote_all_identifiers = off
    SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    code idivm.view_code;
BEGIN
    code.view := view_id;
    code.place := (SELECT v.definition::oid || ' ' || idivm.cluster_of_session() FROM idivm.views v WHERE v.id = view_id);
    SELECT jsonb_object_agg(o.identity, to_jsonb(ARRAY[o.object::text, o.name] || o.labels)) FILTER (WHERE o.named),
           md5(string_agg(o.facts, E'\n' ORDER BY o.facts COLLATE "C") FILTER (WHERE o.level < 2)),
           md5(string_agg(o.identity || ' ' || o.facts || ' ' || o.body, E'\n' ORDER BY o.identity COLLATE "C"))
    INTO code.names, code.facts, code.bodies
    FROM (
        SELECT c.object, c.level, i.type || ' ' || i.identity AS identity, said.name, said.labels,
               coalesce(said.facts, '') AS facts, 
               concat(said.body, CASE WHEN c.level > 0 THEN said.labels END) AS body,
               c.level = 0 AS named
        FROM idivm.objects_called(view_id) AS c
        CROSS JOIN LATERAL pg_identify_object(c.class, c.object, 0) AS i
        CROSS JOIN LATERAL (
            SELECT p.proname::text, NULL::text[],
                   concat_ws(' ', p.prokind, p.provolatile, p.proisstrict, p.proretset, format_type(p.prorettype, NULL)),
                   concat_ws(E'\n', l.lanname, p.prosrc, p.probin, pg_get_function_sqlbody(p.oid), p.proconfig,
                             CASE WHEN p.prosecdef THEN p.proowner::regrole::text END,
                             pg_get_expr(p.proargdefaults, 0), e.extversion,
                             a.aggkind, a.aggnumdirectargs, a.aggtransfn, a.aggfinalfn, a.aggcombinefn,
                             a.aggfinalextra, a.aggfinalmodify, a.agginitval, a.aggsortop::regoperator,
                             a.aggmtransfn, a.aggminvtransfn, a.aggmfinalfn, a.aggmfinalextra, a.aggminitval,
                             format_type(a.aggtranstype, NULL))
            FROM pg_proc p
            JOIN pg_language l ON l.oid = p.prolang
            LEFT JOIN pg_aggregate a ON a.aggfnoid = p.oid
            -- The code of a C function changes with the version of its extension.
            LEFT JOIN pg_depend d ON l.lanname = 'c' AND d.classid = 'pg_proc'::regclass AND d.objid = p.oid
                                  AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
            LEFT JOIN pg_extension e ON e.oid = d.refobjid
            WHERE c.class = 'pg_proc'::regclass AND p.oid = c.object
          UNION ALL
            SELECT t.typname::text,
                   (SELECT array_agg(n.enumlabel::text ORDER BY n.enumsortorder) FROM pg_enum n WHERE n.enumtypid = t.oid),
                   concat_ws(' ', t.typtype, format_type(nullif(t.typbasetype, 0), t.typtypmod), t.typnotnull,
                             (SELECT string_agg(concat_ws(' ', format_type(k.castsource, NULL), format_type(k.casttarget, NULL),
                                                          k.castfunc::regprocedure, k.castcontext, k.castmethod), ','
                                                ORDER BY format_type(k.castsource, NULL), format_type(k.casttarget, NULL))
                              FROM pg_cast k WHERE t.oid IN (k.castsource, k.casttarget))),
                   (SELECT string_agg(pg_get_constraintdef(k.oid), ' ' ORDER BY k.conname)
                    FROM pg_constraint k WHERE k.contypid = t.oid)
            FROM pg_type t
            WHERE c.class = 'pg_type'::regclass AND t.oid = c.object
          UNION ALL
            SELECT o.oprname::text, NULL, '', '' FROM pg_operator o
            WHERE c.class = 'pg_operator'::regclass AND o.oid = c.object
          UNION ALL
            SELECT o.collname::text, NULL, '', pg_collation_actual_version(o.oid) FROM pg_collation o
            WHERE c.class = 'pg_collation'::regclass AND o.oid = c.object
          UNION ALL
            SELECT f.cfgname::text, NULL, '',
                   (SELECT string_agg(concat_ws(' ', m.maptokentype, m.mapseqno, m.mapdict::regdictionary), ','
                                      ORDER BY m.maptokentype, m.mapseqno)
                    FROM pg_ts_config_map m WHERE m.mapcfg = f.oid)
            FROM pg_ts_config f
            WHERE c.class = 'pg_ts_config'::regclass AND f.oid = c.object
          UNION ALL
            SELECT d.dictname::text, NULL, '', d.dictinitoption FROM pg_ts_dict d
            WHERE c.class = 'pg_ts_dict'::regclass AND d.oid = c.object
        ) AS said (name, labels, facts, body)
    ) AS o;
    RETURN code;
END
$$;
COMMENT ON FUNCTION idivm.code_now(integer) IS 'current state of the objects that the query of a view calls';

-- Return the version of the database's collation if the query compares, sorts or converts text with it.
CREATE OR REPLACE FUNCTION idivm.locale_of(view_id integer) RETURNS text
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    version text := pg_database_collation_actual_version((SELECT d.oid FROM pg_database d WHERE d.datname = current_database()));
BEGIN
    IF version IS NOT NULL AND EXISTS (
        SELECT FROM idivm.views v
        JOIN pg_rewrite r ON r.ev_class = v.definition
                          OR r.ev_class IN (SELECT i.relation FROM idivm.inlined_views i WHERE i.view = view_id)
        WHERE v.id = view_id AND r.ev_action::text ~ ':inputcollid 100 '
    ) THEN
        RETURN version;
    END IF;
    RETURN NULL;
END
$$;

-- Store the state of the called objects from before the content was computed. A view that calls nothing that can
-- change has no row.
CREATE OR REPLACE FUNCTION idivm.note_code(code idivm.view_code) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    code.locale := idivm.locale_of(code.view);
    IF code.bodies IS NULL AND code.locale IS NULL THEN
        DELETE FROM idivm.view_code c WHERE c.view = code.view;
        RETURN;
    END IF;
    INSERT INTO idivm.view_code SELECT code.*
    ON CONFLICT (view) DO UPDATE
    SET place = excluded.place, names = excluded.names, facts = excluded.facts, bodies = excluded.bodies,
        locale = excluded.locale;
END
$$;

-- Return the names and labels in `was` that have another meaning in `now`. Added labels of an enum do not count,
-- nor do OIDs that another cluster or database assigned.
CREATE OR REPLACE FUNCTION idivm.names_lost(was idivm.view_code, now idivm.view_code, OUT object text, OUT words text[])
    RETURNS SETOF record
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT w.key, ARRAY(SELECT jsonb_array_elements_text(w.value - 0))
    FROM jsonb_each(was.names) AS w
    LEFT JOIN jsonb_each(now.names) AS n ON n.key = w.key
    WHERE w.value IS DISTINCT FROM n.value
      AND (n.value IS NULL
           OR was.place = now.place AND w.value -> 0 <> n.value -> 0
           OR (w.value - 0) <> coalesce((
                  SELECT jsonb_agg(e.label ORDER BY e.place) FROM jsonb_array_elements(n.value - 0) WITH ORDINALITY AS e (label, place)
                  WHERE e.place = 1 OR (w.value - 0 - 0) @> e.label), '[]'))
$$;

-- Return how the called objects have changed: in facts that planning relies on, in names, or only in bodies. NULL
-- means unchanged.
CREATE OR REPLACE FUNCTION idivm.code_drift(view_id integer) RETURNS text
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    was idivm.view_code;
    now idivm.view_code;
    version text;
BEGIN
    SELECT * INTO was FROM idivm.view_code c WHERE c.view = view_id;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF was.bodies IS NOT NULL THEN
        now := idivm.code_now(view_id);
        IF was.facts IS DISTINCT FROM now.facts THEN
            RETURN 'facts';
        ELSIF was.names IS DISTINCT FROM now.names AND EXISTS (SELECT FROM idivm.names_lost(was, now)) THEN
            RETURN 'names';
        ELSIF was.bodies IS DISTINCT FROM now.bodies THEN
            RETURN 'bodies';
        END IF;
    END IF;
    IF was.locale IS NOT NULL THEN
        version := pg_database_collation_actual_version((SELECT d.oid FROM pg_database d WHERE d.datname = current_database()));
        IF was.locale IS DISTINCT FROM version THEN
            RETURN 'bodies';
        END IF;
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION idivm.code_drift(integer) IS
    'whether the objects that the query of a view calls have changed: names, facts or bodies';

-- Drift: whether the objects that a view reads still fit its plan.

-- Return whether an index keeps its columns unique at all times. A deferrable key does so at commits alone, and a key
-- WITHOUT OVERLAPS excludes overlapping ranges.
CREATE OR REPLACE FUNCTION idivm.is_plain_key(i pg_index) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    RETURN i.indisunique AND NOT i.indisexclusion AND i.indimmediate AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL;

-- Return whether a captured table has lost its key. A key with nullable columns is not a key.
CREATE OR REPLACE FUNCTION idivm.key_is_gone(source integer) RETURNS boolean
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (SELECT s.keyed AND (
        NOT EXISTS (
            SELECT FROM pg_index i
            WHERE i.indrelid = s.relation AND idivm.is_plain_key(i)
              AND (SELECT array_agg(k ORDER BY k) FROM unnest(i.indkey[:i.indnkeyatts - 1]::smallint[]) AS k)
                  = (SELECT array_agg(c.attnum::smallint ORDER BY c.attnum)
                     FROM idivm.source_columns c WHERE c.source = s.id AND c.in_key))
        OR EXISTS (
            SELECT FROM idivm.source_columns c
            JOIN pg_attribute a ON a.attrelid = s.relation AND a.attnum = c.attnum
            WHERE c.source = s.id AND c.in_key AND NOT a.attnotnull))
    FROM idivm.sources s WHERE s.id = key_is_gone.source);
END
$$;

-- Damage that occurs in long use: disabled capture triggers, tables that a crash emptied, logs from another
-- cluster, views that are never refreshed.

-- Checks of capture ------------------------------------------------------------------------------

-- Return whether a table has the capture triggers of a source in their installed states: statement triggers for
-- ordinary sessions, the row trigger for replica sessions, the TRUNCATE trigger for both. After DISABLE TRIGGER
-- ALL and ENABLE TRIGGER ALL, the last two fire in ordinary sessions only. A partitioned table has no row trigger.
CREATE OR REPLACE FUNCTION idivm.carries_capture(source integer, member regclass) RETURNS boolean
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    prefix text := 'idivm_' || source || '_';
    names name[] := ARRAY[prefix || 'insert', prefix || 'update', prefix || 'delete', prefix || 'truncate', prefix || 'rows'];
BEGIN
    RETURN (SELECT (SELECT count(*) FROM pg_trigger t
                    WHERE t.tgrelid = c.oid AND t.tgenabled::text = substr('OOOAR', array_position(names, t.tgname), 1)
                      -- The owner of the table can create another trigger with the same name.
                      AND t.tgqual IS NULL AND (SELECT p.pronamespace FROM pg_proc p WHERE p.oid = t.tgfoid)
                                               IN ('idivm'::regnamespace, 'idivm_log'::regnamespace))
                   = CASE c.relkind WHEN 'p' THEN 4 ELSE 5 END
            FROM pg_class c WHERE c.oid = member)
        OR coalesce(idivm.is_in_wal(source, member), false);
END
$$;

CREATE OR REPLACE FUNCTION idivm.reads_unlogged(view_id integer) RETURNS boolean
    LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT EXISTS (
        SELECT FROM idivm.view_sources vs
        JOIN idivm.source_members m ON m.source = vs.source
        JOIN pg_class c ON c.oid = m.member
        WHERE vs.view = view_id AND c.relpersistence = 'u');
END;

-- Return whether a captured table has other partitions or inheritance children than at planning.
CREATE OR REPLACE FUNCTION idivm.members_differ(source integer) RETURNS boolean
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM idivm.sources s WHERE s.id = members_differ.source AND EXISTS (
            (SELECT d FROM idivm.descendants(s.relation) d
             EXCEPT SELECT m.member FROM idivm.source_members m WHERE m.source = s.id)
            UNION ALL
            (SELECT m.member FROM idivm.source_members m WHERE m.source = s.id
             EXCEPT SELECT d FROM idivm.descendants(s.relation) d)));
END
$$;

CREATE OR REPLACE VIEW idivm.broken_promises AS
SELECT vs.view, m.member, vs.source
FROM idivm.view_sources vs
JOIN idivm.sources s ON s.id = vs.source
JOIN idivm.source_members m ON m.source = vs.source
WHERE m.member = s.relation AND EXISTS (
          SELECT FROM pg_attribute a
          WHERE a.attrelid = s.relation AND a.attnum = ANY (vs.not_null) AND NOT a.attnotnull)
   OR m.member <> s.relation AND EXISTS (
          SELECT FROM pg_attribute a JOIN pg_attribute b ON b.attrelid = m.member AND b.attname = a.attname
          WHERE a.attrelid = s.relation AND a.attnum = ANY (vs.not_null) AND NOT b.attnotnull)
   -- Since PostgreSQL 18, a NOT NULL constraint may be NOT VALID.
   OR EXISTS (
          SELECT FROM pg_constraint k
          JOIN pg_attribute b ON b.attrelid = k.conrelid AND b.attnum = k.conkey[1]
          JOIN pg_attribute a ON a.attrelid = s.relation AND a.attname = b.attname
          WHERE k.conrelid = m.member AND k.contype = 'n' AND NOT k.convalidated AND a.attnum = ANY (vs.not_null))
   OR vs.keys <> '[]' AND m.member = s.relation AND EXISTS (
          SELECT FROM jsonb_array_elements(vs.keys) k
          WHERE NOT EXISTS (
              SELECT FROM pg_index i
              WHERE i.indrelid = s.relation AND idivm.is_plain_key(i)
                AND to_jsonb(i.indkey[:i.indnkeyatts - 1]::smallint[]) = k));
COMMENT ON VIEW idivm.broken_promises IS 'tables without a key or a NOT NULL that the plan of a view relies on';

-- A table may lose its key, and receive it again or get another one.
CREATE OR REPLACE VIEW idivm.other_keys AS
SELECT v.id AS view, s.id AS source
FROM idivm.views v
CROSS JOIN LATERAL jsonb_array_elements(v.plan -> 'program' -> 'sources') AS p
JOIN idivm.sources s ON s.relation = (p ->> 'oid')::oid
WHERE p -> 'columns' @> '[{"in_key": true}]'
  AND ARRAY(SELECT (c ->> 'attnum')::integer FROM jsonb_array_elements(p -> 'columns') AS c
            WHERE (c ->> 'in_key')::boolean ORDER BY 1)
      <> ARRAY(SELECT k.attnum::integer FROM idivm.source_columns k WHERE k.source = s.id AND k.in_key ORDER BY 1);
COMMENT ON VIEW idivm.other_keys IS 'tables whose changes are captured by another key than the plan of a view relies on';

-- Return a digest of the expression of a generated column that does not depend on names; NULL without an
-- expression.
CREATE OR REPLACE FUNCTION idivm.expression_digest(relation regclass, attnum smallint) RETURNS text
    LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT md5(regexp_replace(d.adbin::text, ':location -?[0-9]+', '', 'g'))
    FROM pg_attribute a JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE a.attrelid = relation AND a.attnum = expression_digest.attnum AND a.attgenerated <> '';
END;

-- SET EXPRESSION rewrites a table without firing a trigger.
CREATE OR REPLACE VIEW idivm.changed_expressions AS
SELECT e.view, e.member, e.attnum, e.in_plan
FROM idivm.view_expressions e
JOIN pg_attribute a ON a.attrelid = e.member AND a.attnum = e.attnum AND NOT a.attisdropped
WHERE idivm.expression_digest(e.member, e.attnum) IS DISTINCT FROM e.digest;
COMMENT ON VIEW idivm.changed_expressions IS
    'generated columns whose expression changed after a view that reads them was computed';

-- Store the digests of generated columns that a view reads, also those in partitions and inheritance children,
-- which may have their own expressions. The plan keeps the digests from its creation.
CREATE OR REPLACE FUNCTION idivm.note_expressions(view_id integer) RETURNS void
    LANGUAGE sql
BEGIN ATOMIC
    INSERT INTO idivm.view_expressions AS e (view, member, attnum, in_plan, digest)
    SELECT r.view, m, b.attnum, false, idivm.expression_digest(m, b.attnum)
    FROM idivm.view_expressions r
    JOIN idivm.view_sources vs ON vs.view = r.view
    JOIN idivm.sources s ON s.id = vs.source AND s.relation = r.member
    JOIN pg_attribute a ON a.attrelid = r.member AND a.attnum = r.attnum
    CROSS JOIN LATERAL idivm.descendants(r.member) m
    JOIN pg_attribute b ON b.attrelid = m AND b.attname = a.attname
    WHERE r.view = view_id AND NOT r.in_plan
    ON CONFLICT (view, member, attnum) DO UPDATE SET digest = excluded.digest
    WHERE e.digest IS DISTINCT FROM excluded.digest;
    DELETE FROM idivm.view_expressions e
    WHERE e.view = view_id AND NOT e.in_plan AND NOT EXISTS (
        SELECT FROM idivm.view_sources vs JOIN idivm.sources s ON s.id = vs.source
        CROSS JOIN LATERAL idivm.descendants(s.relation) m
        WHERE vs.view = view_id AND m = e.member);
END;

-- Return whether a capture object is missing. Dropping a column or a type with CASCADE drops the source view, or
-- the view of the log if the log has a column of that type.
CREATE OR REPLACE FUNCTION idivm.capture_is_broken(source integer) RETURNS boolean
    LANGUAGE sql STABLE
    RETURN to_regclass('idivm_def.s' || source) IS NULL
        OR to_regclass('idivm_log.s' || source) IS NULL
        OR to_regclass('idivm_log.s' || source || '_image') IS NULL
        OR to_regclass('idivm_log.s' || source || '_seq') IS NULL;
COMMENT ON FUNCTION idivm.capture_is_broken(integer) IS
    'whether an object that captures the changes of a table is missing';

-- Return whether a view was computed after the server last emptied unlogged tables. A standby cannot read them.
CREATE OR REPLACE FUNCTION idivm.is_witnessed(view_id integer) RETURNS boolean
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF pg_is_in_recovery() THEN
        -- A standby cannot even plan a query on an unlogged table.
        RETURN true;
    END IF;
    RETURN EXISTS (SELECT FROM idivm.witnesses w WHERE w.view = view_id AND w.since IS NULL);
END
$$;

-- Return whether the objects that a view reads or calls, or the relation that users read, have changed since
-- planning. A view reads few tables, so each is looked up: PostgreSQL would read whole catalogs while they are small.
-- The first refresh of a session plans these statements, so what few views have is looked for only where it may be.
CREATE OR REPLACE FUNCTION idivm.looks_drifted(view_id integer) RETURNS boolean
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    has record;
    used record;
    may_break boolean := false;
    not_valid_exists boolean := current_setting('server_version_num')::integer >= 180000;
BEGIN
    SELECT v.shown IS DISTINCT FROM (SELECT concat_ws(' ', r.xmin, r.ctid) FROM pg_rewrite r
                                     WHERE r.ev_class = v.relation AND r.rulename = '_RETURN') AS moved,
           EXISTS (SELECT FROM idivm.inlined_views i WHERE i.view = view_id) AS plain_views,
           EXISTS (SELECT FROM idivm.view_expressions e WHERE e.view = view_id) AS expressions,
           EXISTS (SELECT FROM idivm.view_code c WHERE c.view = view_id) AS code
    INTO has FROM idivm.views v WHERE v.id = view_id;
    -- A comparison of the relation is slow and locks it.
    IF has.moved AND NOT idivm.is_shown(view_id) OR has.code AND idivm.code_drift(view_id) IS NOT NULL THEN
        RETURN true;
    END IF;
    -- A condition without a query is evaluated without a plan, so conditions with queries are nested.
    IF has.plain_views THEN
        IF EXISTS (SELECT FROM idivm.inlined_views i
                   WHERE i.view = view_id AND i.signature IS DISTINCT FROM idivm.signature(i.relation)) THEN
            RETURN true;
        END IF;
    END IF;
    IF has.expressions THEN
        IF EXISTS (SELECT FROM idivm.changed_expressions c WHERE c.view = view_id) THEN
            RETURN true;
        END IF;
    END IF;
    FOR used IN
        SELECT s.id AS source, s.relation, s.keyed, m.member, vs.not_null, vs.not_null <> '{}' AS is_promised, vs.keys <> '[]' AS has_keys,
               m.member <> s.relation AS is_child, m.member <> s.relation OR c.relhassubclass AS is_tree,
               -- SET LOGGED and SET UNLOGGED write a new file, and a crash may have occurred before.
               c.relpersistence = 'u' OR c.relfilenode <> m.file AS is_rewritten
        FROM idivm.view_sources vs
        JOIN idivm.sources s ON s.id = vs.source
        JOIN idivm.source_members m ON m.source = vs.source
        LEFT JOIN pg_class c ON c.oid = m.member
        WHERE vs.view = view_id
    LOOP
        IF NOT idivm.carries_capture(used.source, used.member) OR used.is_rewritten AND NOT idivm.is_witnessed(view_id)
           OR used.is_tree AND idivm.members_differ(used.source) OR NOT used.is_child AND idivm.capture_is_broken(used.source) THEN
            RETURN true;
        END IF;
        IF used.keyed AND NOT used.is_child THEN
            IF NOT EXISTS (
                SELECT FROM pg_index i
                WHERE i.indrelid = used.relation AND idivm.is_plain_key(i)
                  AND (SELECT count(*) = i.indnkeyatts AND bool_and(k.attnum = ANY (i.indkey[:i.indnkeyatts - 1]::smallint[]))
                       FROM idivm.source_columns k WHERE k.source = used.source AND k.in_key)
            ) THEN
                RETURN true;
            END IF;
        END IF;
        may_break := may_break OR used.has_keys OR used.is_promised AND used.is_child;
        IF used.is_promised AND NOT may_break THEN
            may_break := EXISTS (SELECT FROM pg_attribute a
                                 WHERE a.attrelid = used.relation AND a.attnum = ANY (used.not_null) AND NOT a.attnotnull);
            IF not_valid_exists AND NOT may_break THEN
                may_break := EXISTS (SELECT FROM pg_constraint k
                                     WHERE k.conrelid = used.member AND k.contype = 'n' AND NOT k.convalidated);
            END IF;
        END IF;
    END LOOP;
    IF may_break THEN
        RETURN EXISTS (SELECT FROM idivm.broken_promises b WHERE b.view = view_id);
    END IF;
    RETURN false;
END
$$;

-- Return the relations whose changes may make the view drift. NULL means that the list would be incomplete; 0 in
-- the list stands for functions, types and similar objects.
CREATE OR REPLACE FUNCTION idivm.watched_by(view_id integer) RETURNS oid[]
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF EXISTS (SELECT FROM idivm.inlined_views i WHERE i.view = view_id) THEN
        RETURN NULL;
    END IF;
    RETURN ARRAY(SELECT m.member::oid FROM idivm.view_sources vs
                 JOIN idivm.source_members m ON m.source = vs.source WHERE vs.view = view_id
               UNION ALL
                 SELECT v.relation::oid FROM idivm.views v WHERE v.id = view_id AND v.relation IS NOT NULL
               UNION ALL
                 SELECT 0::oid FROM idivm.view_code c WHERE c.view = view_id);
END
$$;

-- Return the same as looks_drifted, with a plan that is made once in a session, because writers call this after
-- each statement. For each table it checks capture, partitions and inheritance children, the key, and whether a
-- crash has emptied the table.
CREATE OR REPLACE FUNCTION idivm.has_drifted(view_id integer) RETURNS boolean
    LANGUAGE sql
    RETURN idivm.looks_drifted(view_id);
COMMENT ON FUNCTION idivm.has_drifted(integer) IS
    'whether the objects that a view reads have changed since it was planned';

-- Return those of the given views that have drifted.
CREATE OR REPLACE FUNCTION idivm.drifted_among(view_ids integer[]) RETURNS integer[]
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF cardinality(view_ids) = 1 THEN
        RETURN CASE WHEN idivm.looks_drifted(view_ids[1]) THEN view_ids ELSE '{}' END;
    END IF;
    RETURN idivm.drifted_views(view_ids);
END
$$;
COMMENT ON FUNCTION idivm.drifted_among(integer[]) IS
    'those of the given views whose objects have changed since they were planned';

-- Return why a view cannot be used as it is: the objects that it reads have changed, or may not be read.
-- idivm.view_errors holds the reason why its last refresh failed.
CREATE OR REPLACE FUNCTION idivm.trouble(view_id integer) RETURNS text
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    reason text;
BEGIN
    SELECT format('its owner %s may no longer read %s', r.rolname, coalesce(below.relation, s.relation)) INTO reason
    FROM idivm.view_sources vs
    JOIN idivm.sources s ON s.id = vs.source
    JOIN pg_class t ON t.oid = s.relation
    JOIN pg_class definition ON definition.oid = to_regclass('idivm_def.s' || s.id)
    JOIN pg_roles r ON r.oid = definition.relowner
    LEFT JOIN idivm.views below ON below.state = s.relation
    WHERE vs.view = view_id AND NOT has_table_privilege(r.oid, t.oid, 'SELECT') AND EXISTS (
        SELECT FROM idivm.source_columns c
        WHERE c.source = s.id AND has_column_privilege(r.oid, t.oid, c.attnum, 'SELECT') IS NOT TRUE)
    ORDER BY s.id LIMIT 1;
    IF reason IS NOT NULL OR NOT idivm.has_drifted(view_id) THEN
        RETURN reason;
    END IF;
    SELECT coalesce(
        min(format('a column or a type of %s was dropped with CASCADE, and capture of the table with it', used.name))
            FILTER (WHERE idivm.capture_is_broken(used.source)),
        min(format('%s does not carry capture yet, so that rows written to it directly are not noticed', (
            SELECT d FROM idivm.descendants(used.relation) d
            WHERE NOT EXISTS (SELECT FROM idivm.source_members m WHERE m.source = used.source AND m.member = d)
            ORDER BY d LIMIT 1)))
            FILTER (WHERE EXISTS (
                SELECT FROM idivm.descendants(used.relation) d
                WHERE NOT EXISTS (SELECT FROM idivm.source_members m WHERE m.source = used.source AND m.member = d))),
        min(format('a partition or an inheritance child of %s is gone', used.name))
            FILTER (WHERE idivm.members_differ(used.source)),
        min(format(CASE WHEN used.from_wal THEN 'the replica identity of %s or the publication idivm_capture was altered'
                        ELSE 'triggers of capture on %s are missing or disabled' END, used.off)) FILTER (WHERE used.off IS NOT NULL),
        min(format('%s has lost the key by which its rows are told apart', used.name))
            FILTER (WHERE idivm.key_is_gone(used.source)),
        min(format('the unlogged table %s was emptied by a crash', used.name))
            FILTER (WHERE idivm.reads_unlogged(view_id)
                    AND NOT idivm.is_witnessed(view_id)),
        min(format('%s was rewritten, and a crash may have emptied it while it was unlogged', used.rewritten))
            FILTER (WHERE used.rewritten IS NOT NULL AND NOT idivm.is_witnessed(view_id)))
    INTO reason
    FROM (
        SELECT vs.source, s.relation, s.wal_since IS NOT NULL AS from_wal, coalesce(below.relation, s.relation) AS name, (
                   SELECT m.member FROM idivm.source_members m JOIN pg_class c ON c.oid = m.member
                   WHERE m.source = s.id AND NOT idivm.carries_capture(s.id, m.member) ORDER BY m.number LIMIT 1) AS off, (
                   SELECT m.member FROM idivm.source_members m JOIN pg_class c ON c.oid = m.member
                   WHERE m.source = s.id AND c.relfilenode <> m.file ORDER BY m.number LIMIT 1) AS rewritten
        FROM idivm.view_sources vs
        JOIN idivm.sources s ON s.id = vs.source
        JOIN pg_class t ON t.oid = s.relation
        LEFT JOIN idivm.views below ON below.state = s.relation
        WHERE vs.view = view_id
    ) AS used;
    RETURN coalesce(
        reason,
        (SELECT format('%s has lost a key or a NOT NULL that its plan relies on', min(b.member::text))
         FROM idivm.broken_promises b WHERE b.view = view_id HAVING count(*) > 0),
        (SELECT format('%s was replaced or altered', min(i.relation::text)) FROM idivm.inlined_views i
         WHERE i.view = view_id AND i.signature IS DISTINCT FROM idivm.signature(i.relation) HAVING count(*) > 0),
        'something that it reads is no longer what it was planned for');
END
$$;
COMMENT ON FUNCTION idivm.trouble(integer) IS
    'why the next refresh of a view recomputes it, or why it cannot be refreshed; NULL if nothing is wrong';

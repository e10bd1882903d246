-- The relation that users read, and the reports of views that plain SQL cannot refresh.

-- Return whether the relation that users read is the relation that idivm created (`show` in deltascript), or a
-- query that idivm.replace_view or idivm.alter_view installed. Its columns may have been renamed. PostgreSQL 15
-- prints the columns with the name of the table. Nobody can give a table another query.
CREATE OR REPLACE FUNCTION idivm.is_shown(view_id integer) RETURNS boolean
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET quote_all_identifiers = off
    SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    RETURN coalesce((
        SELECT c.relkind = 'r' OR replace(pg_get_viewdef(v.relation), ' s.', ' ') = replace(concat(
            ' SELECT ',
            (SELECT string_agg(concat(quote_ident(d.attname), ' AS ' || nullif(quote_ident(a.attname), quote_ident(d.attname))),
                               E',\n    ' ORDER BY a.attnum)
             FROM pg_attribute a LEFT JOIN pg_attribute d ON d.attrelid = v.definition AND d.attnum = a.attnum
             WHERE a.attrelid = v.relation AND a.attnum > 0),
            E'\n   FROM ', coalesce(v.read_from, v.state), E' s\n  WHERE ',
            CASE WHEN q.oid IS NULL THEN format('(%L::regclass IS NOT NULL);', v.definition)
                 ELSE format('((%L::regclass IS NOT NULL) AND (%L::regclass IS NOT NULL));', v.definition, q.oid::regclass) END),
            ' s.', ' ')
        FROM idivm.views v
        JOIN pg_class c ON c.oid = v.relation
        JOIN pg_class d ON d.oid = v.definition
        JOIN pg_class s ON s.oid = v.state
        LEFT JOIN pg_class q ON q.oid = to_regclass('idivm_def.q' || v.id)
        WHERE v.id = view_id), true)
        OR EXISTS (SELECT FROM idivm.views v JOIN idivm.unplanned_views u ON u.relation = v.relation WHERE v.id = view_id);
END
$$;
COMMENT ON FUNCTION idivm.is_shown(integer) IS
    'whether the relation of a view still shows the maintained content; true if there is none';

-- Store where PostgreSQL keeps the query of the relation of a view, so that most checks need no comparison of text.
CREATE OR REPLACE FUNCTION idivm.note_shown(view_id integer, created regclass) RETURNS void
    LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$
    UPDATE idivm.views v SET shown = idivm.place_of(created) WHERE v.id = view_id
$$;

-- Return why plain SQL cannot refresh a view, or NULL if it can.
CREATE OR REPLACE FUNCTION idivm.obstacle(view_id integer, OUT reason text, OUT remedy text)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v record;
    was idivm.view_code;
    program text;
BEGIN
    SELECT planned.relation::text AS name INTO v FROM idivm.views planned WHERE planned.id = view_id;
    IF NOT idivm.is_shown(view_id) THEN
        reason := format('CREATE OR REPLACE VIEW in plain SQL gave %s another query, so that readers do not see the maintained content', v.name);
        remedy := format('Run idivm doctor to show the maintained content again, or drop %s and create it by idivm with its new query.', v.name);
        RETURN;
    END IF;
    SELECT * INTO was FROM idivm.view_code c WHERE c.view = view_id;
    IF was.names IS NULL THEN
        RETURN;
    END IF;
    program := (SELECT string_agg(p.prosrc, ' ') FROM pg_proc p
                WHERE p.pronamespace = 'idivm_state'::regnamespace AND p.proname IN ('refresh_' || view_id, 'content_' || view_id));
    -- A program that does not contain a renamed name still computes the correct rows.
    SELECT format('%s cannot be refreshed, because %s was renamed, moved or altered', v.name,
                  string_agg(lost.object, ', ' ORDER BY lost.object COLLATE "C")),
           format('Run idivm refresh %s, which plans the view again.', v.name)
    INTO reason, remedy
    FROM idivm.names_lost(was, idivm.code_now(view_id)) AS lost
    WHERE EXISTS (
        SELECT FROM unnest(lost.words) AS word
        WHERE CASE WHEN word ~ '^[a-z_][a-z0-9_]*$' THEN word = ANY (idivm.names_in(program)) ELSE strpos(program, word) > 0 END)
    HAVING count(*) > 0;
END
$$;
COMMENT ON FUNCTION idivm.obstacle(integer) IS 'why a view cannot be refreshed in plain SQL, and what to do';

-- Report why plain SQL cannot refresh a view. The statement of a writer succeeds, with a warning the first time.
CREATE OR REPLACE FUNCTION idivm.give_up(view_id integer, by_writer boolean, reason text, remedy text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT by_writer THEN
        RAISE EXCEPTION USING MESSAGE = reason, HINT = remedy, ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    UPDATE idivm.views v SET status = 'invalid' WHERE v.id = view_id AND v.status = 'ready';
    INSERT INTO idivm.view_errors AS e (view, at, sqlstate, message)
    VALUES (view_id, clock_timestamp(), '55000', reason || '. ' || remedy)
    ON CONFLICT (view) DO UPDATE SET at = excluded.at, sqlstate = excluded.sqlstate, message = excluded.message
    WHERE e.message <> excluded.message;
    IF FOUND THEN
        RAISE WARNING '%', reason USING HINT = remedy;
    END IF;
END
$$;
COMMENT ON FUNCTION idivm.give_up(integer, boolean, text, text) IS
    'reports that a view cannot be refreshed in plain SQL: an error for a refresh, a warning for a writer';

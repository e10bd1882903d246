-- Which refreshes belong together, and which have to wait: refresh groups and gates.
--
-- A group is the views of one owner with the same option refresh_group. Whoever refreshes one of them refreshes all, in
-- one transaction, and if one fails, none changes: readers always see one cut.
--
-- A gate is a table whose writers say when a batch in it is complete. A refresh reads tables as they are, so it cannot
-- apply what was committed up to some earlier moment alone. Instead, a view with gates waits while its tables hold
-- anything committed later than the last complete batch, and while their last batches differ.

-- Return the members of the group of a view, with the view, or nothing for a view without a group.
CREATE OR REPLACE FUNCTION idivm.mates(view_id integer) RETURNS SETOF integer
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT mate.id
    FROM idivm.views v JOIN pg_class c ON c.oid = v.relation
    JOIN idivm.views mate ON mate.options ? 'refresh_group' AND mate.options ->> 'refresh_group' = v.options ->> 'refresh_group'
    JOIN pg_class other ON other.oid = mate.relation AND other.relowner = c.relowner
    WHERE v.id = view_id AND v.options ->> 'refresh_group' <> '' AND mate.status <> 'building'
$$;
COMMENT ON FUNCTION idivm.mates(integer) IS 'the members of the refresh group of a view';

-- Return views with all that has to be refreshed together with them, apart from views that are only read.
CREATE OR REPLACE FUNCTION idivm.with_groups(view_ids integer[]) RETURNS integer[]
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    added integer[];
BEGIN
    IF NOT EXISTS (SELECT FROM idivm.views v WHERE v.options ? 'refresh_group') THEN
        RETURN view_ids;
    END IF;
    LOOP
        added := ARRAY(SELECT DISTINCT mate FROM idivm.refresh_order(view_ids) AS id CROSS JOIN LATERAL idivm.mates(id) AS mate
                       WHERE mate <> ALL (view_ids));
        IF added = '{}' THEN
            RETURN view_ids;
        END IF;
        view_ids := view_ids || added;
    END LOOP;
END
$$;
COMMENT ON FUNCTION idivm.with_groups(integer[]) IS 'views with the members of their refresh groups';

-- Return whether a view is paused, or a member of its group is: the others would no longer be one cut with it.
CREATE OR REPLACE FUNCTION idivm.is_paused(v idivm.views) RETURNS boolean
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN v.paused_mode IS NOT NULL OR v.options ? 'refresh_group' AND EXISTS (
        SELECT FROM idivm.mates(v.id) AS mate JOIN idivm.views other ON other.id = mate WHERE other.paused_mode IS NOT NULL);
END
$$;
COMMENT ON FUNCTION idivm.is_paused(idivm.views) IS 'whether a view, or a member of its refresh group, is paused';

-- Return the tables that the option gate of a view names, as far as the view reads them. A name is compared with the
-- tables of the view, so that nobody's rights and search_path matter.
CREATE OR REPLACE FUNCTION idivm.gate_sources(view_id integer) RETURNS TABLE (name text, source integer, relation oid)
    LANGUAGE sql STABLE ROWS 2 SET search_path = pg_catalog, pg_temp
AS $$
    SELECT g.name, s.id, s.relation
    FROM idivm.views v
    CROSS JOIN LATERAL (SELECT trim(part) FROM regexp_split_to_table(v.options ->> 'gate', ',') AS part) AS g (name)
    LEFT JOIN LATERAL (
        SELECT s.id, s.relation
        FROM idivm.view_sources vs JOIN idivm.sources s ON s.id = vs.source
        JOIN pg_class c ON c.oid = s.relation JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE vs.view = v.id AND n.nspname <> 'idivm_state' AND (
            g.name IN (c.relname, quote_ident(c.relname), n.nspname || '.' || c.relname, format('%I.%I', n.nspname, c.relname))
            OR lower(g.name) IN (c.relname, n.nspname || '.' || c.relname))
        ORDER BY s.id LIMIT 1
    ) AS s ON true
    WHERE v.id = view_id AND g.name <> ''
$$;
COMMENT ON FUNCTION idivm.gate_sources(integer) IS 'the tables whose complete batches a view waits for';

-- Return what the gate of a view waits for, or NULL if the gate is open in this snapshot.
CREATE OR REPLACE FUNCTION idivm.gate_wait(view_id integer) RETURNS text
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    gate record;
    reasons text[] := '{}';
    places text[] := '{}';
    batches text[] := '{}';
BEGIN
    FOR gate IN
        SELECT gs.name, gs.source, g.batch, g.cut
        FROM idivm.gate_sources(view_id) AS gs
        LEFT JOIN idivm.gates g ON g.source = gs.relation AND g.cluster = idivm.cluster_of_session()
                               AND pg_snapshot_xmax((g.cut).snapshot) <= pg_snapshot_xmax(pg_current_snapshot())
    LOOP
        IF gate.source IS NULL THEN
            reasons := reasons || format('the view reads no table %s', gate.name);
        ELSIF gate.batch IS NULL THEN
            reasons := reasons || format('%s has completed no batch', gate.name);
        ELSE
            batches := batches || gate.batch;
            places := places || format('%s is at %s', gate.name, gate.batch);
            IF idivm.capture_is_broken(gate.source) THEN
                reasons := reasons || format('the capture of %s is broken', gate.name);
            ELSIF idivm.has_any(gate.source, gate.cut) THEN
                reasons := reasons || format('%s has changes since %s', gate.name, gate.batch);
            END IF;
        END IF;
    END LOOP;
    IF (SELECT count(DISTINCT b) FROM unnest(batches) AS b) > 1 THEN
        reasons := places || reasons;
    END IF;
    RETURN nullif(array_to_string(reasons, ', '), '');
END
$$;
COMMENT ON FUNCTION idivm.gate_wait(integer) IS 'what the gate of a view waits for, or NULL if it is open';

-- Return what a refresh of a view waits for: its own gate, and those of the members of its group.
CREATE OR REPLACE FUNCTION idivm.waits_for(view_id integer) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT string_agg(DISTINCT closed.reason, ', ' ORDER BY closed.reason)
    FROM (SELECT v.id FROM idivm.views v WHERE v.id = view_id UNION SELECT idivm.mates(view_id)) AS m
    JOIN idivm.views v ON v.id = m.id AND v.options ? 'gate'
    CROSS JOIN LATERAL (SELECT idivm.gate_wait(v.id)) AS closed (reason)
$$;
COMMENT ON FUNCTION idivm.waits_for(integer) IS 'what the gates of a view and of its refresh group wait for, or NULL';

-- Return those of the views that may not be refreshed now.
CREATE OR REPLACE FUNCTION idivm.held_views(view_ids integer[]) RETURNS integer[]
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    RETURN (SELECT coalesce(array_agg(DISTINCT held.id), '{}')
            FROM idivm.views v
            CROSS JOIN LATERAL (SELECT v.id UNION ALL SELECT idivm.mates(v.id)) AS held (id)
            WHERE v.id = ANY (view_ids) AND v.options ? 'gate' AND idivm.gate_wait(v.id) IS NOT NULL);
END
$$;
COMMENT ON FUNCTION idivm.held_views(integer[]) IS 'those of the given views, with their groups, whose gates are closed';

-- Refuse a gate of tables that the view does not read itself: what a view below has taken from them is not known.
CREATE OR REPLACE FUNCTION idivm.check_gate(view_id integer) RETURNS void
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    missing text := (SELECT string_agg(gs.name, ', ') FROM idivm.gate_sources(view_id) AS gs WHERE gs.source IS NULL);
BEGIN
    IF missing IS NOT NULL THEN
        RAISE invalid_parameter_value USING
            MESSAGE = format('the gate of %s names %s, which the view does not read', idivm.names_of(ARRAY[view_id]), missing),
            HINT = 'Name tables of its query; if it reads another maintained view, give the gate to that view.';
    END IF;
END
$$;
COMMENT ON FUNCTION idivm.check_gate(integer) IS 'refuses a gate of tables that the view does not read';

-- Refuse views of groups and with gates that writers keep up to date, because an eager or on_commit view reads them.
CREATE OR REPLACE FUNCTION idivm.refuse_synchronous_cut() RETURNS void
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    name text;
BEGIN
    PERFORM idivm.refuse_wal_modes();
    IF NOT EXISTS (SELECT FROM idivm.views v WHERE v.options ? 'refresh_group')
       AND NOT EXISTS (SELECT FROM idivm.views v WHERE v.options ? 'gate') THEN
        RETURN;
    END IF;
    -- With the views that are being created, unlike idivm.synchronous_views.
    SELECT v.relation::text INTO name
    FROM idivm.refresh_order(ARRAY(SELECT v.id FROM idivm.views v WHERE v.maintain IN ('eager', 'on_commit') AND v.read_from IS NULL)) AS id
    JOIN idivm.views v USING (id)
    WHERE v.options ->> 'refresh_group' <> '' OR v.options ->> 'gate' <> '' ORDER BY v.id LIMIT 1;
    IF name IS NOT NULL THEN
        RAISE feature_not_supported USING
            MESSAGE = format('%s has a refresh_group or a gate and waits for refreshes, so that no eager or on_commit view can read it', name),
            HINT = 'Make the view that reads it deferred, or set refresh_group and gate to ''''.';
    END IF;
END
$$;

-- Only the roles that may write a table say that a batch in it is complete.
CREATE OR REPLACE FUNCTION idivm.check_gate_row() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    source regclass := CASE WHEN tg_op = 'DELETE' THEN old.source ELSE new.source END;
BEGIN
    IF NOT (has_table_privilege(source, 'INSERT, UPDATE, DELETE, TRUNCATE') OR has_any_column_privilege(source, 'INSERT, UPDATE'))
       AND NOT idivm.may_change_catalog() THEN
        RAISE insufficient_privilege USING
            MESSAGE = format('the role %s may not write %s, and so cannot complete a batch of it', current_user, source);
    END IF;
    IF tg_op = 'DELETE' THEN
        RETURN old;
    END IF;
    IF NOT idivm.may_change_catalog() THEN
        new.cluster := 0;
        new.role := current_user;
    END IF;
    RETURN new;
END
$$;

CREATE OR REPLACE TRIGGER a_check_writer BEFORE INSERT OR UPDATE OR DELETE ON idivm.gates
    FOR EACH ROW EXECUTE FUNCTION idivm.check_gate_row();

-- A cut is what this transaction sees and has written. Nobody can give another one.
CREATE OR REPLACE FUNCTION idivm.cut_gate() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF tg_op = 'INSERT' AND new.cluster <> 0 THEN
        -- A dump is restored. Its cut means nothing here, and must not become another one.
        RETURN new;
    END IF;
    new.cut := ROW(pg_current_snapshot(), pg_current_xact_id(),
                   (SELECT jsonb_build_object(s.id, 9223372036854775807) FROM idivm.sources s WHERE s.relation = new.source), NULL)::idivm.watermark;
    new.cluster := idivm.cluster();
    new.at := clock_timestamp();
    RETURN new;
END
$$;

CREATE OR REPLACE TRIGGER b_cut BEFORE INSERT OR UPDATE ON idivm.gates
    FOR EACH ROW EXECUTE FUNCTION idivm.cut_gate();

CREATE OR REPLACE FUNCTION idivm.gate(source regclass, batch text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF batch IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = format('a batch of %s needs a name', source);
    END IF;
    INSERT INTO idivm.gates AS g (source, batch, cut, cluster) VALUES (gate.source, gate.batch, ROW(NULL, NULL, NULL, NULL), 0)
    ON CONFLICT ON CONSTRAINT gates_pkey DO UPDATE SET batch = excluded.batch, role = excluded.role;
END
$$;
COMMENT ON FUNCTION idivm.gate(regclass, text) IS
    'says that a batch of changes of a table is complete with this transaction; views with this gate wait for it';

-- Return what a view waits for if it has anything to do. For roles that may refresh views, which do not read logs.
CREATE OR REPLACE FUNCTION idivm.status_of_gate(view_id integer) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN CASE WHEN EXISTS (SELECT FROM idivm.views v WHERE v.id = view_id AND v.options ?| '{refresh_group,gate}')
                     AND idivm.has_pending(view_id) THEN idivm.waits_for(view_id) END;
END
$$;
COMMENT ON FUNCTION idivm.status_of_gate(integer) IS 'what a view with pending changes waits for, or NULL';

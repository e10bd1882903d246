-- Most views read no view: that is found out without a look at each of the others.

-- As before, but what reads a view by its name is looked for only where a view can do that.
CREATE OR REPLACE FUNCTION idivm.views_below(view_id integer) RETURNS SETOF integer
    LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT lower_view.id
    FROM idivm.view_sources vs
    JOIN idivm.sources s ON s.id = vs.source
    JOIN idivm.views lower_view ON lower_view.state = s.relation
    WHERE vs.view = view_id
  UNION ALL
    SELECT lower_view.id
    FROM (SELECT v.id, v.definition FROM idivm.views v WHERE v.id = view_id AND v.moving OFFSET 0) AS v
    CROSS JOIN LATERAL (
        SELECT below.id
        FROM pg_rewrite r
        JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid AND d.refclassid = 'pg_class'::regclass
        JOIN idivm.views below ON below.relation = d.refobjid
        JOIN pg_class c ON c.oid = below.state AND c.relkind = 'v'
        WHERE r.ev_class = v.definition
           OR r.ev_class IN (SELECT i.relation FROM idivm.inlined_views i WHERE i.view = v.id)
        OFFSET 0
    ) AS lower_view;
END;

-- Refreshes one view that reads no view and that no view reads, in a transaction that sees what is
-- committed: one query says all that `refresh_views` asks about the order of views, about kept ones, their
-- logs and their tables. Of any other view it says NULL, having done nothing but to lock it.
CREATE FUNCTION idivm.refresh_alone(view_id integer) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    one record;
    source integer;
    due boolean;
BEGIN
    LOOP
        SELECT v.status = 'invalid' AS anew, w AS watermark, reads.tables, reads.logged
        INTO one
        FROM idivm.views v
        JOIN idivm.watermarks w ON w.view = v.id
        CROSS JOIN LATERAL (
            SELECT string_agg(s.relation::text, ', ' ORDER BY s.relation) AS tables,
                   array_agg(s.id ORDER BY log.bytes DESC) FILTER (WHERE log.bytes IS DISTINCT FROM 0) AS logged,
                   bool_or(EXISTS (SELECT FROM idivm.views below WHERE below.state = s.relation)) AS is_above
            FROM idivm.view_sources vs
            JOIN idivm.sources s ON s.id = vs.source
            CROSS JOIN LATERAL (
                SELECT pg_relation_size(to_regclass('idivm_log.s' || s.id || '_a'))
                       + pg_relation_size(to_regclass('idivm_log.s' || s.id || '_b'))
                OFFSET 0
            ) AS log (bytes)
            WHERE vs.view = v.id
        ) AS reads
        WHERE v.id = view_id AND v.maintain = 'deferred' AND NOT v.moving AND NOT reads.is_above
          AND NOT EXISTS (SELECT FROM idivm.sources above WHERE above.relation = v.state);
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
        -- Who waited looks again.
        EXIT WHEN NOT idivm.lock_apart(ARRAY[view_id], '{}');
    END LOOP;
    due := one.anew;
    IF NOT due AND one.logged IS NOT NULL THEN
        FOREACH source IN ARRAY one.logged LOOP
            due := idivm.has_any(source, (one.watermark).mark);
            EXIT WHEN due;
        END LOOP;
    END IF;
    IF NOT (due OR idivm.is_foreign(one.watermark) OR idivm.has_drifted(view_id)) THEN
        RETURN 0;
    END IF;
    EXECUTE 'LOCK TABLE ' || one.tables || ' IN SHARE MODE';
    RETURN coalesce(idivm.bring_up(view_id, false), 0);
END
$$;
COMMENT ON FUNCTION idivm.refresh_alone(integer) IS
    'refreshes a view that reads tables alone and is read by no view, or says NULL';
REVOKE EXECUTE ON FUNCTION idivm.refresh_alone(integer) FROM PUBLIC;

-- As before, but for the most usual of refreshes.
CREATE OR REPLACE FUNCTION idivm.refresh_views(view_ids integer[])
    RETURNS TABLE (view_id integer, changed bigint, seconds double precision)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    snapshot_is_fixed boolean := current_setting('transaction_isolation') IN ('repeatable read', 'serializable');
    started timestamptz := clock_timestamp();
    ordered integer[];
    kept integer[];
    behind boolean;
    one_cut boolean;
    tables text;
BEGIN
    IF NOT snapshot_is_fixed AND cardinality(view_ids) = 1 THEN
        view_id := view_ids[1];
        changed := idivm.refresh_alone(view_id);
        IF changed IS NOT NULL THEN
            seconds := extract(epoch FROM clock_timestamp() - started);
            RETURN NEXT;
            RETURN;
        END IF;
    END IF;
    ordered := ARRAY(SELECT id FROM idivm.refresh_order(view_ids) AS id);
    kept := ARRAY(SELECT id FROM idivm.kept_views() AS id);
    IF idivm.lock_apart(ordered, kept) THEN
        ordered := ARRAY(SELECT id FROM idivm.refresh_order(view_ids) AS id);
        kept := ARRAY(SELECT id FROM idivm.kept_views() AS id);
    END IF;
    IF snapshot_is_fixed THEN
        PERFORM idivm.refuse_recycled_log(ordered);
    END IF;
    behind := kept && ordered AND idivm.kept_are_behind(ordered);
    IF behind THEN
        -- What is mended below is to reach the kept views above.
        ordered := ARRAY(SELECT id FROM idivm.refresh_order(view_ids || kept) AS id);
    END IF;
    one_cut := snapshot_is_fixed AND NOT behind;

    FOREACH view_id IN ARRAY ordered LOOP
        started := clock_timestamp();
        changed := 0;
        IF behind OR view_id <> ALL (kept) THEN
            IF NOT one_cut AND idivm.is_due(view_id) THEN
                IF NOT snapshot_is_fixed THEN
                    -- Each statement below would see a later state: hold the writers of all tables
                    -- until this transaction ends, so that the group is one cut and no change is
                    -- both in a state and still pending.
                    SELECT string_agg(base.relation::text, ', ' ORDER BY base.relation) INTO tables
                    FROM (SELECT DISTINCT s.relation
                          FROM idivm.view_sources vs
                          JOIN idivm.sources s ON s.id = vs.source
                          WHERE vs.view = ANY (ordered) AND vs.view <> ALL (kept)
                            AND NOT EXISTS (SELECT FROM idivm.views lower_view WHERE lower_view.state = s.relation)) AS base;
                    IF tables IS NOT NULL THEN
                        EXECUTE 'LOCK TABLE ' || tables || ' IN SHARE MODE';
                    END IF;
                END IF;
                IF kept && ordered THEN
                    PERFORM pg_advisory_xact_lock(idivm.lock_class(), id)
                    FROM (SELECT id FROM unnest(kept) AS id WHERE id = ANY (ordered) ORDER BY id) AS kept_ones;
                END IF;
                one_cut := true;
            END IF;
            IF one_cut THEN
                changed := coalesce(idivm.bring_up(view_id, false), 0);
            END IF;
        END IF;
        seconds := extract(epoch FROM clock_timestamp() - started);
        RETURN NEXT;
    END LOOP;
END
$$;

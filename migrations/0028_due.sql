-- What stands around a small refresh takes longer than its program: so a view is asked with one query
-- whether it is due, its logs without parsing their functions' names, and tables are locked together.

CREATE PROCEDURE idivm.plain_due()
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $plain$
BEGIN
    CREATE OR REPLACE FUNCTION idivm.has_any(source integer, since idivm.watermark) RETURNS boolean
        LANGUAGE plpgsql
    AS $$
    DECLARE
        due boolean;
    BEGIN
        IF pg_catalog.to_regproc(pg_catalog.format('idivm_log.%I', 's' || source || '_any')) IS NULL THEN
            -- A source from before every one had it.
            PERFORM idivm.create_due(source);
        END IF;
        EXECUTE pg_catalog.format('SELECT idivm_log.%I($1)', 's' || source || '_any') INTO due USING since;
        RETURN due;
    END
    $$;
    COMMENT ON FUNCTION idivm.has_any(integer, idivm.watermark) IS
        'whether the log of a source holds changes that are pending after a watermark';
    REVOKE EXECUTE ON FUNCTION idivm.has_any(integer, idivm.watermark) FROM PUBLIC;
END
$plain$;
CALL idivm.plain_due();

-- As before, but such that PostgreSQL puts it in the place of its calls.
CREATE OR REPLACE FUNCTION idivm.last_page(relation regclass) RETURNS tid
    LANGUAGE sql
    RETURN pg_catalog.format(
        '(%s,0)',
        greatest(pg_catalog.pg_relation_size(relation) / pg_catalog.current_setting('block_size')::integer - 1, 0)
    )::tid;

-- As before, in one query.
CREATE OR REPLACE FUNCTION idivm.is_due(view_id integer) RETURNS boolean
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    one record;
BEGIN
    FOR one IN
        SELECT v.moving OR v.status = 'invalid' AS anew, w AS watermark, vs.source,
               pg_relation_size(to_regclass('idivm_log.s' || vs.source || '_a'))
                   + pg_relation_size(to_regclass('idivm_log.s' || vs.source || '_b')) AS bytes
        FROM idivm.views v LEFT JOIN idivm.watermarks w ON w.view = v.id
             LEFT JOIN idivm.view_sources vs ON vs.view = v.id
        WHERE v.id = view_id
        ORDER BY bytes DESC NULLS FIRST
    LOOP
        IF one.anew THEN
            RETURN true;
        END IF;
        EXIT WHEN one.bytes = 0 OR one.source IS NULL;
        IF idivm.has_any(one.source, (one.watermark).mark) THEN
            RETURN true;
        END IF;
    END LOOP;
    IF NOT FOUND THEN
        -- It has gone.
        RETURN false;
    END IF;
    RETURN idivm.is_foreign(one.watermark) OR idivm.has_drifted(view_id);
END
$$;

-- As before, with one statement that locks, and none about kept views where there are none.
CREATE OR REPLACE FUNCTION idivm.refresh_views(view_ids integer[])
    RETURNS TABLE (view_id integer, changed bigint, seconds double precision)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    ordered integer[] := ARRAY(SELECT id FROM idivm.refresh_order(view_ids) AS id);
    kept integer[] := ARRAY(SELECT id FROM idivm.kept_views() AS id);
    behind boolean;
    snapshot_is_fixed boolean := current_setting('transaction_isolation') IN ('repeatable read', 'serializable');
    one_cut boolean;
    started timestamptz;
    tables text;
BEGIN
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

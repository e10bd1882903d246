-- What stands around programs: what they take for granted, and what it costs to look.

-- What plans take for granted of the tables beside the key that rows are told apart by: columns
-- without NULLs and further keys. Who drops such a constraint is not held up; the views are planned anew.

ALTER TABLE idivm.view_sources
    ADD COLUMN not_null smallint[] NOT NULL DEFAULT '{}',
    ADD COLUMN keys jsonb NOT NULL DEFAULT '[]';
COMMENT ON COLUMN idivm.view_sources.not_null IS 'the columns that the plan takes for free of NULLs';
COMMENT ON COLUMN idivm.view_sources.keys IS 'keys beside the captured one that the plan takes for granted, as numbers of columns in the order of an index';

-- The plans that there are took what the tables had.
UPDATE idivm.view_sources vs SET
    not_null = ARRAY(
        SELECT a.attnum FROM idivm.sources s
        JOIN pg_attribute a ON a.attrelid = s.relation
        JOIN idivm.source_columns c ON c.source = s.id AND c.attnum = a.attnum
        WHERE s.id = vs.source AND a.attnotnull
          AND NOT EXISTS (
              SELECT FROM idivm.source_members m JOIN pg_attribute b ON b.attrelid = m.member
              WHERE m.source = s.id AND b.attname = a.attname AND NOT b.attnotnull)
          AND NOT EXISTS (
              SELECT FROM idivm.source_members m JOIN pg_constraint k ON k.conrelid = m.member
              WHERE m.source = s.id AND k.contype = 'n' AND NOT k.convalidated)
        ORDER BY a.attnum),
    keys = coalesce((
        SELECT jsonb_agg(k.columns)
        FROM idivm.sources s
        JOIN pg_index i ON i.indrelid = s.relation
        CROSS JOIN LATERAL (SELECT to_jsonb(i.indkey[:i.indnkeyatts - 1]::smallint[]) AS columns) k
        WHERE s.id = vs.source AND i.indisunique AND i.indimmediate AND i.indisvalid
          AND i.indpred IS NULL AND i.indexprs IS NULL
          AND NOT EXISTS (
              SELECT FROM unnest(i.indkey[:i.indnkeyatts - 1]::smallint[]) AS n
              WHERE n NOT IN (SELECT c.attnum FROM idivm.source_columns c WHERE c.source = s.id))
    ), '[]')
WHERE vs.source NOT IN (
    SELECT s.id FROM idivm.sources s JOIN idivm.views v ON v.state = s.relation);

CREATE VIEW idivm.broken_promises AS
SELECT vs.view, m.member
FROM idivm.view_sources vs
JOIN idivm.sources s ON s.id = vs.source
JOIN idivm.source_members m ON m.source = vs.source
WHERE EXISTS (
          SELECT FROM pg_attribute a
          JOIN pg_attribute b ON b.attrelid = m.member AND b.attname = a.attname
          WHERE a.attrelid = s.relation AND a.attnum = ANY (vs.not_null)
            AND (NOT b.attnotnull OR EXISTS (
                SELECT FROM pg_constraint k
                WHERE k.conrelid = m.member AND k.contype = 'n' AND NOT k.convalidated
                  AND k.conkey = ARRAY[b.attnum])))
   OR vs.keys <> '[]' AND m.member = s.relation AND EXISTS (
          SELECT FROM jsonb_array_elements(vs.keys) k
          WHERE NOT EXISTS (
              SELECT FROM pg_index i
              WHERE i.indrelid = s.relation AND i.indisunique AND i.indimmediate AND i.indisvalid
                AND i.indpred IS NULL AND i.indexprs IS NULL
                AND to_jsonb(i.indkey[:i.indnkeyatts - 1]::smallint[]) = k));
COMMENT ON VIEW idivm.broken_promises IS 'tables that have lost a key or a NOT NULL that the plan of a view relies on';

-- As before; a key whose columns may be NULL is none.
CREATE OR REPLACE FUNCTION idivm.key_is_gone(source integer) RETURNS boolean
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (SELECT s.keyed AND (
        NOT EXISTS (
            SELECT FROM pg_index i
            WHERE i.indrelid = s.relation AND i.indisunique AND i.indisvalid
              AND i.indpred IS NULL AND i.indexprs IS NULL
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

-- Whether what a view reads is no longer what it was planned for: as before in has_drifted, and
-- whether a table has broken a promise.
CREATE FUNCTION idivm.looks_drifted(view_id integer) RETURNS boolean
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM idivm.view_sources vs
        JOIN idivm.sources s ON s.id = vs.source
        JOIN idivm.source_members m ON m.source = vs.source
        LEFT JOIN pg_class c ON c.oid = m.member
        WHERE vs.view = view_id AND (
            c.oid IS NOT NULL
            AND (SELECT count(*) FROM pg_trigger t
                 WHERE t.tgrelid = m.member AND t.tgenabled = 'A'
                   AND t.tgname IN ('idivm_' || m.source || '_insert', 'idivm_' || m.source || '_update',
                                    'idivm_' || m.source || '_delete', 'idivm_' || m.source || '_truncate')) <> 4
            OR (m.member <> s.relation OR c.relhassubclass) AND idivm.members_differ(s.id)
            OR m.member = s.relation AND s.keyed AND NOT EXISTS (
                SELECT FROM pg_index i
                WHERE i.indrelid = s.relation AND i.indisunique AND i.indisvalid
                  AND i.indpred IS NULL AND i.indexprs IS NULL
                  AND (SELECT count(*) FROM idivm.source_columns k WHERE k.source = s.id AND k.in_key) = i.indnkeyatts
                  AND NOT EXISTS (
                      SELECT FROM idivm.source_columns k
                      WHERE k.source = s.id AND k.in_key AND k.attnum <> ALL (i.indkey[:i.indnkeyatts - 1]::smallint[])))
            OR c.relpersistence = 'u' AND NOT EXISTS (SELECT FROM idivm.witnesses w WHERE w.view = view_id))
    ) OR EXISTS (
        SELECT FROM idivm.inlined_views i
        WHERE i.view = view_id AND i.signature IS DISTINCT FROM idivm.signature(i.relation)
    ) OR EXISTS (
        SELECT FROM idivm.broken_promises b WHERE b.view = view_id
    );
END
$$;

-- The tables of which any change might have it drift; NULL if there is more than tables.
CREATE FUNCTION idivm.watched_by(view_id integer) RETURNS oid[]
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF EXISTS (SELECT FROM idivm.inlined_views i WHERE i.view = view_id) THEN
        RETURN NULL;
    END IF;
    RETURN ARRAY(SELECT m.member FROM idivm.view_sources vs
                 JOIN idivm.source_members m ON m.source = vs.source WHERE vs.view = view_id);
END
$$;

-- These have a form in C, which remembers. A procedure makes them, so that this form can come back
-- where the other one has to go.
CREATE PROCEDURE idivm.plain_upkeep()
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $plain$
BEGIN
    CREATE OR REPLACE FUNCTION idivm.has_drifted(view_id integer) RETURNS boolean
        LANGUAGE sql
        RETURN idivm.looks_drifted(view_id);
    CREATE OR REPLACE FUNCTION idivm.run_program(view_id integer, since idivm.watermark, rebuild boolean,
                                                 OUT changed bigint, OUT kind "char", OUT marks jsonb)
        LANGUAGE plpgsql
    AS $$
    BEGIN
        EXECUTE pg_catalog.format('SELECT * FROM idivm_state.%I($1, $2)', 'refresh_' || view_id)
        INTO changed, kind, marks USING since, rebuild;
    END
    $$;
    COMMENT ON FUNCTION idivm.has_drifted(integer) IS
        'whether what a view reads is no longer what it was planned for';
    COMMENT ON FUNCTION idivm.run_program(integer, idivm.watermark, boolean) IS
        'calls the refresh function of a view';
    REVOKE EXECUTE ON FUNCTION idivm.run_program(integer, idivm.watermark, boolean) FROM PUBLIC;
END
$plain$;
CALL idivm.plain_upkeep();

-- As before, but the program is called by a function that has a form in C.
CREATE OR REPLACE FUNCTION idivm.bring_up(view_id integer, by_writer boolean) RETURNS bigint
    LANGUAGE plpgsql
AS $$
DECLARE
    v record;
    done record;
    snapshot pg_snapshot;
    started timestamptz := clock_timestamp();
    took double precision;
    outcome text;
BEGIN
    -- One that a DROP ... CASCADE took apart is left to idivm.sweep().
    -- Of a relation that is gone, has_table_privilege knows nothing.
    SELECT one.name, one.moving, one.asks, w.mark, w.refreshes,
           one.status = 'invalid' OR idivm.is_foreign(w) AS anew,
           has_table_privilege(one.state, 'SELECT') IS NULL AS lost
    INTO v
    FROM idivm.views one LEFT JOIN idivm.watermarks w ON w.view = one.id
    WHERE one.id = view_id AND one.status <> 'building'
      AND has_table_privilege(one.definition, 'SELECT') IS NOT NULL;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF v.lost THEN
        RAISE EXCEPTION 'the table that holds the content of % is gone', v.name
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'idivm doctor makes it again; DROP VIEW by idivm removes the view.';
    END IF;
    snapshot := pg_current_snapshot();
    IF v.asks THEN
        done := idivm.run_program(view_id, v.mark, v.anew);
    ELSE
        SELECT * INTO done FROM idivm.run_older(view_id, v.mark, v.anew);
    END IF;
    IF done.kind IS NULL AND NOT v.moving THEN
        RETURN NULL;
    END IF;
    IF done.kind = 'R' THEN
        -- What a watermark from elsewhere calls pending leaves out one's own changes.
        done.marks := idivm.own_marks(view_id);
    END IF;
    took := extract(epoch FROM clock_timestamp() - started);
    UPDATE idivm.watermarks w
    SET mark = ROW(snapshot, pg_current_xact_id(), done.marks)::idivm.watermark, cluster = idivm.cluster_of_session(),
        refreshed_at = clock_timestamp(), refreshes = w.refreshes + 1, changed = done.changed,
        seconds = took, total_seconds = w.total_seconds + took
    WHERE w.view = view_id;
    IF done.kind = 'R' THEN
        PERFORM idivm.settle(view_id);
        -- What has drifted may drift back, and then this content would be wrong unnoticed.
        outcome := CASE WHEN idivm.has_drifted(view_id) THEN 'invalid' ELSE 'ready' END;
        UPDATE idivm.views one SET status = outcome WHERE one.id = view_id AND one.status <> outcome;
    END IF;
    IF by_writer AND v.refreshes % 256 = 255 AND current_setting('max_prepared_transactions') = '0' THEN
        INSERT INTO idivm.commits (views, logs)
        VALUES ('{}', ARRAY(SELECT vs.source FROM idivm.view_sources vs WHERE vs.view = view_id));
    END IF;
    RETURN done.changed;
END
$$;

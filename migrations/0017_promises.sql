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

-- As before, and whether a table has broken a promise.
CREATE OR REPLACE FUNCTION idivm.has_drifted(view_id integer) RETURNS boolean
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

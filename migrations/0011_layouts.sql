-- Tables that are rewritten, renamed in, and restored while they are captured.

ALTER TABLE idivm.source_members ADD COLUMN layout text;
COMMENT ON COLUMN idivm.source_members.layout IS
    'the table''s identity and columns for which its capture functions were made; else they look up its columns'' names';

CREATE FUNCTION idivm.layout(member regclass) RETURNS text
    LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT member::oid || ':' || coalesce(string_agg(a.attnum::text, ' ' ORDER BY a.attnum), '')
    FROM pg_attribute a WHERE a.attrelid = member AND a.attnum > 0 AND NOT a.attisdropped;
END;

-- The beginning of a statement that logs the rows of a transition table, if the table has no longer
-- the columns for which its capture functions were made: the source view's query, over those rows.
CREATE FUNCTION idivm.images(source integer, changed regclass, operation text) RETURNS text
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    view regclass := to_regclass(format('idivm_def.%I', 's' || source));
    query text := pg_get_viewdef(view);
    ending text;
BEGIN
    SELECT E'\n   FROM ' || s.relation || ' t;' INTO ending
    FROM idivm.sources s JOIN idivm.source_members m ON m.source = s.id
    WHERE s.id = images.source AND m.member = changed;
    IF ending IS NULL OR right(query, length(ending)) <> ending THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = format('a trigger of table %s does not belong to capture as idivm has set it up', changed),
            HINT = 'Drop it, and run idivm doctor.';
    END IF;
    query := left(query, -length(ending));
    RETURN 'WITH ' || concat_ws(', ',
        CASE WHEN operation <> 'INSERT' THEN
            format('old_images AS (SELECT ROW(r.*)::%s AS image FROM (%s FROM old_rows AS t) AS r)', view, query) END,
        CASE WHEN operation <> 'DELETE' THEN
            format('new_images AS (SELECT ROW(r.*)::%s AS image FROM (%s FROM new_rows AS t) AS r)', view, query) END)
        || ' ';
END
$$;

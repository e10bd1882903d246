-- Where a row is read as one value, what it shows changes with the columns of its table, and no row is
-- written then: the columns are the table's signature, as the query is that of a view.

CREATE OR REPLACE FUNCTION idivm.signature(relation regclass) RETURNS text
    LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT coalesce(
        (SELECT md5(ev_action::text) FROM pg_rewrite WHERE ev_class = relation AND rulename = '_RETURN'),
        (SELECT md5(string_agg(concat_ws(' ', attnum, atttypid::bigint, atttypmod, attname), ', ' ORDER BY attnum))
         FROM pg_attribute WHERE attrelid = relation AND attnum > 0 AND NOT attisdropped));
END;
COMMENT ON FUNCTION idivm.signature(regclass) IS
    'changes when a view is replaced, and not when something is renamed; of a table, when its columns change';
COMMENT ON TABLE idivm.inlined_views IS
    'the plain views that a maintained view reads, the tables whose rows it reads as values, and what they were when it was planned';

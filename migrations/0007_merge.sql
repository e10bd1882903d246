-- MERGE into partitioned tables.

-- Whether the UPDATE trigger that calls this may have been given too few rows: of a row that a MERGE
-- moves from one partition to another, transition tables hold the old and the new image only if the
-- MERGE has actions for DELETE and INSERT as well. A trigger cannot see what statement fires it; the
-- text that the client sent, or the statement around the trigger in the call stack, shows that it is
-- no MERGE. Functions in SQL and prepared statements keep theirs to themselves. Nothing was moved if
-- no row of a partition was deleted; these counts may include the last second's transactions.
CREATE FUNCTION idivm.merge_may_have_moved_rows(merged regclass) RETURNS boolean
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    stack text;
    around text;
BEGIN
    GET DIAGNOSTICS stack = PG_CONTEXT;
    -- Below the lines of this function, of the statement that calls it and of the trigger's function.
    around := substring(stack, E'_update_[0-9]+\\(\\)[^\\n]*\\n(.*)');
    IF (CASE WHEN around IS NULL THEN current_query() !~* E'\\m(merge|execute)\\M'
            ELSE around ~* E'\\mupdate\\M' AND around !~* E'\\mmerge\\M' END) THEN
        RETURN false;
    END IF;
    RETURN NOT current_setting('track_counts')::boolean OR EXISTS (
        SELECT FROM pg_partition_tree(merged) AS t
        WHERE t.isleaf AND pg_stat_get_xact_tuples_deleted(t.relid) > 0);
END
$$;

-- As before, but what a partition inherits goes with the trigger of the partitioned table.
CREATE OR REPLACE FUNCTION idivm.forget_source(source integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    member regclass;
    base text := 's' || source;
    object record;
BEGIN
    FOR member IN
        SELECT m.member FROM idivm.source_members m
        JOIN pg_class c ON c.oid = m.member
        WHERE m.source = forget_source.source ORDER BY m.member
    LOOP
        FOR object IN
            SELECT tgname FROM pg_trigger
            WHERE tgrelid = member AND tgname LIKE 'idivm\_' || source || '\_%' AND tgparentid = 0
        LOOP
            EXECUTE format('DROP TRIGGER %I ON %s', object.tgname, member);
        END LOOP;
    END LOOP;
    FOR object IN
        SELECT p.oid::regprocedure AS signature FROM pg_proc p
        WHERE p.pronamespace = 'idivm_log'::regnamespace AND p.proname LIKE base || '\_%'
        ORDER BY p.prorettype <> 'trigger'::regtype, p.proname LIKE '%\_pick%'
    LOOP
        EXECUTE format('DROP FUNCTION %s', object.signature);
    END LOOP;
    EXECUTE format('DROP VIEW IF EXISTS idivm_log.%I', base);
    EXECUTE format('DROP TABLE IF EXISTS idivm_log.%I, idivm_log.%I', base || '_a', base || '_b');
    EXECUTE format('DROP SEQUENCE IF EXISTS idivm_log.%I', base || '_seq');
    EXECUTE format('DROP VIEW IF EXISTS idivm_def.%I', base);
    DELETE FROM idivm.sources s WHERE s.id = forget_source.source;
END
$$;

-- Whether there is anything for a view is asked where the newest rows of a log lie.

-- As before, but that anything is pending is mostly told by the last pages: those before them hold what
-- was consumed long ago, and are read where the last ones say nothing.
CREATE OR REPLACE FUNCTION idivm.create_due(source integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    base text := 's' || source;
    pending text := format('c.xid >= (SELECT pg_snapshot_xmin((since).snapshot)) AND idivm.is_pending(c.xid, c.seq, since, %s)', source);
BEGIN
    EXECUTE format(
        'CREATE OR REPLACE FUNCTION idivm_log.%I(since idivm.watermark, OUT pending bigint, OUT truncated boolean, OUT own bigint)'
        ' LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS %L',
        base || '_due',
        format('BEGIN
    pending := (EXISTS (SELECT %1$s))::integer;
    truncated := pending > 0 AND EXISTS (SELECT %1$s AND c.op = ''T'');
    IF pending > 0 AND pg_current_xact_id_if_assigned() IS NOT NULL THEN
        own := (SELECT max(c.seq) %1$s AND c.xid = pg_current_xact_id_if_assigned());
    END IF;
END', format('FROM idivm_log.%I AS c
    WHERE %s', base, pending)));
    EXECUTE format(
        'CREATE OR REPLACE FUNCTION idivm_log.%I(since idivm.watermark) RETURNS boolean'
        ' LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS %L',
        base || '_any', format('DECLARE
    late_a tid := idivm.last_page(%2$L);
    late_b tid := idivm.last_page(%3$L);
BEGIN
    RETURN EXISTS (SELECT FROM %2$s AS c WHERE c.ctid >= late_a AND %4$s)
        OR EXISTS (SELECT FROM %3$s AS c WHERE c.ctid >= late_b AND %4$s)
        OR EXISTS (SELECT FROM idivm_log.%1$I AS c WHERE %4$s);
END', base, format('idivm_log.%I', base || '_a'), format('idivm_log.%I', base || '_b'), pending));
END
$$;

-- Where the last page of a table begins.
CREATE FUNCTION idivm.last_page(relation regclass) RETURNS tid
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN format('(%s,0)', greatest(pg_relation_size(relation) / current_setting('block_size')::integer - 1, 0));
END
$$;
COMMENT ON FUNCTION idivm.last_page(regclass) IS 'the least position on the last page of a table';

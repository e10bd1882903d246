-- Whether a log has anything for a view, without a count of all that it has.

-- As before, but only truncations and a transaction's own statements are looked for in all pending
-- rows, by what is compared first; for the rest the first such row is enough. `pending` is 0 or 1.
CREATE OR REPLACE FUNCTION idivm.create_due(source integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    base text := 's' || source;
    pending text := format('FROM idivm_log.%I AS c
    WHERE c.xid >= (SELECT pg_snapshot_xmin((since).snapshot)) AND idivm.is_pending(c.xid, c.seq, since, %s)', base, source);
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
END', pending));
    EXECUTE format(
        'CREATE OR REPLACE FUNCTION idivm_log.%I(since idivm.watermark) RETURNS boolean'
        ' LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS %L',
        base || '_any', format('BEGIN
    RETURN EXISTS (SELECT %s);
END', pending));
END
$$;

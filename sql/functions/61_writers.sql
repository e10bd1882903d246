-- The open statements of a transaction that writes tables of synchronous views, and its pending views.
--
-- While a statement runs, its rows may be in the table and not yet in the log. Other statements run within it (foreign
-- keys, triggers of users, functions) or beside it in the same WITH. So open statements are counted, and views are
-- refreshed when none is open. A savepoint must be able to restore this state, and no user may write it. So it is not
-- kept in settings, but in the table idivm.writers, or in memory by the C form.

CREATE OR REPLACE FUNCTION idivm.writer(OUT open integer, OUT pending integer[], OUT later integer[], OUT queued integer[])
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
BEGIN
    SELECT w.open, w.pending, w.later, w.queued INTO open, pending, later, queued
    FROM idivm.writers w
    WHERE w.xid = pg_current_xact_id_if_assigned()
    ORDER BY w.xid, w.step DESC LIMIT 1;
    IF NOT FOUND THEN
        open := 0;
        pending := '{}';
        later := '{}';
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION idivm.note_writer(open integer, pending integer[], later integer[], queued integer[])
    RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO idivm.writers (xid, open, pending, later, queued)
    VALUES (pg_current_xact_id(), open, pending, later, queued);
END
$$;

CREATE OR REPLACE FUNCTION idivm.clear_writer() RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM idivm.writers w WHERE w.xid = pg_current_xact_id_if_assigned();
END
$$;

CREATE OR REPLACE FUNCTION idivm.statement_begins() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    state record;
BEGIN
    IF (tg_nargs = 0 OR tg_argv[0] <> '{}') AND NOT idivm.is_apply_worker() THEN
        PERFORM idivm.lock_eager();
    END IF;
    state := idivm.writer();
    PERFORM idivm.note_writer(state.open + 1, state.pending, state.later, state.queued);
    RETURN NULL;
END
$$;

COMMENT ON FUNCTION idivm.writer() IS
    'what this transaction has under way: open statements, and views to bring up';
COMMENT ON FUNCTION idivm.note_writer(integer, integer[], integer[], integer[]) IS
    'replaces what this transaction has under way';
COMMENT ON FUNCTION idivm.clear_writer() IS 'removes what this transaction has under way';
COMMENT ON FUNCTION idivm.statement_begins() IS
    'counts a statement as open; called by the triggers of tables of synchronous views';

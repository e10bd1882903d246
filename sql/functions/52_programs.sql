-- Functions that the refresh programs of all views call. A program runs with the rights of the owner of its view.

-- Return the bytes of both segments of a log. A program reads the log only if it has any.
CREATE OR REPLACE FUNCTION idivm.log_bytes(segment regclass, other regclass) RETURNS bigint
    LANGUAGE sql
    RETURN pg_catalog.pg_relation_size(segment) + pg_catalog.pg_relation_size(other);
COMMENT ON FUNCTION idivm.log_bytes(regclass, regclass) IS 'the bytes of both segments of a log';

-- Return the number of rows of a diff; a variable without rows is NULL.
CREATE OR REPLACE FUNCTION idivm.size(diff anyarray) RETURNS integer
    LANGUAGE sql IMMUTABLE
AS $$
    SELECT coalesce(pg_catalog.cardinality(diff), 0)
$$;
COMMENT ON FUNCTION idivm.size(anyarray) IS 'the number of rows of a diff';

-- Return whether recomputing a view takes less time than so many accesses. A few accesses take less time than this
-- comparison. PostgreSQL's estimate of the query is requested only if the answer depends on it.
CREATE OR REPLACE FUNCTION idivm.recompute_pays(view_id integer, accesses double precision) RETURNS boolean
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF accesses < 10000 OR NOT idivm.recompute_is_cheaper(view_id, accesses) THEN
        RETURN false;
    END IF;
    RETURN idivm.recompute_is_cheaper(view_id, accesses, idivm.query_work(to_regclass('idivm_def.v' || view_id)));
END
$$;
COMMENT ON FUNCTION idivm.recompute_pays(integer, double precision) IS
    'whether to recompute a view takes less time than so many lookups and rows';

-- Return whether a refresh should recompute the view. A refresh with many accesses compares both estimates; a small
-- refresh decides by earlier measurements.
CREATE OR REPLACE FUNCTION idivm.recompute_wins(view_id integer, accesses double precision, large boolean) RETURNS boolean
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF large THEN
        RETURN idivm.recompute_pays(view_id, accesses);
    END IF;
    RETURN EXISTS (SELECT FROM idivm.costs c WHERE c.view = view_id AND c.loses_from <= accesses);
END
$$;
COMMENT ON FUNCTION idivm.recompute_wins(integer, double precision, boolean) IS
    'whether to recompute a view instead of a refresh that expects so many lookups and rows';

-- Plan the following statements for the rows that they process. The program inlines this function.
CREATE OR REPLACE FUNCTION idivm.plan_again() RETURNS text
    LANGUAGE sql
    RETURN pg_catalog.set_config('plan_cache_mode', 'force_custom_plan', true);
COMMENT ON FUNCTION idivm.plan_again() IS 'has the statements of a program planned for their very rows';

-- Return the time after which a refresh gives up: half the time of a recompute. So a refresh that loses costs at most
-- half more, and only once, because the loss is recorded.
CREATE OR REPLACE FUNCTION idivm.gives_up_at(view_id integer, begun timestamptz) RETURNS timestamptz
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    seconds double precision := idivm.recompute_seconds(view_id, idivm.query_work(to_regclass('idivm_def.v' || view_id))) / 2;
BEGIN
    RETURN CASE WHEN seconds < 1e9 THEN begun + make_interval(secs => seconds) ELSE 'infinity' END;
END
$$;
COMMENT ON FUNCTION idivm.gives_up_at(integer, timestamptz) IS 'when a refresh gives up and recomputes the view';

-- Return the same time, and record the loss if it has passed.
CREATE OR REPLACE FUNCTION idivm.refresh_deadline(view_id integer, begun timestamptz, accesses double precision, variant_now text)
    RETURNS timestamptz
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    deadline timestamptz := idivm.gives_up_at(view_id, begun);
BEGIN
    IF clock_timestamp() > deadline THEN
        PERFORM idivm.note_loss(view_id, accesses, variant_now);
    END IF;
    RETURN deadline;
END
$$;
COMMENT ON FUNCTION idivm.refresh_deadline(integer, timestamptz, double precision, text) IS
    'when a refresh gives up and recomputes the view; remembers that it does';

-- End a statement of a program that takes too long. The program catches the error.
CREATE OR REPLACE FUNCTION idivm.end_late_statement() RETURNS boolean
    LANGUAGE plpgsql
AS $$
BEGIN
    RAISE SQLSTATE 'IVT01' USING MESSAGE = 'a statement of a refresh took too long';
END
$$;
COMMENT ON FUNCTION idivm.end_late_statement() IS 'ends a statement of a refresh that takes too long';

-- Return whether a statement of a program is in time; end it otherwise. The program inlines this function, so that the
-- deadline is computed only after `late`.
CREATE OR REPLACE FUNCTION idivm.in_time(late timestamptz, deadline timestamptz) RETURNS boolean
    LANGUAGE sql VOLATILE
    RETURN pg_catalog.clock_timestamp() < late OR pg_catalog.clock_timestamp() < deadline OR idivm.end_late_statement();
COMMENT ON FUNCTION idivm.in_time(timestamptz, timestamptz) IS
    'whether a statement of a refresh is in time; ends it otherwise';

-- Settings under which PostgreSQL fetches the rows of a state that a diff names together, so that it reads pages
-- ahead; and settings that restore the defaults. The program inlines both.
CREATE OR REPLACE FUNCTION idivm.gather_rows(state text) RETURNS text
    LANGUAGE sql
    RETURN pg_catalog.set_config('enable_nestloop', state, true) || pg_catalog.set_config('enable_mergejoin', state, true)
        || pg_catalog.set_config('enable_indexscan', state, true) || pg_catalog.set_config('enable_seqscan', state, true);
COMMENT ON FUNCTION idivm.gather_rows(text) IS
    'switches off, for a statement, the plans that read the rows of a state one after the other, and on again';

-- Stop a recompute if the program no longer fits the view. The program identifies the rows of `keyed_sources` by
-- their keys.
CREATE OR REPLACE FUNCTION idivm.require_valid_plan(view_id integer, view_name text, keyed_sources integer[])
    RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    reason text := CASE
        WHEN EXISTS (SELECT FROM idivm.inlined_views i
                     WHERE i.view = view_id AND i.signature IS DISTINCT FROM idivm.signature(i.relation))
            THEN 'a plain view that %s reads was replaced, or a table altered whose rows it reads as values'
        WHEN EXISTS (SELECT FROM idivm.view_sources vs WHERE vs.view = view_id AND idivm.capture_is_broken(vs.source))
            THEN 'a part was dropped of what captures the changes of a table that %s reads'
        WHEN EXISTS (SELECT FROM idivm.view_sources vs JOIN idivm.sources s ON s.id = vs.source
                     JOIN pg_class c ON c.oid = s.relation
                     WHERE vs.view = view_id AND vs.source = ANY (keyed_sources)
                       AND (NOT s.keyed OR idivm.key_is_gone(s.id)
                            OR c.relkind <> 'p' AND EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = c.oid)))
             OR EXISTS (SELECT FROM idivm.other_keys o WHERE o.view = view_id AND o.source = ANY (keyed_sources))
            THEN 'a table that %s reads has lost its key'
        WHEN EXISTS (SELECT FROM idivm.broken_promises b WHERE b.view = view_id)
            THEN 'a table that %s reads has lost a key or a NOT NULL that its plan relies on'
        WHEN EXISTS (SELECT FROM idivm.changed_expressions c WHERE c.view = view_id AND c.in_plan)
            THEN 'a virtual generated column that %s reads has another expression'
    END;
    stream regclass := idivm.stream_without_rows(view_id);
BEGIN
    IF stream IS NOT NULL THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = format('%s can only be computed anew from the files of the stream %s', view_name, stream),
            HINT = 'Run idivm refresh, which reads them.';
    ELSIF reason IS NOT NULL THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = format(reason, view_name), HINT = 'Refresh it once by idivm refresh, which plans it again.';
    END IF;
END
$$;
COMMENT ON FUNCTION idivm.require_valid_plan(integer, text, integer[]) IS
    'raises an error if the refresh program of a view no longer fits what the view reads';

-- A few rows only measure what a statement costs.
CREATE OR REPLACE FUNCTION idivm.note_recomputed(view_id integer, begun timestamptz, variant_now text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF clock_timestamp() > begun + interval '10 milliseconds' THEN
        PERFORM idivm.note_recompute(view_id, idivm.query_work(to_regclass('idivm_def.v' || view_id)), begun, variant_now);
    END IF;
END
$$;
COMMENT ON FUNCTION idivm.note_recomputed(integer, timestamptz, text) IS
    'remembers what the recomputation of a view took';

-- Refresh one view, several views, or all views.

-- Return whether an error ends the whole refresh because it is not the fault of a view: a conflict with another
-- transaction, a canceled query, a server that shuts down, or a transaction that may not write.
CREATE OR REPLACE FUNCTION idivm.ends_refresh(state text) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    RETURN left(state, 2) IN ('25', '40', '57') OR state = '55P03';
COMMENT ON FUNCTION idivm.ends_refresh(text) IS 'whether an error with this SQLSTATE ends the refresh of all views';

CREATE OR REPLACE FUNCTION idivm.note_error(view_id integer, state text, message text, hint text) RETURNS text
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    report text := message || coalesce('. ' || nullif(hint, ''), '');
BEGIN
    INSERT INTO idivm.view_errors AS e (view, at, sqlstate, message)
    VALUES (view_id, clock_timestamp(), state, report)
    ON CONFLICT (view) DO UPDATE SET at = excluded.at, sqlstate = excluded.sqlstate, message = excluded.message;
    INSERT INTO idivm.past_refreshes (view, at, role, error) VALUES (view_id, clock_timestamp(), session_user, report);
    RETURN report;
END
$$;
COMMENT ON FUNCTION idivm.note_error(integer, text, text, text) IS 'keeps the reason why a view could not be refreshed';

-- Recompute a view after an error that its query may not have, so that no refresh fails where its query succeeds. A
-- diff may not fit in memory or in an array, and may call an expression for rows that the query never reaches. Return
-- the rows changed, or the reason of the remaining error.
CREATE OR REPLACE FUNCTION idivm.recompute_after_error(view_id integer, by_writer boolean, INOUT state text,
                                                        INOUT reason text, INOUT hint text, OUT changed bigint)
    LANGUAGE plpgsql
AS $$
BEGIN
    -- Cardinality violations, data exceptions, and limits of size.
    IF left(state, 2) NOT IN ('21', '22') AND state NOT IN ('54000', '53200', '53400')
       AND reason NOT LIKE 'invalid memory alloc request size%' THEN
        RETURN;
    END IF;
    UPDATE idivm.views v SET status = 'invalid' WHERE v.id = view_id AND v.status = 'ready';
    changed := coalesce(idivm.refresh_one(view_id, by_writer), 0);
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, reason = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
    IF idivm.ends_refresh(state) THEN
        RAISE;
    END IF;
END
$$;
COMMENT ON FUNCTION idivm.recompute_after_error(integer, boolean, text, text, text) IS
    'recomputes a view after an error that its query may not have';

-- Refresh views in order. With `apart`, each view has its own subtransaction; otherwise only the views whose last
-- refresh failed have one, and any other error ends the function. `given_up` has errors of views that are not tried.
-- `drifted` has the views that have drifted, if the caller knows them.
CREATE OR REPLACE FUNCTION idivm.refresh_in_order(ordered integer[], synchronous integer[], behind boolean, apart boolean,
                                                   given_up jsonb DEFAULT '{}', drifted integer[] DEFAULT NULL)
    RETURNS TABLE (view_id integer, changed bigint, seconds double precision, error text)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    snapshot_is_fixed boolean := current_setting('transaction_isolation') IN ('repeatable read', 'serializable');
    one_cut boolean := snapshot_is_fixed AND NOT behind;
    suspects integer[] := ordered;
    failed integer[] := '{}';
    shut regclass[];
    held integer[];
    lower_view text;
    closed regclass;
    reason text;
    pending boolean;
    started timestamptz;
    state text;
    hint text;
    retry record;
BEGIN
    IF NOT apart THEN
        suspects := ARRAY(SELECT e.view FROM idivm.view_errors e WHERE e.view = ANY (ordered));
    END IF;
    FOREACH view_id IN ARRAY ordered LOOP
        started := clock_timestamp();
        changed := 0;
        error := NULL;
        IF given_up ? view_id::text THEN
            error := idivm.note_error(view_id, given_up -> view_id::text ->> 'state', given_up -> view_id::text ->> 'reason', '');
        ELSIF failed <> '{}' THEN
            SELECT coalesce(v.relation::text, v.name) INTO lower_view
            FROM idivm.views_below(view_id) AS below JOIN idivm.views v ON v.id = below
            WHERE below = ANY (failed) ORDER BY v.id LIMIT 1;
            IF FOUND THEN
                error := idivm.note_error(view_id, '55000',
                                          format('it reads %s, which could not be refreshed', lower_view), '');
            END IF;
        END IF;
        IF error IS NULL AND (behind OR view_id <> ALL (synchronous)) THEN
            pending := one_cut;
            IF NOT one_cut THEN
                BEGIN
                    pending := idivm.has_pending(view_id);
                EXCEPTION WHEN OTHERS THEN
                    IF idivm.ends_refresh(sqlstate) THEN
                        RAISE;
                    END IF;
                    -- The refresh meets the error again, and reports it.
                    pending := true;
                END;
            END IF;
            IF pending AND NOT one_cut THEN
                -- Under READ COMMITTED each statement below would see a later state. So exclude the writers of all
                -- tables until this transaction ends: the group is one cut, and no change is both in a state and still
                -- pending. Synchronous views that are read must not change either.
                -- A table that may not be locked fails its own views, and before they wait for it: a TRUNCATE of this table
                -- may wait for the synchronous views that are locked here.
                shut := ARRAY(SELECT DISTINCT c.oid::regclass
                              FROM idivm.view_sources vs
                              JOIN idivm.sources s ON s.id = vs.source
                              JOIN pg_class c ON c.oid = s.relation
                              WHERE vs.view = ANY (ordered) AND c.relkind IN ('r', 'p')
                                AND NOT has_table_privilege(c.oid, CASE WHEN snapshot_is_fixed THEN 'SELECT'
                                                                        ELSE idivm.locking_rights() END)
                                AND NOT EXISTS (SELECT FROM idivm.views lower_view WHERE lower_view.state = s.relation));
                IF snapshot_is_fixed THEN
                    -- This fails if one of these views became synchronous after the snapshot. Its writers would wait for its
                    -- lock, which this transaction holds while it waits below.
                    PERFORM FROM idivm.watermarks w
                    WHERE w.view = ANY (ordered) AND w.view <> ALL (synchronous) ORDER BY w.view FOR NO KEY UPDATE;
                END IF;
                PERFORM idivm.hold_sources(
                    ARRAY(SELECT DISTINCT s.relation
                          FROM idivm.view_sources vs
                          JOIN idivm.sources s ON s.id = vs.source
                          WHERE NOT snapshot_is_fixed AND vs.view = ANY (ordered) AND vs.view <> ALL (synchronous)
                            AND s.relation <> ALL (shut)
                            AND NOT EXISTS (SELECT FROM idivm.views lower_view WHERE lower_view.state = s.relation)
                          ORDER BY s.relation),
                    ARRAY(SELECT id FROM unnest(synchronous) AS id WHERE id = ANY (ordered) ORDER BY id),
                    ARRAY(SELECT DISTINCT c.oid::regclass
                          FROM idivm.view_sources vs
                          JOIN idivm.sources s ON s.id = vs.source
                          JOIN pg_class c ON c.oid = s.relation
                          WHERE behind AND vs.view = ANY (ordered) AND (snapshot_is_fixed OR vs.view = ANY (synchronous))
                            AND c.relkind IN ('r', 'p') AND has_table_privilege(c.oid, 'SELECT')
                            AND NOT EXISTS (SELECT FROM idivm.views lower_view WHERE lower_view.state = s.relation)
                          ORDER BY 1));
                one_cut := true;
            END IF;
            IF one_cut AND shut <> '{}' THEN
                SELECT s.relation INTO closed
                FROM idivm.view_sources vs JOIN idivm.sources s ON s.id = vs.source
                WHERE vs.view = view_id AND s.relation = ANY (shut) ORDER BY s.relation LIMIT 1;
                IF FOUND THEN
                    reason := idivm.unreadable(view_id);
                    IF reason IS NULL AND NOT snapshot_is_fixed THEN
                        reason := format('permission denied for table %s', closed);
                    END IF;
                    error := CASE WHEN reason IS NOT NULL THEN idivm.note_error(view_id, '42501', reason, '') END;
                END IF;
            END IF;
            IF one_cut AND drifted IS NULL THEN
                BEGIN
                    drifted := idivm.drifted_among(ordered);
                EXCEPTION WHEN OTHERS THEN
                    IF idivm.ends_refresh(sqlstate) THEN
                        RAISE;
                    END IF;
                    -- The refresh of one of the views meets the error again.
                    drifted := ARRAY[NULL::integer];
                END;
            END IF;
            IF one_cut AND held IS NULL THEN
                held := '{}';
                IF EXISTS (SELECT FROM idivm.views v WHERE v.options ? 'gate' AND v.id = ANY (ordered)) THEN
                    held := idivm.held_views(ordered);
                END IF;
            END IF;
            IF error IS NOT NULL THEN
                NULL;
            ELSIF one_cut AND view_id = ANY (held) THEN
                UPDATE idivm.watermarks w SET held_since = clock_timestamp()
                WHERE w.view = view_id AND w.held_since IS NULL AND idivm.has_pending(view_id);
            ELSIF one_cut AND view_id = ANY (suspects) THEN
                -- A subtransaction that writes nothing takes no transaction number.
                BEGIN
                    changed := coalesce(idivm.refresh_one(view_id, false, view_id = ANY (drifted)), 0);
                EXCEPTION WHEN OTHERS THEN
                    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, error = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
                    IF idivm.ends_refresh(state) THEN
                        RAISE;
                    END IF;
                    retry := idivm.recompute_after_error(view_id, false, state, error, hint);
                    changed := retry.changed;
                    error := CASE WHEN changed IS NULL THEN idivm.note_error(view_id, retry.state, retry.reason, retry.hint) END;
                END;
            ELSIF one_cut THEN
                changed := coalesce(idivm.refresh_one(view_id, false, view_id = ANY (drifted)), 0);
            END IF;
        END IF;
        IF error IS NOT NULL THEN
            failed := failed || view_id;
            changed := NULL;
        END IF;
        seconds := extract(epoch FROM clock_timestamp() - started);
        RETURN NEXT;
    END LOOP;
END
$$;
COMMENT ON FUNCTION idivm.refresh_in_order(integer[], integer[], boolean, boolean, jsonb, integer[]) IS
    'refreshes views in the given order, each with its own fate or all together';

-- Refresh the views that have something to do, and return them among all views of the refresh.
CREATE OR REPLACE FUNCTION idivm.refresh_among(ordered integer[], due integer[], synchronous integer[], behind boolean, apart boolean,
                                                given_up jsonb DEFAULT '{}', drifted integer[] DEFAULT NULL)
    RETURNS TABLE (view_id integer, changed bigint, seconds double precision, error text)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    IF cardinality(due) = cardinality(ordered) THEN
        RETURN QUERY SELECT * FROM idivm.refresh_in_order(due, synchronous, behind, apart, given_up, drifted);
        RETURN;
    END IF;
    RETURN QUERY
        WITH done AS MATERIALIZED (SELECT * FROM idivm.refresh_in_order(due, synchronous, behind, apart, given_up, drifted))
        SELECT o.id, CASE WHEN d.view_id IS NULL THEN 0 ELSE d.changed END, coalesce(d.seconds, 0), d.error
        FROM unnest(ordered) WITH ORDINALITY AS o (id, place) LEFT JOIN done d ON d.view_id = o.id
        ORDER BY o.place;
END
$$;
COMMENT ON FUNCTION idivm.refresh_among(integer[], integer[], integer[], boolean, boolean, jsonb, integer[]) IS
    'refreshes the views that have something to do, and returns them among all views of the refresh';

-- The same with refresh groups: if a member fails, all members keep their contents. What was done is then rolled back,
-- and done again without this group.
CREATE OR REPLACE FUNCTION idivm.refresh_groups(ordered integer[], due integer[], synchronous integer[], behind boolean,
                                                 drifted integer[] DEFAULT NULL)
    RETURNS TABLE (view_id integer, changed bigint, seconds double precision, error text)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    given_up jsonb := '{}';
    broken jsonb;
    done jsonb;
BEGIN
    LOOP
        BEGIN
            SELECT jsonb_agg(r) INTO done FROM idivm.refresh_among(ordered, due, synchronous, behind, true, given_up, drifted) AS r;
            SELECT jsonb_object_agg(mate, jsonb_build_object(
                       'state', CASE mate WHEN f.id THEN e.sqlstate ELSE '55000' END,
                       'reason', CASE mate WHEN f.id THEN e.message ELSE format(
                           'it belongs to the refresh group %s, whose member %s could not be refreshed: %s',
                           v.options ->> 'refresh_group', coalesce(v.relation::text, v.name), e.message) END)
                       -- The last one stays: the first failure is the reason of the others.
                       ORDER BY mate = f.id, f.place DESC)
            INTO broken
            FROM (SELECT (r ->> 'view_id')::integer AS id, place
                  FROM jsonb_array_elements(done) WITH ORDINALITY AS d (r, place) WHERE r ->> 'error' IS NOT NULL) AS f
            JOIN idivm.view_errors e ON e.view = f.id JOIN idivm.views v ON v.id = f.id
            CROSS JOIN LATERAL idivm.mates(f.id) AS mate
            WHERE NOT given_up ? f.id::text;
            EXIT WHEN broken IS NULL;
            RAISE SQLSTATE 'IVG01';
        EXCEPTION WHEN SQLSTATE 'IVG01' THEN
            given_up := given_up || broken;
        END;
    END LOOP;
    RETURN QUERY
        SELECT r.view_id, r.changed, r.seconds, r.error
        FROM jsonb_to_recordset(done) AS r (view_id integer, changed bigint, seconds double precision, error text);
END
$$;
COMMENT ON FUNCTION idivm.refresh_groups(integer[], integer[], integer[], boolean, integer[]) IS
    'refreshes views of which some belong to refresh groups: all members or none';

-- A view that fails, and a view that reads it, returns an error instead of the number of changed rows.
CREATE OR REPLACE FUNCTION idivm.refresh_views(view_ids integer[])
    RETURNS TABLE (view_id integer, changed bigint, seconds double precision, error text)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    snapshot_is_fixed boolean := current_setting('transaction_isolation') IN ('repeatable read', 'serializable');
    started timestamptz := clock_timestamp();
    alone record;
    ordered integer[];
    synchronous integer[];
    due integer[];
    drifted integer[];
    behind boolean;
BEGIN
    IF NOT snapshot_is_fixed AND cardinality(view_ids) = 1 THEN
        view_id := view_ids[1];
        alone := idivm.refresh_alone(view_id);
        changed := alone.changed;
        error := alone.error;
        IF changed IS NOT NULL OR error IS NOT NULL THEN
            seconds := extract(epoch FROM clock_timestamp() - started);
            RETURN NEXT;
            RETURN;
        END IF;
    END IF;
    view_ids := idivm.with_groups(view_ids);
    ordered := ARRAY(SELECT id FROM idivm.refresh_order(view_ids) AS id);
    synchronous := ARRAY(SELECT id FROM idivm.synchronous_views() AS id);
    IF snapshot_is_fixed THEN
        -- A view without work in this snapshot is up to date in it. Its lock is not taken: writers would wait for it if the
        -- view became synchronous after the snapshot, and only the watermark of a view with work shows that.
        due := ordered;
        IF cardinality(ordered) > idivm.few_views() THEN
            SELECT work.due, work.drifted INTO due, drifted FROM idivm.work_of(ordered) AS work;
        END IF;
        PERFORM idivm.refuse_recycled_log(ordered);
        IF pg_current_xact_id_if_assigned() IS NOT NULL THEN
            PERFORM idivm.refuse_mid_statement(ARRAY(SELECT id FROM unnest(ordered) AS id WHERE id <> ALL (synchronous)));
        END IF;
        PERFORM idivm.lock_apart(due, synchronous);
    ELSE
        IF idivm.lock_apart(ordered, synchronous) THEN
            ordered := ARRAY(SELECT id FROM idivm.refresh_order(view_ids) AS id);
            synchronous := ARRAY(SELECT id FROM idivm.synchronous_views() AS id);
        END IF;
        due := ordered;
    END IF;
    behind := synchronous && due;
    IF behind THEN
        behind := idivm.synchronous_are_behind(ordered);
    END IF;
    IF behind THEN
        -- What is repaired below must reach the synchronous views above.
        ordered := ARRAY(SELECT id FROM idivm.refresh_order(view_ids || synchronous) AS id);
        due := ordered;
        IF snapshot_is_fixed THEN
            SELECT work.due, work.drifted INTO due, drifted FROM idivm.work_of(ordered) AS work;
        END IF;
    END IF;
    IF EXISTS (SELECT FROM idivm.views v WHERE v.options ? 'refresh_group' AND v.id = ANY (due)) THEN
        RETURN QUERY SELECT * FROM idivm.refresh_groups(ordered, due, synchronous, behind, drifted);
        RETURN;
    END IF;
    IF cardinality(due) > 32 THEN
        -- After 64 subtransactions, snapshots of all sessions cost more. So many views share one subtransaction, and
        -- start again with one for each view only if a view fails that did not fail before.
        BEGIN
            RETURN QUERY SELECT * FROM idivm.refresh_among(ordered, due, synchronous, behind, false, drifted => drifted);
            RETURN;
        EXCEPTION WHEN OTHERS THEN
            IF idivm.ends_refresh(sqlstate) THEN
                RAISE;
            END IF;
        END;
    END IF;
    RETURN QUERY SELECT * FROM idivm.refresh_among(ordered, due, synchronous, behind, true, drifted => drifted);
END
$$;
COMMENT ON FUNCTION idivm.refresh_views(integer[]) IS
    'refreshes views and what they read, each with its own fate, in one cut';

-- Complete the given views of which only the content is current since a refresh before `since`: compute their other states.
-- Otherwise, later refreshes with few changes would compute the content alone too, until they have lost enough time.
CREATE OR REPLACE FUNCTION idivm.complete_states(view_ids integer[], since timestamptz) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    behind integer[] := ARRAY(
        SELECT w.view FROM idivm.watermarks w
        WHERE w.view = ANY (idivm.without_states(view_ids)) AND w.refreshed_at < since);
BEGIN
    IF behind <> '{}' THEN
        PERFORM idivm.lock_apart(ARRAY(SELECT id FROM idivm.refresh_order(idivm.with_groups(behind)) AS id),
                                 ARRAY(SELECT id FROM idivm.synchronous_views() AS id));
        UPDATE idivm.views SET status = 'invalid' WHERE id = ANY (behind);
        PERFORM idivm.refresh_views(behind);
    END IF;
END
$$;
COMMENT ON FUNCTION idivm.complete_states(integer[], timestamptz) IS
    'computes the states that earlier refreshes left behind the contents of views that have nothing else to do';

CREATE OR REPLACE FUNCTION idivm.refresh(VARIADIC names text[])
    RETURNS TABLE (view text, changed bigint, seconds double precision, error text)
    LANGUAGE plpgsql
AS $$
DECLARE
    name text;
    id integer;
    view_ids integer[] := '{}';
    done record;
    may_wait boolean;
    waits text;
BEGIN
    FOREACH name IN ARRAY coalesce(names, '{}') LOOP
        id := idivm.view_id(name::pg_catalog.regclass);
        error := idivm.lost_query(name::pg_catalog.regclass);
        IF error IS NOT NULL THEN
            view := name::pg_catalog.regclass::pg_catalog.text;
            RAISE WARNING '% could not be refreshed: %', view, error;
            RETURN NEXT;
            CONTINUE;
        END IF;
        IF id IS NULL THEN
            -- Every read computes the query of such a view, unless it is a table.
            PERFORM idivm.plan_at_refresh(name::pg_catalog.regclass);
            view := name::pg_catalog.regclass::pg_catalog.text;
            changed := coalesce(idivm.show_waiting(name::pg_catalog.regclass), 0);
            seconds := 0;
            RETURN NEXT;
            CONTINUE;
        END IF;
        view_ids := view_ids OPERATOR(pg_catalog.||) id;
    END LOOP;
    IF pg_catalog.cardinality(view_ids) OPERATOR(pg_catalog.=) 0 THEN
        RETURN;
    END IF;
    FOR done IN SELECT r.view_id, r.changed, r.seconds, r.error FROM idivm.refresh_views(view_ids) AS r LOOP
        SELECT v.relation::pg_catalog.text, v.options OPERATOR(pg_catalog.?|) '{refresh_group,gate}'
        INTO view, may_wait FROM idivm.views v WHERE v.id OPERATOR(pg_catalog.=) done.view_id;
        changed := done.changed;
        seconds := done.seconds;
        error := done.error;
        IF error IS NOT NULL THEN
            RAISE WARNING '% could not be refreshed: %', view, error;
        END IF;
        IF may_wait THEN
            waits := idivm.status_of_gate(done.view_id);
            IF waits IS NOT NULL THEN
                RAISE NOTICE '% waits for its gate: %', view, waits;
            END IF;
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;
COMMENT ON FUNCTION idivm.refresh(text[]) IS
    'refreshes the named views in the current transaction; CALL idivm.refresh_all(...) does not make writers wait';

-- Refresh all views in one REPEATABLE READ transaction: no writer waits, and readers see one cut. Then collect logs in
-- separate transactions. Last, compute states that earlier calls left behind, while nothing waits for them. If some views fail, this procedure fails after it has committed the others.
CREATE OR REPLACE PROCEDURE idivm.refresh_all(VARIADIC names text[] DEFAULT '{}')
    LANGUAGE plpgsql
AS $$
DECLARE
    ids pg_catalog.int4[];
    wanted pg_catalog.int4[];
    tried pg_catalog.int4[] := '{}';
    failed pg_catalog.int4[] := '{}';
    failed_now pg_catalog.int4[];
    attempt pg_catalog.int4 := 0;
    retries pg_catalog.bool;
    to_collect pg_catalog.int4[];
    turned pg_catalog.int4[];
    source_id pg_catalog.int4;
    reasons pg_catalog.text[];
    state pg_catalog.text;
    any_waits pg_catalog.bool := EXISTS (SELECT FROM idivm.unplanned_views);
    started pg_catalog.timestamptz := pg_catalog.clock_timestamp();
BEGIN
    IF pg_catalog.cardinality(names) OPERATOR(pg_catalog.=) 0 THEN
        ids := ARRAY(SELECT v.id FROM idivm.views v
                     WHERE v.status OPERATOR(pg_catalog.<>) 'building'
                       -- Only a member of a group needs the query of the function.
                       AND CASE WHEN v.options OPERATOR(pg_catalog.?) 'refresh_group' THEN NOT idivm.is_paused(v)
                                ELSE v.paused_mode IS NULL END);
    ELSE
        ids := ARRAY(SELECT idivm.view_id(n::pg_catalog.regclass) FROM pg_catalog.unnest(names) AS n
                     WHERE NOT (any_waits AND idivm.plan_at_refresh(n::pg_catalog.regclass)));
    END IF;
    ids := idivm.with_groups(ids);
    wanted := ids;
    IF any_waits THEN
        PERFORM idivm.show_all_waiting(ARRAY(SELECT n::pg_catalog.regclass FROM pg_catalog.unnest(names) AS n));
    END IF;
    LOOP
        -- Usually nothing has changed since the last refresh. The views with work are determined again in the snapshot
        -- of the refresh.
        failed_now := '{}';
        LOOP
            EXIT WHEN NOT idivm.is_due(ids);
            IF attempt OPERATOR(pg_catalog.>) 0 THEN
                -- Another session was refreshing these views. Wait before taking the snapshot, so that it is not stale
                -- after the wait.
                PERFORM idivm.lock_views(ids);
            END IF;
            turned := idivm.turn_logs(ids);
            IF turned IS NOT NULL THEN
                COMMIT;
                PERFORM idivm.note_turns(turned);
            END IF;
            COMMIT;
            SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;
            BEGIN
                retries := false;
                failed_now := ARRAY(SELECT r.view_id FROM idivm.refresh_views(ids) AS r WHERE r.error IS NOT NULL);
            EXCEPTION WHEN serialization_failure THEN
                attempt := attempt OPERATOR(pg_catalog.+) 1;
                IF attempt OPERATOR(pg_catalog.>) 20 THEN
                    RAISE;
                END IF;
                retries := true;
            END;
            COMMIT;
            EXIT WHEN NOT retries;
        END LOOP;
        failed := failed OPERATOR(pg_catalog.||) failed_now;
        PERFORM idivm.announce_feeds(ids);
        to_collect := ARRAY(SELECT idivm.collectable(ids));
        EXIT WHEN pg_catalog.cardinality(to_collect) OPERATOR(pg_catalog.=) 0;
        FOREACH source_id IN ARRAY to_collect LOOP
            PERFORM idivm.collect_source(source_id);
            COMMIT;
        END LOOP;
        -- Their logs are full, and their options ask for a refresh.
        tried := tried OPERATOR(pg_catalog.||) ids;
        ids := ARRAY(
            SELECT o.view FROM idivm.over_log_limit() AS o
            WHERE o.action OPERATOR(pg_catalog.=) 'refresh' AND o.view OPERATOR(pg_catalog.<>) ALL (tried));
        EXIT WHEN pg_catalog.cardinality(ids) OPERATOR(pg_catalog.=) 0;
        attempt := 0;
    END LOOP;
    IF EXISTS (SELECT FROM idivm.watermarks w WHERE w.content_only AND w.refreshes OPERATOR(pg_catalog.>) 0) THEN
        COMMIT;
        SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;
        BEGIN
            PERFORM idivm.complete_states(wanted, started);
        EXCEPTION WHEN serialization_failure THEN
            -- Another session is refreshing these views.
            NULL;
        END;
        COMMIT;
        PERFORM idivm.announce_feeds(wanted);
    END IF;
    IF pg_catalog.cardinality(failed) OPERATOR(pg_catalog.>) 0 THEN
        SELECT pg_catalog.array_agg(
                   pg_catalog.format(
                       CASE WHEN pg_catalog.cardinality(failed) OPERATOR(pg_catalog.=) 1
                            THEN '%s could not be refreshed: %s' ELSE '%s (%s)' END,
                       COALESCE(v.relation::pg_catalog.text, v.name), e.message)
                   ORDER BY f.place),
               (pg_catalog.array_agg(e.sqlstate ORDER BY f.place))[1]
        INTO reasons, state
        FROM pg_catalog.unnest(failed) WITH ORDINALITY AS f (id, place)
        JOIN idivm.views v ON v.id OPERATOR(pg_catalog.=) f.id
        JOIN idivm.view_errors e ON e.view OPERATOR(pg_catalog.=) f.id;
        IF reasons IS NOT NULL THEN
            RAISE EXCEPTION USING
                ERRCODE = state,
                MESSAGE = CASE WHEN pg_catalog.cardinality(reasons) OPERATOR(pg_catalog.=) 1 THEN reasons[1]
                               ELSE pg_catalog.format('%s views could not be refreshed: %s',
                                                      pg_catalog.cardinality(reasons),
                                                      pg_catalog.array_to_string(reasons, ', ')) END,
                HINT = 'The other views were refreshed.';
        END IF;
    END IF;
END
$$;
COMMENT ON PROCEDURE idivm.refresh_all(text[]) IS
    'refreshes all views, or the named views, in a transaction of its own, and empties the logs';

-- Refresh one view and return the rows changed, or NULL if there was nothing to do. The caller holds its lock, and its
-- sources do not change. With `by_writer`, the view is synchronous. Drift is checked once: the tables are locked or the
-- snapshot is fixed, so nothing can drift before the program has run. A caller that refreshes several views has checked
-- all of them, and passes the answer as `drifts`. The callers have pinned the search_path. Writers skip a view for a
-- minute after it failed, and then try again. With `bounded`, the sources of the view may change meanwhile: the program
-- reads logs and states alone, and of the changes only those that one snapshot sees. What needs more, such as a
-- recomputation, fails with IV002.
CREATE OR REPLACE FUNCTION idivm.refresh_one(view_id integer, by_writer boolean, drifts boolean DEFAULT NULL,
                                             bounded boolean DEFAULT false) RETURNS bigint
    LANGUAGE plpgsql
AS $$
DECLARE
    v record;
    done record;
    code idivm.view_code;
    obstacle record;
    snapshot pg_snapshot;
    started timestamptz := clock_timestamp();
    took double precision;
    outcome text;
    refusal text;
    why text;
    has_written boolean := pg_current_xact_id_if_assigned() IS NOT NULL;
    excludes boolean := false;
BEGIN
    -- idivm.drop_orphans() handles a view that a DROP ... CASCADE took apart. For a relation that is gone,
    -- has_table_privilege returns NULL.
    SELECT planned.name, planned.time_dependent, planned.has_clock, w.mark, w.refreshes, w.content_only,
           planned.status = 'invalid' AS recompute, idivm.is_foreign(w) AS is_foreign,
           bounded AND (w.quiet_until > started OR planned.paused_mode IS NOT NULL) AS waits,
           has_table_privilege(planned.state, 'SELECT') IS NULL AS lost,
           (SELECT e.at FROM idivm.view_errors e WHERE e.view = view_id) AS failed_at,
           planned.types IS NOT NULL AS depends, planned.options,
           EXISTS (SELECT FROM idivm.sources s WHERE s.wal_since IS NOT NULL) AND idivm.reads_wal(view_id) AS reads_wal
    INTO v
    FROM idivm.views planned LEFT JOIN idivm.watermarks w ON w.view = planned.id
    WHERE planned.id = view_id AND planned.status <> 'building'
      AND has_table_privilege(planned.definition, 'SELECT') IS NOT NULL;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF bounded THEN
        v.mark.upto := pg_current_snapshot();
    END IF;
    v.recompute := v.recompute OR v.is_foreign;
    IF v.reads_wal THEN
        IF idivm.has_read_wal() THEN
            -- The logs may hold transactions that the snapshot does not see yet.
            v.mark.upto := pg_current_snapshot();
        ELSE
            PERFORM idivm.refuse_own_wal(view_id);
            v.recompute := true;
            why := 'only idivm refresh and idivm serve read changes from the WAL';
        END IF;
    END IF;
    IF by_writer AND v.waits THEN
        RETURN NULL;
    ELSIF v.recompute OR v.content_only THEN
        PERFORM idivm.require_fixed_tables(v.mark);
    END IF;
    IF v.content_only AND NOT v.recompute THEN
        IF view_id IN (SELECT idivm.synchronous_views()) THEN
            -- No writer is to wait for the other tables of a synchronous view.
            v.recompute := true;
            why := idivm.why_recomputed('S', false);
        END IF;
    END IF;
    IF by_writer AND v.failed_at > started - interval '1 minute' THEN
        RETURN NULL;
    END IF;
    IF v.lost THEN
        RAISE EXCEPTION 'the table that holds the content of % is gone', v.name
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'idivm doctor makes it again; DROP VIEW by idivm removes the view.';
    END IF;
    IF by_writer AND v.recompute THEN
        IF EXISTS (SELECT FROM idivm.views below JOIN idivm.view_errors e ON e.view = below.id
                   WHERE below.id IN (SELECT idivm.views_below(view_id)) AND below.status = 'invalid') THEN
            -- The view was left behind together with the view below, and is rebuilt after it.
            RETURN NULL;
        END IF;
    END IF;
    IF v.depends THEN
        excludes := current_setting('constraint_exclusion') = 'on';
        IF excludes THEN
            -- The planner would evaluate constraints of all tables with the rights of the view's owner.
            PERFORM set_config('constraint_exclusion', 'partition', true);
        END IF;
        refusal := idivm.forbidden(view_id);
        IF refusal IS NOT NULL AND by_writer THEN
            -- The write is still legal.
            PERFORM idivm.leave_behind(view_id, refusal);
            PERFORM set_config('constraint_exclusion', 'on', true) WHERE excludes;
            RETURN NULL;
        ELSIF refusal IS NOT NULL THEN
            RAISE EXCEPTION '%', refusal USING ERRCODE = 'insufficient_privilege';
        END IF;
    END IF;
    IF coalesce(drifts, idivm.has_drifted(view_id)) THEN
        PERFORM idivm.require_fixed_tables(v.mark);
        obstacle := idivm.obstacle(view_id);
        IF obstacle.reason IS NOT NULL THEN
            PERFORM idivm.give_up(view_id, by_writer, obstacle.reason, obstacle.remedy);
            PERFORM set_config('constraint_exclusion', 'on', true) WHERE excludes;
            RETURN NULL;
        END IF;
        v.recompute := true;
        why := idivm.trouble(view_id);
    END IF;
    IF v.recompute THEN
        -- Read this before the content is computed, so that the next refresh notices a later change of a function.
        code := idivm.code_now(view_id);
    END IF;
    IF v.has_clock AND NOT by_writer THEN
        -- The program finds the new time in the log of the clock, as the transaction's own change.
        EXECUTE format('SELECT idivm_state.%I()', 'clock_' || view_id);
        has_written := true;
    END IF;
    snapshot := coalesce((v.mark).upto, pg_current_snapshot());
    done := idivm.run_program(view_id, v.mark, v.recompute, v.content_only);
    IF v.options ->> 'relation' = 'table' THEN
        PERFORM idivm.show_table(view_id, done.kind IS NOT DISTINCT FROM 'R');
    END IF;
    IF excludes THEN
        PERFORM set_config('constraint_exclusion', 'on', true);
    END IF;
    IF v.failed_at IS NOT NULL THEN
        DELETE FROM idivm.view_errors e WHERE e.view = view_id;
    END IF;
    IF done.kind IS NULL AND NOT v.time_dependent THEN
        RETURN NULL;
    END IF;
    IF done.kind IN ('R', 'O') THEN
        -- A foreign watermark does not count the transaction's own changes as pending.
        done.marks := CASE WHEN has_written THEN idivm.own_marks(view_id) END;
    END IF;
    IF v.content_only AND done.kind = 'R' AND why IS NULL THEN
        why := idivm.why_recomputed('S', false);
    END IF;
    took := extract(epoch FROM clock_timestamp() - started);
    UPDATE idivm.watermarks w
    SET mark = ROW(snapshot, pg_current_xact_id(), done.marks, NULL)::idivm.watermark, cluster = idivm.cluster_of_session(),
        refreshed_at = clock_timestamp(), refreshes = w.refreshes + 1, changed = done.changed,
        recomputed = coalesce(done.kind <> 'C', true),
        seconds = took, total_seconds = w.total_seconds + took, held_since = NULL, quiet_until = NULL,
        content_only = done.kind IS NOT DISTINCT FROM 'O' OR w.content_only AND done.kind IS DISTINCT FROM 'R'
    WHERE w.view = view_id;
    IF NOT by_writer OR took >= 0.01 OR done.kind <> 'C' THEN
        INSERT INTO idivm.past_refreshes (view, at, changed, seconds, role, recomputed)
        VALUES (view_id, clock_timestamp(), done.changed, took, session_user,
                CASE WHEN done.kind <> 'C' OR v.time_dependent THEN coalesce(why, idivm.why_recomputed(done.kind, v.recompute, v.options)) END);
        IF v.refreshes % 1024 = 1023 THEN
            PERFORM idivm.trim_history(view_id);
        END IF;
    END IF;
    IF done.kind = 'R' THEN
        -- Log rows of another cluster only come with a watermark of another cluster.
        IF v.is_foreign THEN
            PERFORM idivm.discard_foreign_log(view_id);
        ELSE
            PERFORM idivm.note_witness(view_id, snapshot);
        END IF;
        PERFORM idivm.note_expressions(view_id);
        -- After a restored dump and VACUUM FULL, the query of the relation is stored in another place.
        UPDATE idivm.views planned SET shown = idivm.place_of(planned.relation)
        WHERE planned.id = view_id AND planned.shown IS DISTINCT FROM idivm.place_of(planned.relation)
          AND idivm.is_shown(view_id);
        IF v.recompute AND (idivm.code_drift(view_id) IN ('names', 'bodies')
                       OR EXISTS (SELECT FROM idivm.view_code c WHERE c.view = view_id AND c.place <> code.place)) THEN
            PERFORM idivm.note_code(code);
        END IF;
        -- A drift may be undone later, and this content would then be wrong without notice.
        outcome := CASE WHEN idivm.has_drifted(view_id) THEN 'invalid' ELSE 'ready' END;
        UPDATE idivm.views planned SET status = outcome WHERE planned.id = view_id AND planned.status <> outcome;
    END IF;
    IF by_writer AND v.refreshes % 256 = 255 AND current_setting('max_prepared_transactions') = '0'
       AND idivm.may_defer() THEN
        INSERT INTO idivm.commits (views, logs)
        VALUES ('{}', ARRAY(SELECT vs.source FROM idivm.view_sources vs WHERE vs.view = view_id));
    END IF;
    RETURN done.changed;
END
$$;

-- Further functions for serving and for eager views.

-- Return the threshold base N of relations in heavy and light parts: N/4 <= size < N, where N/4 is rounded down. While
-- the size stays in this range, values change their part one by one.
CREATE OR REPLACE FUNCTION idivm.threshold_base(base bigint, size bigint) RETURNS bigint
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE STRICT SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    WHILE size >= base LOOP
        base := 2 * base;
    END LOOP;
    WHILE size < base / 4 LOOP
        base := base / 2 - 1;
    END LOOP;
    RETURN base;
END
$$;
COMMENT ON FUNCTION idivm.threshold_base(bigint, bigint) IS
    'the threshold base after the data have got another size: doubled or halved as long as that asks for it';

-- Drop the functions of a view's program, whatever their signatures, to make room for the next ones.
CREATE OR REPLACE FUNCTION idivm.replace_program(view_id integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    program regprocedure;
BEGIN
    FOR program IN
        SELECT p.oid FROM pg_proc p
        WHERE p.pronamespace = 'idivm_state'::regnamespace AND p.proname IN ('refresh_' || view_id, 'content_' || view_id)
    LOOP
        EXECUTE format('DROP FUNCTION %s', program);
    END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION idivm.run_program(view_id integer, since idivm.watermark, rebuild boolean, content_only boolean,
                                             OUT changed bigint, OUT kind "char", OUT marks jsonb)
    LANGUAGE plpgsql
AS $$
BEGIN
    EXECUTE pg_catalog.format('SELECT * FROM idivm_state.%I($1, $2, $3)', 'refresh_' || view_id)
    INTO changed, kind, marks USING since, rebuild, content_only;
END
$$;
COMMENT ON FUNCTION idivm.run_program(integer, idivm.watermark, boolean, boolean) IS
    'calls the refresh function of a view';

-- Return whether recomputing the states of a view takes less time than so many accesses, where its query is expected to
-- process so many rows. A refresh that lost before, with as many accesses or fewer, loses again. A few milliseconds are
-- not compared, because the comparison takes time too. Without the work of the query, only the states count: the answer
-- may be yes too early, but never too late.
CREATE OR REPLACE FUNCTION idivm.recompute_is_cheaper(view_id integer, accesses double precision,
                                                      query_work double precision DEFAULT 0) RETURNS boolean
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    seconds double precision;
BEGIN
    IF EXISTS (SELECT FROM idivm.costs c WHERE c.view = view_id AND c.loses_from <= accesses) THEN
        RETURN true;
    END IF;
    seconds := accesses * idivm.access_seconds(view_id);
    RETURN seconds > 0.005 AND seconds > idivm.recompute_seconds(view_id, query_work);
END
$$;

-- Refresh a view that reads no view and that no view reads, in a transaction that sees what is committed. Two
-- queries get all that refresh_views asks about the order of views, synchronous views, logs and tables. For any other
-- view, return NULL after locking it. The fixed cost of a small refresh is higher between other work than in a loop: so
-- there are few and short queries, and facts that stay valid for some time are not queried again.

CREATE OR REPLACE FUNCTION idivm.refresh_alone(view_id integer, OUT changed bigint, OUT error text)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    facts record;
    reads record;
    source integer;
    pending boolean;
    state text;
    hint text;
    retry record;
BEGIN
    LOOP
        SELECT v.status = 'invalid' OR EXISTS (SELECT FROM idivm.view_errors e WHERE e.view = view_id) AS recompute,
               EXISTS (SELECT FROM idivm.sources s WHERE s.wal_since IS NOT NULL) AS any_wal, w AS watermark,
               v.has_clock, idivm.is_shared(v) AS shared
        INTO facts
        FROM idivm.views v
        JOIN idivm.watermarks w ON w.view = v.id
        WHERE v.id = view_id AND (v.maintain = 'deferred' OR v.read_from IS NOT NULL) AND NOT v.time_dependent
          AND NOT v.options ?| '{refresh_group,gate}'
          AND NOT EXISTS (SELECT FROM idivm.sources above WHERE above.relation = v.state);
        IF NOT FOUND THEN
            RETURN;
        END IF;
        SELECT array_agg(s.relation ORDER BY s.relation) AS tables, array_agg(s.id ORDER BY s.id) AS sources,
               bool_or(below.id IS NOT NULL) AS is_above
        INTO reads
        FROM idivm.view_sources vs
        JOIN idivm.sources s ON s.id = vs.source
        LEFT JOIN idivm.views below ON below.state = s.relation
        WHERE vs.view = view_id;
        IF reads.is_above IS NOT FALSE THEN
            RETURN;
        END IF;
        -- After a wait, look again.
        EXIT WHEN NOT idivm.lock_apart(ARRAY[view_id], '{}');
    END LOOP;
    BEGIN
        pending := facts.recompute OR facts.any_wal AND view_id = ANY (idivm.views_missing_wal(ARRAY[view_id]))
                   OR facts.has_clock AND idivm.clock_moved(view_id);
        IF NOT pending THEN
            FOREACH source IN ARRAY reads.sources LOOP
                pending := idivm.has_entries(to_regclass('idivm_log.s' || source || '_a'), to_regclass('idivm_log.s' || source || '_b'))
                       IS NOT FALSE AND idivm.has_any(source, (facts.watermark).mark);
                EXIT WHEN pending;
            END LOOP;
        END IF;
        IF NOT (pending OR idivm.is_foreign(facts.watermark) OR idivm.has_drifted(view_id)) THEN
            changed := 0;
            RETURN;
        END IF;
        IF facts.shared THEN
            BEGIN
                changed := coalesce(idivm.refresh_one(view_id, false, bounded => true), 0);
                RETURN;
            EXCEPTION WHEN SQLSTATE 'IV002' THEN
                NULL;
            END;
        END IF;
        PERFORM idivm.hold_sources(reads.tables);
        changed := coalesce(idivm.refresh_one(view_id, false), 0);
    EXCEPTION WHEN OTHERS THEN
        GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, error = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
        IF idivm.ends_refresh(state) THEN
            RAISE;
        END IF;
        -- The failed subtransaction has released the tables.
        PERFORM idivm.hold_sources(reads.tables);
        retry := idivm.recompute_after_error(view_id, false, state, error, hint);
        changed := retry.changed;
        error := CASE WHEN changed IS NULL THEN idivm.note_error(view_id, retry.state, retry.reason, retry.hint) END;
    END;
END
$$;
COMMENT ON FUNCTION idivm.refresh_alone(integer) IS
    'refreshes a view that reads tables alone and is read by no view, or gives NULL for both';

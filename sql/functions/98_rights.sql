-- Rights on functions: PUBLIC may not call functions that only triggers, programs and other functions of idivm
-- call.

REVOKE EXECUTE ON ROUTINE
    idivm.fold(integer),
    idivm.leave_folding(),
    idivm.views_to_fold(integer[]),
    idivm.refresh_one(integer, boolean, boolean, boolean),
    idivm.refresh_each(integer[]),
    idivm.refresh_synchronous(integer[]),
    idivm.capture_like(integer, regclass, integer, regclass, integer),
    idivm.close_batch(regclass),
    idivm.commit_begins(),
    idivm.adoptable(regclass),
    idivm.end_statement(text, text),
    idivm.end_statement_in_full(integer[], integer[]),
    idivm.clear_writer(),
    idivm.exchange(regclass, text, text, text[], boolean),
    idivm.drop_waiting(),
    idivm.free_segment(integer, regclass, xid8),
    idivm.give_up(integer, boolean, text, text),
    idivm.guard_views(),
    idivm.has_any(integer, idivm.watermark),
    idivm.hold_sources(regclass[], integer[], regclass[]),
    idivm.hold_still(regclass[], text, integer[], boolean, regclass[], regclass[]),
    idivm.invalidate_unlocked(integer[]),
    idivm.lock_eager(),
    idivm.lock_eager_of(integer[]),
    idivm.lock_readable(integer[]),
    idivm.look_after_log(integer),
    idivm.mind_limits(integer),
    idivm.note_code(idivm.view_code),
    idivm.note_dropped(integer, text, text),
    idivm.note_error(integer, text, text, text),
    idivm.note_expressions(integer),
    idivm.make_indexes(regclass, integer, regclass),
    idivm.note_index(regclass, regclass),
    idivm.note_lost(integer),
    idivm.note_shown(integer, regclass),
    idivm.note_writer(integer, integer[], integer[], integer[]),
    idivm.open_batch(regclass),
    idivm.past_prepared(integer[]),
    idivm.quiet_at(integer, timestamptz),
    idivm.recompute_after_error(integer, boolean, text, text, text),
    idivm.refresh_alone(integer),
    idivm.refresh_among(integer[], integer[], integer[], boolean, boolean, jsonb, integer[]),
    idivm.refresh_groups(integer[], integer[], integer[], boolean, integer[]),
    idivm.refresh_in_order(integer[], integer[], boolean, boolean, jsonb, integer[]),
    idivm.row_changed(),
    idivm.run_program(integer, idivm.watermark, boolean, boolean),
    idivm.discard_foreign_log(integer),
    idivm.statement_begins(),
    idivm.statement_ends(),
    idivm.sync_partitions(integer),
    idivm.trim_history(integer),
    idivm.writer(),
    idivm.written_in_turn(regclass[])
FROM PUBLIC;

-- Refreshes and collections run with the rights of the catalog's owner, so only authorized roles may call them.
REVOKE EXECUTE ON FUNCTION
    idivm.announce_feeds(integer[]),
    idivm.collect(integer),
    idivm.collect_source(integer, integer),
    idivm.collectable(integer[], integer),
    idivm.complete_states(integer[], timestamptz),
    idivm.is_due(integer[]),
    idivm.note_turns(integer[]),
    idivm.refresh_views(integer[]),
    idivm.status_of_gate(integer),
    idivm.turn_logs(integer[], integer),
    idivm.view_status(),
    idivm.work_of(integer[], integer[])
FROM PUBLIC;

CREATE OR REPLACE FUNCTION idivm.allow_refreshes(who regrole) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA idivm TO %s', who);
    EXECUTE format('GRANT SELECT ON ALL TABLES IN SCHEMA idivm TO %s', who);
    EXECUTE format('GRANT EXECUTE ON FUNCTION idivm.refresh_views(integer[]), idivm.announce_feeds(integer[]), idivm.collect(integer),'
                   ' idivm.collect_source(integer, integer), idivm.collectable(integer[], integer),'
                   ' idivm.complete_states(integer[], timestamptz), idivm.work_of(integer[], integer[]), idivm.is_due(integer[]),'
                   ' idivm.note_turns(integer[]), idivm.status_of_gate(integer), idivm.turn_logs(integer[], integer), idivm.view_status() TO %s', who);
END
$$;
COMMENT ON FUNCTION idivm.allow_refreshes(regrole) IS 'allows a role to refresh every view and to read the catalog';

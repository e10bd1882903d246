-- These functions have other names of parameters now, which a declaration cannot give to an existing function. The
-- declarations that follow create them again. The last one is a form in C of a function that has a parameter more.
-- Where idivm is an extension, this runs in a script of the extension, which may drop its members.
DROP FUNCTION IF EXISTS
    idivm.has_entries(regclass, regclass),
    idivm.log_bytes(regclass, regclass),
    idivm.note_shown(integer, regclass),
    idivm.require_valid_plan(integer, text, integer[]),
    idivm.recompute_state(regclass, text[], text[], text[], text, text[]),
    idivm.table_columns(regclass),
    idivm.lose_column(regclass, text),
    idivm.index_lookup(regclass, text[], integer[], integer),
    idivm.keep_indexes(regclass),
    idivm.unfit_table(regclass),
    idivm.show_changes(regclass, text, integer, integer[], integer[], boolean),
    idivm.showing(regclass, text, text[], integer[], integer[]),
    idivm.run_program(integer, idivm.watermark, boolean);

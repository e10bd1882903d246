"""Classifies PostgreSQL's stable functions: does the result depend on session settings alone?

PostgreSQL calls a function stable if its result may change between statements. For a view there are
two cases: `to_char` depends on the session's time zone, which can be pinned; `now()` depends on
time. Any function that is not listed here counts as time-dependent.
"""

from __future__ import annotations

from orchestrator.frontend.facts import Volatility

_SETTINGS_ONLY_NAMES = """
    anyarray_out anycompatiblearray_out anycompatiblemultirange_in anycompatiblemultirange_out
    anycompatiblerange_in anycompatiblerange_out anyenum_out anymultirange_in anymultirange_out
    anyrange_in anyrange_out anytextcat array_agg_array_transfn array_in array_out array_to_json
    array_to_string cash_in cash_out concat concat_ws convert convert_from convert_to
    date date_add date_cmp_timestamptz date_eq_timestamptz date_ge_timestamptz date_gt_timestamptz
    date_in date_le_timestamptz date_lt_timestamptz date_ne_timestamptz date_out date_part
    date_subtract date_trunc domain_in enum_first enum_in enum_last enum_out enum_range extract
    format generate_series in_range interval_in interval_out interval_pl_timestamptz
    json_agg json_agg_strict json_agg_strict_transfn json_agg_transfn json_build_array
    json_build_object json_object_agg json_object_agg_strict json_object_agg_strict_transfn
    json_object_agg_transfn json_object_agg_unique json_object_agg_unique_strict
    json_object_agg_unique_strict_transfn json_object_agg_unique_transfn json_populate_record
    json_populate_recordset json_to_record json_to_recordset json_to_tsvector
    jsonb_agg jsonb_agg_finalfn jsonb_agg_strict jsonb_agg_strict_transfn jsonb_agg_transfn
    jsonb_build_array jsonb_build_object jsonb_object_agg jsonb_object_agg_finalfn
    jsonb_object_agg_strict jsonb_object_agg_strict_transfn jsonb_object_agg_transfn
    jsonb_object_agg_unique jsonb_object_agg_unique_strict jsonb_object_agg_unique_strict_transfn
    jsonb_object_agg_unique_transfn jsonb_path_exists_tz jsonb_path_match_tz
    jsonb_path_query_array_tz jsonb_path_query_first_tz jsonb_path_query_tz jsonb_populate_record
    jsonb_populate_record_valid jsonb_populate_recordset jsonb_to_record jsonb_to_recordset
    jsonb_to_tsvector length make_timestamptz money multirange_in multirange_out numeric overlaps
    phraseto_tsquery plainto_tsquery quote_literal quote_nullable range_in range_out record_in
    record_out row_to_json textanycat time time_in timestamp timestamp_cmp_timestamptz
    timestamp_eq_timestamptz timestamp_ge_timestamptz timestamp_gt_timestamptz timestamp_in
    timestamp_le_timestamptz timestamp_lt_timestamptz timestamp_ne_timestamptz timestamp_out
    timestamptz timestamptz_cmp_date timestamptz_cmp_timestamp timestamptz_eq_date
    timestamptz_eq_timestamp timestamptz_ge_date timestamptz_ge_timestamp timestamptz_gt_date
    timestamptz_gt_timestamp timestamptz_in timestamptz_le_date timestamptz_le_timestamp
    timestamptz_lt_date timestamptz_lt_timestamp timestamptz_mi_interval timestamptz_ne_date
    timestamptz_ne_timestamp timestamptz_out timestamptz_pl_interval timetz timezone to_char to_date
    to_json to_jsonb to_number to_timestamp to_tsquery to_tsvector ts_debug ts_headline ts_match_tq
    ts_match_tt ts_parse websearch_to_tsquery xml xml_in xml_is_well_formed xml_out xmlvalidate
"""

_SETTINGS_ONLY = frozenset(_SETTINGS_ONLY_NAMES.split())

_TIME_DEPENDENT_BODIES = frozenset({"time_timetz", "timetz_zone"})
"""Functions that share a name with a settings-only function but depend on the current time.

They use the time zone offset of today for a time of day."""

SQL_VALUE_FUNCTIONS = (
    "CURRENT_DATE",
    "CURRENT_TIME",
    "CURRENT_TIME",
    "CURRENT_TIMESTAMP",
    "CURRENT_TIMESTAMP",
    "LOCALTIME",
    "LOCALTIME",
    "LOCALTIMESTAMP",
    "LOCALTIMESTAMP",
    "CURRENT_ROLE",
    "CURRENT_USER",
    "USER",
    "SESSION_USER",
    "CURRENT_CATALOG",
    "CURRENT_SCHEMA",
)
"""The functions without parentheses, in the order of PostgreSQL's numbers."""


def classify(builtin: bool, name: str, body: str, provolatile: str) -> Volatility:
    """Return the volatility of a function from its catalog entry.

    >>> classify(True, "to_char", "timestamptz_to_char", "s").value
    'settings'
    >>> classify(True, "now", "now", "s").value
    'moving'
    >>> classify(False, "to_char", "select ...", "s").value
    'moving'
    """
    if provolatile == "i":
        return Volatility.IMMUTABLE
    if provolatile == "v":
        return Volatility.VOLATILE
    if builtin and name in _SETTINGS_ONLY and body not in _TIME_DEPENDENT_BODIES:
        return Volatility.SETTINGS
    return Volatility.TIME_DEPENDENT


def worst(*volatility: Volatility) -> Volatility:
    """Return the volatility that restricts a view most.

    >>> worst(Volatility.SETTINGS, Volatility.IMMUTABLE).value
    'settings'
    """
    order = list(Volatility)
    return max(volatility, key=order.index, default=Volatility.IMMUTABLE)

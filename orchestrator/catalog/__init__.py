"""All queries on idivm's own catalog."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.catalog.dropped import DroppedView, clear_dropped, dropped_view, dropped_views
    from orchestrator.catalog.objects import has_drifted, has_other_code, readers_of_unlogged
    from orchestrator.catalog.relations import (
        OWN_SCHEMAS,
        Grant,
        distrusted,
        exists,
        give_to_owner_of,
        grant,
        is_plain_view,
        names_behind,
        publications_of_ours,
        relation_oid,
        take_settings,
        visible_names,
        visible_relations,
        with_settings,
    )
    from orchestrator.catalog.sources import (
        Member,
        captures_in_c,
        clear_key,
        column_types,
        former_functions,
        has_children,
        invalidate_readers,
        is_read_within_bounds,
        load_source,
        lost_members,
        members,
        new_members,
        note_layout,
        rings,
        source_ids,
        source_names,
        sources_with_other_layouts,
        sources_with_other_members,
        sources_without_capture,
        sources_without_their_key,
        stored_content,
        take_key,
        trigger_arguments,
    )
    from orchestrator.catalog.views import (
        ViewInfo,
        add_to_error,
        all_views,
        describe,
        note_initialised,
        note_reads,
        over_log_limit,
        readers_of,
        rebuilt_as_of,
        recomputed,
        record_indexes,
        refresh_order,
        refuse_forbidden,
        relation_name,
        sources_of,
        view_by_id,
        view_by_oid,
        view_ids,
        view_named,
        views_to_replan,
    )

__all__ = [
    "OWN_SCHEMAS",
    "DroppedView",
    "Grant",
    "Member",
    "ViewInfo",
    "add_to_error",
    "all_views",
    "captures_in_c",
    "clear_dropped",
    "clear_key",
    "column_types",
    "describe",
    "distrusted",
    "dropped_view",
    "dropped_views",
    "exists",
    "former_functions",
    "give_to_owner_of",
    "grant",
    "has_children",
    "has_drifted",
    "has_other_code",
    "invalidate_readers",
    "is_plain_view",
    "is_read_within_bounds",
    "load_source",
    "lost_members",
    "members",
    "names_behind",
    "new_members",
    "note_initialised",
    "note_layout",
    "note_reads",
    "over_log_limit",
    "publications_of_ours",
    "readers_of",
    "readers_of_unlogged",
    "rebuilt_as_of",
    "recomputed",
    "record_indexes",
    "refresh_order",
    "refuse_forbidden",
    "relation_name",
    "relation_oid",
    "rings",
    "source_ids",
    "source_names",
    "sources_of",
    "sources_with_other_layouts",
    "sources_with_other_members",
    "sources_without_capture",
    "sources_without_their_key",
    "stored_content",
    "take_key",
    "take_settings",
    "trigger_arguments",
    "view_by_id",
    "view_by_oid",
    "view_ids",
    "view_named",
    "views_to_replan",
    "visible_names",
    "visible_relations",
    "with_settings",
]

_PARTS = ("relations", "dropped", "objects", "sources", "views")


def __getattr__(name: str) -> Any:
    # The workers of a load need a few queries, and none of the plans that other queries read.
    if name in __all__:
        for part in _PARTS:
            values = vars(import_module(f"{__name__}.{part}"))
            if name in values:
                return globals().setdefault(name, values[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

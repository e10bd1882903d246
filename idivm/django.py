"""Maintained views in models and migrations of Django; see docs/how-to/frameworks.md."""

from orchestrator.integrations.django import (
    CreateMaintainedView,
    DeleteMaintainedView,
    MaintainedView,
    ReplaceMaintainedView,
)

__all__ = [
    "CreateMaintainedView",
    "DeleteMaintainedView",
    "MaintainedView",
    "ReplaceMaintainedView",
]

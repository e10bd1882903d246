"""Maintained views in SQLAlchemy; see docs/frameworks.md."""

from orchestrator.integrations.sqlalchemy import MaintainedView, prepare

__all__ = ["MaintainedView", "prepare"]

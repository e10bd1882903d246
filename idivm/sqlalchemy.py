"""Maintained views in SQLAlchemy; see docs/how-to/frameworks.md."""

from orchestrator.integrations.sqlalchemy import MaintainedView, prepare

__all__ = ["MaintainedView", "prepare"]

"""Maintained views in migrations of Alembic: import it in `env.py`; see docs/how-to/frameworks.md."""

from orchestrator.integrations.alembic import (
    CreateMaintainedViewOp,
    DropMaintainedViewOp,
    ReplaceMaintainedViewOp,
)

__all__ = ["CreateMaintainedViewOp", "DropMaintainedViewOp", "ReplaceMaintainedViewOp"]

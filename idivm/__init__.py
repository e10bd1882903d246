"""idivm: SQL views that stay up to date by themselves inside PostgreSQL.

The package `orchestrator` under the name of the product: `idivm.connect` is `orchestrator.connect`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orchestrator

if TYPE_CHECKING:
    from orchestrator import *  # noqa: F403

__all__ = orchestrator.__all__
__version__ = orchestrator.__version__


def __getattr__(name: str) -> Any:
    # Each name is loaded when it is asked for, as in the package itself.
    if name in __all__:
        return getattr(orchestrator, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__]

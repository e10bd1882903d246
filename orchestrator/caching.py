"""`cached_property` without the lock that it has before Python 3.12.

The lock belongs to the property and not to the object. So two threads that plan views, and compute such
properties one within the other in different orders, would wait for each other forever.
"""

from __future__ import annotations

import sys
from functools import cached_property
from typing import TYPE_CHECKING, Any

if not TYPE_CHECKING and sys.version_info < (3, 12):

    class cached_property(cached_property):  # noqa: N801
        """A property that is computed once for an object, or at most once by each thread."""

        def __get__(self, instance: object, owner: type | None = None) -> Any:
            """Return the value of an object."""
            if instance is None:
                return self
            values = instance.__dict__
            try:
                return values[self.attrname]
            except KeyError:
                value = values[self.attrname] = self.func(instance)
                return value


__all__ = ["cached_property"]

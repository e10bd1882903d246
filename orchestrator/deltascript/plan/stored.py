"""The stored form of plans: JSON that is written from dataclasses and read by their types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from orchestrator.deltascript.plan.query import Query
from orchestrator.deltascript.plan.steps import Step
from orchestrator.deltascript.plan.tables import State

_TAG = "type"
"""The key under which JSON has the class of a value, if its type is a union."""

_TAGGED = frozenset({*get_args(Step), *get_args(State)})

Value = TypeVar("Value")


def encoded(value: Any, query: Callable[[Query], str]) -> Any:
    """Return a value as plain JSON values; `query` encodes queries."""
    if isinstance(value, Query):
        return query(value)
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value):
        tag = {_TAG: type(value).__name__} if type(value) in _TAGGED else {}
        return {**tag, **{f.name: encoded(getattr(value, f.name), query) for f in fields(value)}}
    if isinstance(value, Mapping):
        return {encoded(key, query): encoded(element, query) for key, element in value.items()}
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple | list):
        return [encoded(element, query) for element in value]
    return value


def decoded(kind: type[Value], value: Any) -> Value:
    """Return the value of a type from the form that `encoded` returned.

    >>> from orchestrator.deltascript.plan.costs import Statistics
    >>> from orchestrator.deltascript.plan.steps import ChangeKind
    >>> keys = (((2,), 7, (1,)),)
    >>> changes = {ChangeKind.INSERT: 1.0}
    >>> known = Statistics(3.0, {1: 2.0}, changes, frozenset({1}), {1: {"-5": 0.5}}, keys)
    >>> decoded(Statistics, encoded(known, str)) == known
    True
    """
    result: Value = _decoded(kind, value)
    return result


def _decoded(kind: Any, value: Any) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return None if value is None else _decoded(_choice(arguments, value), value)
    if origin is tuple:
        kinds = arguments[:1] * len(value) if arguments[-1] is Ellipsis else arguments
        return tuple(map(_decoded, kinds, value))
    if origin is frozenset:
        return frozenset(_decoded(arguments[0], element) for element in value)
    if origin in (Mapping, dict):
        of_key, of_value = arguments
        return {
            _decoded(of_key, key): _decoded(of_value, element) for key, element in value.items()
        }
    if kind is Query:
        return Query.of_stored(value)
    if isinstance(kind, type) and is_dataclass(kind):
        hints = _hints(kind)
        return kind(**{f.name: _decoded(hints[f.name], value[f.name]) for f in fields(kind)})
    # The keys of JSON objects are strings.
    if kind in (int, float) or (isinstance(kind, type) and issubclass(kind, Enum)):
        return kind(value)
    return value


def _choice(kinds: tuple[Any, ...], value: Any) -> Any:
    """Return the member of a union that a value belongs to."""
    if isinstance(value, Mapping) and _TAG in value:
        return next(kind for kind in kinds if kind.__name__ == value[_TAG])
    words = [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
    if value in words:
        return Any
    return next(kind for kind in kinds if kind is not NoneType)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)

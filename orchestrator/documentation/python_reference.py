"""The reference of the Python API, read from signatures and docstrings."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from inspect import getattr_static
from typing import Any

import idivm
from orchestrator.caching import cached_property


def page() -> str:
    """Return the page of the public names of the package."""
    lines = [
        "# Python API",
        "",
        "Generated from signatures and docstrings by `./run docs`. [Python](python.md) shows how the parts fit",
        "together, [options](options.md) lists the options of a view, and [errors](errors.md) the exceptions.",
        "",
    ]
    names = [name for name in idivm.__all__ if not name.startswith("__")]
    objects = {name: getattr(idivm, name) for name in names}
    functions = [name for name, value in objects.items() if inspect.isroutine(value)]
    errors = [name for name, value in objects.items() if _is_error(value)]
    classes = sorted(
        set(names) - set(functions) - set(errors), key=lambda n: (n != "Orchestrator", n)
    )
    for name in functions:
        lines += [f"## {name}", "", *_described(f"idivm.{name}", objects[name])]
    for name in classes:
        lines += [f"## {name}", "", _prose(objects[name]), "", *_members(name, objects[name])]
    return "\n".join([*lines, ""])


def public_members(cls: type) -> dict[str, Any]:
    """Return the members of a class and of idivm's classes that it inherits from, in order."""
    bases = [base for base in cls.__mro__ if base.__module__.startswith("orchestrator.")]
    members = [item for base in reversed(bases) for item in vars(base).items()]
    return {key: getattr_static(cls, key) for key, _ in members if not key.startswith("_")}


def _is_error(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, Exception)


def _members(name: str, cls: type) -> Iterator[str]:
    fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
    hints = getattr(cls, "__annotations__", {}) if not fields else {}
    attributes = [(field.name, str(field.type)) for field in fields] or [
        (key, value.__forward_arg__) for key, value in hints.items() if issubclass(cls, dict)
    ]
    if attributes and cls is not idivm.ViewOptions:  # which have a page of their own
        yield from ("| attribute | type |", "|---|---|")
        for key, kind in attributes:
            yield f"| `{key}` | `{kind.replace('|', chr(92) + '|')}` |"
        yield ""
    for key, member in public_members(cls).items():
        if isinstance(member, property | cached_property):
            yield from (f"### {name}.{key}", "", _prose(member), "")
        elif inspect.isroutine(member):
            value = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            yield from (f"### {name}.{key}", "", *_described(key, value))


def _described(name: str, function: Any) -> Iterator[str]:
    signature = inspect.signature(function)
    parts = [*_parameters(signature)]
    text = f"({', '.join(parts)})"
    if len(text) > 80:
        text = "(\n    " + ",\n    ".join(parts) + ",\n)"
    prefix = "async " if inspect.iscoroutinefunction(function) else ""
    result = str(signature.return_annotation)
    yield from ("```text", f"{prefix}{name}{text} -> {result}", "```", "", _prose(function), "")


def _parameters(signature: inspect.Signature) -> Iterator[str]:
    """Yield the parameters of a function as its source has them."""
    starred = False
    for parameter in signature.parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        star = "*" if parameter.kind == parameter.VAR_POSITIONAL else ""
        star = "**" if parameter.kind == parameter.VAR_KEYWORD else star
        if parameter.kind == parameter.KEYWORD_ONLY and not starred:
            yield "*"
        starred = starred or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        default = parameter.default
        text = "..." if inspect.isroutine(default) else repr(default)
        value = "" if default is parameter.empty else f" = {text}"
        yield f"{star}{parameter.name}: {parameter.annotation}{value}"


def _prose(value: Any) -> str:
    text = inspect.getdoc(value) or ""
    return re.sub(r"(?<!\n)\n(?!\n)", " ", text)

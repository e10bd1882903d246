"""The steps of a Δ-script in relational notation, as in figure 7 of papers/idivm.txt, one line
each.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping
from functools import lru_cache

from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.distinct import Distinct
from orchestrator.algebra.operators.group import Grouping
from orchestrator.algebra.operators.project import Projection
from orchestrator.algebra.operators.scan import Scan
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.deltascript.leaves import DiffScan, StateScan, called
from orchestrator.deltascript.plan import (
    Apply,
    Assign,
    ChangeClass,
    ChangeKind,
    Source,
)
from orchestrator.deltascript.query import bare_text

_SIGNS = {ChangeKind.INSERT: "Δ⁺", ChangeKind.UPDATE: "Δᵘ", ChangeKind.DELETE: "Δ⁻"}

_WORDS = {
    **{sign: f"{kind.done} " for kind, sign in _SIGNS.items()},
    "⋈→": "LATERAL JOIN",
    "⋈": "JOIN",
    "⟕": "LEFT JOIN",
    "⟗": "FULL JOIN",
    "⋉": "SEMIJOIN",
    "▷": "ANTIJOIN",
    "⊎": "UNION ALL",
    "σ": "SELECT",
    "π": "PROJECT",
    "γ": "GROUP",
    "δ": "DISTINCT",
    "ν": "NUMBER",
    "ω": "WINDOW",
    "λ": "LIMIT",
    "μ": "RECURSION",
    "τ": "SORT",
    "∪": "UNION",
    "∩": "INTERSECT",
    "−": "EXCEPT",
    "→": "->",
}

_LONGEST = 48
"""The maximal length of a condition or a list of columns."""

_COMMENT = 104


def sign(kind: ChangeKind, of: str) -> str:
    """Return the notation of a diff.

    >>> sign(ChangeKind.DELETE, "parts")
    'Δ⁻parts'
    """
    return f"{_SIGNS[kind]}{of}"


def of_class(source: Source, change: ChangeClass) -> str:
    """Return the notation of a class of changes; an update has the columns that it touches."""
    written = sign(change.kind, source.name)
    if change.kind is not ChangeKind.UPDATE:
        return written
    return f"{written}({_short(c.name for c in source.columns if c.attnum in change.touched)})"


def reading(source: Source, classes: Iterable[ChangeClass], grows: bool = False) -> str:
    """Return the line of a step that reads changes."""
    diffs = ", ".join(of_class(source, change) for change in classes)
    if not diffs:
        return f"recompute if {source.name} has changed"
    others = f"; recompute if rows of {source.name} were updated or deleted" if grows else ""
    return f"read {diffs}{others}"


def computing(step: Assign, plan: Operator, diffs: Mapping[str, str]) -> str:
    """Return the line of a step that computes a diff."""
    return f"{step.variable} := {relational(plan, diffs)}"


def applying(step: Apply, plan: Operator, diffs: Mapping[str, str]) -> str:
    """Return the line of a step that applies a diff to a state and collects the changes."""
    words = {
        ChangeKind.INSERT: "insert into",
        ChangeKind.UPDATE: "update",
        ChangeKind.DELETE: "delete from",
    }
    word = "merge into" if step.kind == "merge" else words[step.kind]
    columns = f"({_short(name for name, _ in step.sets)})" if step.sets else ""
    action = f"{word} {step.state}{columns}"
    text = f"{action}: {relational(plan, diffs)}"
    return f"{diffs.get(step.collect, step.collect)} := {text}" if step.collect else text


def relational(plan: Operator, diffs: Mapping[str, str]) -> str:
    """Return a plan as one line; variables have the names of their diffs.

    >>> from orchestrator.algebra.examples import running_example
    >>> print(relational(running_example().root, {}))
    parts ⋈ devices_parts ⋈ σ[category = 'phone'](devices)
    """
    if isinstance(plan, DiffScan):
        return diffs.get(plan.variable, plan.variable)
    if isinstance(plan, StateScan):
        return plan.role
    if isinstance(plan, Scan):
        return called(plan)
    below = [relational(child, diffs) for child in plan.children]
    if isinstance(plan, Projection):
        return below[0]
    if isinstance(plan, Selection):
        return f"σ[{_cut(_condition(str(plan.condition)))}]({below[0]})"
    if isinstance(plan, Grouping):
        return f"γ[{_short(map(str, plan.by))}]({below[0]})"
    if isinstance(plan, UnionAll):
        return " ⊎ ".join(dict.fromkeys(below))
    if isinstance(plan, Distinct) or len(below) == 1:
        return f"{plan.symbol}({below[0]})"
    if len(below) == 2:
        return f" {plan.symbol} ".join(_operand(text, plan.symbol) for text in below)
    return f"{plan.symbol}({', '.join(below)})" if below else _cut(plan.label.partition(" → ")[0])


def in_words(notation: str) -> str:
    """Return a text with words instead of symbols.

    >>> in_words("the order leaves open what the result is: λ 4")
    'the order leaves open what the result is: LIMIT 4'
    """
    return re.sub("|".join(map(re.escape, _WORDS)), lambda match: _WORDS[match[0]], notation)


def comment(notation: str) -> list[str]:
    """Return the lines of a comment, which are ASCII except for names.

    >>> comment("insert into content: Δ⁺parts ⋈ devices_parts")
    ['-- insert into content: inserted parts JOIN devices_parts']
    >>> import orchestrator.algebra.lowering
    >>> from orchestrator.algebra.operators.base import Operator
    >>> kinds = [Operator]
    >>> for kind in kinds:
    ...     kinds += kind.__subclasses__()
    >>> symbols = [str(getattr(kind, "symbol", "")) for kind in kinds if kind is not Operator]
    >>> all(line.isascii() for symbol in symbols for line in comment(symbol))
    True
    """
    words = in_words(notation)
    flat = " ".join(words.split())
    lines = textwrap.wrap(flat, _COMMENT, break_long_words=False, break_on_hyphens=False)
    return [f"-- {line}" for line in lines]


def _operand(text: str, symbol: str) -> str:
    """Return an operand of a join, in parentheses if it is another operation."""
    inner = {operator for operator in "⋈⟕⟗⋉▷⊎" if f" {operator} " in _outside(text)}
    return f"({text})" if inner - ({symbol} if symbol == "⋈" else set()) else text


def _outside(text: str) -> str:
    """Return the text outside of parentheses and brackets."""
    depth, result = 0, []
    for part in re.split(r"([(\[\])])", text):
        if part in ("(", "["):
            depth += 1
        elif part in (")", "]"):
            depth -= 1
        elif depth == 0:
            result.append(part)
    return "".join(result)


@lru_cache(maxsize=1 << 14)
def _condition(condition: str) -> str:
    """Return a condition without casts and needless parentheses."""
    return re.sub(r"::[a-z_]+(?: [a-z_]+)*", "", bare_text(condition))


def _short(names: Iterable[str]) -> str:
    return _cut(", ".join(names))


def _cut(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _LONGEST else f"{flat[: _LONGEST - 3]}..."

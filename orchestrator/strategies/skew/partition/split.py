"""What is divided by the values of variables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.algebra.operators.set_operation import Branch
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.engine.composer import Composer
from orchestrator.strategies.viewtree.hypergraph import Variables
from orchestrator.strategies.viewtree.relation import Relation
from orchestrator.strategies.viewtree.sums import COUNT


@dataclass(frozen=True)
class Split:
    """What is divided by the values of some variables: one atom, or several atoms together."""

    name: str
    atoms: tuple[str, ...]
    on: Variables


def rows_of(split: Split, relations: Sequence[Relation], composer: Composer) -> Relation:
    """Return the values of atoms that are divided together, with the number of their rows in each."""
    names = sorted(split.on)
    columns = [composer.fresh(relations[0].keys[name]) for name in names]
    count = composer.column("rows")
    branches = tuple(
        Branch(relation.rows, (*(relation.keys[name] for name in names), relation.payload[COUNT]))
        for relation in relations
    )
    rows = UnionAll(branches, (*columns, count))
    return Relation(rows, dict(zip(names, columns, strict=True)), {COUNT: count})

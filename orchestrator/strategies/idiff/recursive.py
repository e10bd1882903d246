"""The change of a join by recursive materialisation (papers/idivm.txt, section 7.3).

DBToaster's way: for the change of each input, the join of all others is stored, so that a changed
row finds its partners by one look at each stored result that it joins. Those are kept in the same
way, and need smaller ones. What falls apart without the changed input is stored in parts, and a part
that is one input alone is read where it is.

The inputs' changes are taken one after the other. While that of an input is, the stored results
hold the earlier inputs as they are afterwards and the later ones as they were before, so that a pair
of rows that come together is found once. A later input that is read where it is shows itself as it
is afterwards; its own change is taken off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.algebra.analysis.flat import flattened
from orchestrator.algebra.columns import Column, in_order
from orchestrator.algebra.dependencies import has_key
from orchestrator.algebra.ids import ids_of
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.predicates import facts
from orchestrator.algebra.scalar import Scalar, conjunction, filled
from orchestrator.algebra.unsupported import NotModelledError
from orchestrator.deltascript.leaves import StateScan
from orchestrator.engine.composer import Composer, Part
from orchestrator.engine.diffs import Bag
from orchestrator.engine.states import Upkeep, store
from orchestrator.engine.terms import shown
from orchestrator.strategies.idiff.rules.base import bag

MOST = 64
"""Stored results of one join; a star of n inputs would need 2^n."""

Inputs = frozenset[int]


def change_of_join(operator: Operator, composer: Composer) -> Bag | None:
    """The change of a join's result as a bag, through stored joins of its inputs."""
    flat = flattened(operator)
    return _Product(operator, flat.atoms, flat.conditions, composer).change(
        [Item(column, flat.items[column]) for column in operator.columns]
    )


@dataclass
class _Product:
    operator: Operator
    atoms: Sequence[Operator]
    conditions: Sequence[Scalar]
    composer: Composer
    stored: dict[Inputs, StateScan] = field(default_factory=dict)

    def change(self, items: Sequence[Item]) -> Bag | None:
        """The inputs' changes one after the other, with the stored results in step."""
        composer = self.composer
        self._divide()
        changes = [bag(atom, composer) for atom in self.inputs]
        self.changes = [entry and composer.held("rows", entry) for entry in changes]
        whole = frozenset(range(len(self.inputs)))
        output = frozenset[Column]().union(*(item.scalar.references for item in items))
        self._store(whole, output)
        parts: list[Part] = []
        for number, changed in enumerate(self.changes):
            if changed is None:
                continue
            moved = self._joined(changed, number, whole)
            wanted = (*in_order(output, moved.plan.columns), moved.sign)
            moved = composer.held("joined", replace(moved, plan=shown(moved.plan, wanted)))
            parts.append((moved.sign, Projection(moved.plan, (*items, Item.kept(moved.sign)))))
            # The smaller ones read none that holds the input, so that any order is right.
            own = [entry for entry in self.stored if number in entry]
            found = [(entry, self._joined(changed, number, entry)) for entry in own]
            for each, moved in found:
                state = self.stored[each]
                wanted = (*state.columns, moved.sign)
                Upkeep(state, composer).apply_bag(replace(moved, plan=shown(moved.plan, wanted)))
        return composer.union([item.column for item in items], parts) if parts else None

    def _divide(self) -> None:
        """Conditions of one input go there; equalities of columns become classes."""
        columns = [column for atom in self.atoms for column in atom.columns]
        self.home = {c: n for n, atom in enumerate(self.atoms) for c in atom.columns}
        own = dict[int, list[Scalar]]()
        self.others: list[tuple[Inputs, Scalar]] = []
        classes: list[frozenset[Column]] = []
        for condition in self.conditions:
            readers = self._readers(condition.references)
            equal = facts(condition, columns).equal
            if len(readers) < 2:
                own.setdefault(min(readers, default=0), []).append(condition)
            elif equal:
                [pair] = map(frozenset, equal)
                classes = [item for item in classes if not item & pair] + [
                    pair.union(*(item for item in classes if item & pair))
                ]
            else:
                self.others.append((readers, condition))
        for change_class in classes:
            for number in self._readers(change_class):
                first, *rest = in_order(change_class & set(self.atoms[number].columns), columns)
                own.setdefault(number, []).extend(filled("x = y", x=first, y=c) for c in rest)
        self.classes = classes
        self.inputs = [
            Selection(atom, conjunction(own[n])) if own.get(n) else atom
            for n, atom in enumerate(self.atoms)
        ]

    def _readers(self, columns: Iterable[Column]) -> Inputs:
        return frozenset(self.home[column] for column in columns)

    def _parts(self, inputs: Inputs, changed: int) -> list[Inputs]:
        """What inputs fall into beside one of them, a row of which is given."""
        given = set(self.atoms[changed].columns)
        left = sorted(inputs - {changed})
        links = [self._readers(c) - {changed} for c in self.classes if not c & given]
        links += [readers for readers, _ in self.others if changed not in readers]
        parts: list[Inputs] = [frozenset({item}) for item in left]
        for link in links:
            met = [part for part in parts if part & link]
            if len(met) > 1:
                parts = [p for p in parts if p not in met] + [frozenset[int]().union(*met)]
        return sorted(parts, key=lambda part: sorted(part))

    def _store(self, inputs: Inputs, wanted: frozenset[Column]) -> None:
        """Stores what a change of any of some inputs is joined with, largest first."""
        for number in sorted(inputs):
            if self.changes[number] is None:
                continue
            for part in self._parts(inputs, number):
                if len(part) < 2 or part in self.stored:
                    continue
                if len(self.stored) == MOST:
                    raise NotModelledError(
                        f"its join needs more than {MOST} stored results", self.operator.label
                    )
                joined = self._join(part)
                outside = set(range(len(self.inputs))) - part
                read = set(wanted)
                for change_class in self.classes:
                    if self._readers(change_class) & outside:
                        read |= change_class
                for readers, condition in self.others:
                    if not readers <= part:
                        read |= condition.references
                ids = ids_of(joined)
                if not has_key(joined.keys, joined.dependencies, ids):
                    raise NotModelledError("rows that may be equal are not stored", joined.label)
                kept = [c for c in joined.columns if c in read or c in ids] or joined.columns[:1]
                role = self.composer.name("join")
                self.stored[part] = store(
                    role, shown(joined, kept), ids, self.composer, followed=False
                )
                self._store(part, wanted)

    def _join(self, inputs: Inputs) -> Operator:
        first, *rest = self._in_reach(inputs)
        plan = self.inputs[first]
        for number in rest:
            plan = Join(plan, self.inputs[number], self._between(plan, self.inputs[number]))
        return plan

    def _in_reach(self, inputs: Inputs) -> Iterator[int]:
        """Inputs in an order in which each is joined with some before it, where that is possible."""
        left = sorted(inputs)
        seen: set[int] = set()
        links = [self._readers(c) for c in self.classes] + [readers for readers, _ in self.others]
        while left:
            near = (n for n in left if any(n in link and link & seen for link in links))
            number = next(near, left[0])
            left.remove(number)
            seen.add(number)
            yield number

    def _between(self, left: Operator, right: Operator) -> Scalar:
        """The conditions that the join of two results is the first to be able to check."""
        item, other = set(left.columns), set(right.columns)
        result = []
        for equal in self.classes:
            here, there = (
                in_order(equal & item, left.columns),
                in_order(equal & other, right.columns),
            )
            result += [filled("x = y", x=x, y=y) for x, y in zip(here[:1], there[:1], strict=False)]
        for _, condition in self.others:
            read = condition.references
            if read <= item | other and not read <= item and not read <= other:
                result.append(condition)
        return conjunction(result)

    def _joined(self, changed: Bag, number: int, inputs: Inputs) -> Bag:
        """The change of the join of some inputs that one of them makes."""
        for part in self._parts(inputs, number):
            if len(part) > 1:
                state = self.stored[part]
                changed = self._with(changed, state)
                continue
            [single] = part
            later = self.changes[single] if single > number else None
            if later is not None:
                changed = self.composer.held("joined", changed)
            rows = self._with(changed, self.inputs[single])
            if later is None:
                changed = rows
                continue
            # As it was before: what has come is taken off, what has gone is there.
            both = Join(changed.plan, later.plan, self._between(changed.plan, self.inputs[single]))
            columns = [c for c in rows.plan.columns if c != changed.sign]
            sign = filled("- x * y", x=changed.sign, y=later.sign)
            changed = self.composer.union(columns, [(changed.sign, rows.plan), (sign, both)])
        return changed

    def _with(self, changed: Bag, rows: Operator) -> Bag:
        return replace(changed, plan=Join(changed.plan, rows, self._between(changed.plan, rows)))

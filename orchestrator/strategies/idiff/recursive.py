"""The change of a join by recursive materialization (papers/idivm.txt, section 7.3).

The method is DBToaster's. For the change of each input, the join of all other inputs is stored, so a
changed row finds its partners by one lookup in each stored join. The stored joins are maintained in the
same way and need smaller stored joins. If the other inputs are not connected without the changed one,
each connected component is stored separately. A component of a single input is not stored: its rows are
read directly.

The changes of the inputs are applied in sequence. While the change of an input is applied, the stored
joins hold earlier inputs after their changes and later inputs before theirs, so a pair of new rows is
counted once. A later input that is read directly is already in its new state; its change is subtracted.
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
from orchestrator.engine.terms import projected
from orchestrator.strategies.idiff.rules.base import bag

MOST = 64
"""The maximum number of stored results of one join; a star of n inputs would need 2^n."""

Inputs = frozenset[int]


def change_of_join(operator: Operator, composer: Composer) -> Bag | None:
    """Return the change of a join's result as a bag, computed with stored joins of its inputs."""
    flat = flattened(operator)
    return _Product(operator, flat.atoms, flat.conditions, composer).change(
        [Item(column, flat.items[column]) for column in operator.columns]
    )


@dataclass
class _Product:
    """A join of several inputs, and the joins of some of them that are stored so far."""

    operator: Operator
    atoms: Sequence[Operator]
    conditions: Sequence[Scalar]
    composer: Composer
    stored: dict[Inputs, StateScan] = field(default_factory=dict)

    def change(self, items: Sequence[Item]) -> Bag | None:
        """Apply the inputs' changes in sequence, keep the stored joins up to date, and return the result's change."""
        composer = self.composer
        self._divide()
        changes = [bag(atom, composer) for atom in self.inputs]
        self.changes = [change and composer.held("rows", change) for change in changes]
        whole = frozenset(range(len(self.inputs)))
        output = frozenset[Column]().union(*(item.scalar.references for item in items))
        self._store(whole, output)
        parts: list[Part] = []
        for number, changed in enumerate(self.changes):
            if changed is None:
                continue
            joined = self._change_of_join(changed, number, whole)
            wanted = (*in_order(output, joined.plan.columns), joined.sign)
            joined = composer.held("joined", replace(joined, plan=projected(joined.plan, wanted)))
            parts.append((joined.sign, Projection(joined.plan, (*items, Item.kept(joined.sign)))))
            # These joins read only joins without the changed input, so any order is right.
            affected = [part for part in self.stored if number in part]
            joins = [(part, self._change_of_join(changed, number, part)) for part in affected]
            for part, joined in joins:
                state = self.stored[part]
                wanted = (*state.columns, joined.sign)
                Upkeep(state, composer).apply_bag(
                    replace(joined, plan=projected(joined.plan, wanted))
                )
        return composer.union([item.column for item in items], parts) if parts else None

    def _divide(self) -> None:
        """Move conditions on one input into the input, and merge equal columns into classes."""
        columns = [column for atom in self.atoms for column in atom.columns]
        self.home = {c: n for n, atom in enumerate(self.atoms) for c in atom.columns}
        own = dict[int, list[Scalar]]()
        self.others: list[tuple[Inputs, Scalar]] = []
        classes: list[frozenset[Column]] = []
        for condition in self.conditions:
            readers = self._inputs_of(condition.references)
            equal = facts(condition, columns).equal
            if len(readers) < 2:
                own.setdefault(min(readers, default=0), []).append(condition)
            elif equal:
                [pair] = map(frozenset, equal)
                classes = [other for other in classes if not other & pair] + [
                    pair.union(*(other for other in classes if other & pair))
                ]
            else:
                self.others.append((readers, condition))
        for equal_columns in classes:
            for number in self._inputs_of(equal_columns):
                first, *rest = in_order(equal_columns & set(self.atoms[number].columns), columns)
                own.setdefault(number, []).extend(filled("x = y", x=first, y=c) for c in rest)
        self.classes = classes
        self.inputs = [
            Selection(atom, conjunction(own[n])) if own.get(n) else atom
            for n, atom in enumerate(self.atoms)
        ]

    def _inputs_of(self, columns: Iterable[Column]) -> Inputs:
        return frozenset(self.home[column] for column in columns)

    def _components(self, inputs: Inputs, changed: int) -> list[Inputs]:
        """Return the components into which inputs are divided, given a row of one of them."""
        given = set(self.atoms[changed].columns)
        left = sorted(inputs - {changed})
        links = [self._inputs_of(c) - {changed} for c in self.classes if not c & given]
        links += [readers for readers, _ in self.others if changed not in readers]
        parts: list[Inputs] = [frozenset({number}) for number in left]
        for link in links:
            linked = [part for part in parts if part & link]
            if len(linked) > 1:
                parts = [p for p in parts if p not in linked] + [frozenset[int]().union(*linked)]
        return sorted(parts, key=lambda part: sorted(part))

    def _store(self, inputs: Inputs, wanted: frozenset[Column]) -> None:
        """Store the joins that a change of any of these inputs needs, largest first."""
        for number in sorted(inputs):
            if self.changes[number] is None:
                continue
            for part in self._components(inputs, number):
                if len(part) < 2 or part in self.stored:
                    continue
                if len(self.stored) == MOST:
                    raise NotModelledError(
                        f"its join needs more than {MOST} stored results", self.operator.label
                    )
                joined = self._join(part)
                outside = set(range(len(self.inputs))) - part
                read = set(wanted)
                for equal_columns in self.classes:
                    if self._inputs_of(equal_columns) & outside:
                        read |= equal_columns
                for readers, condition in self.others:
                    if not readers <= part:
                        read |= condition.references
                ids = ids_of(joined)
                if not has_key(joined.keys, joined.dependencies, ids):
                    raise NotModelledError("rows that may be equal are not stored", joined.label)
                kept = [c for c in joined.columns if c in read or c in ids] or joined.columns[:1]
                role = self.composer.name("join")
                self.stored[part] = store(
                    role, projected(joined, kept), ids, self.composer, followed=False
                )
                self._store(part, wanted)

    def _join(self, inputs: Inputs) -> Operator:
        first, *rest = self._join_order(inputs)
        plan = self.inputs[first]
        for number in rest:
            plan = Join(plan, self.inputs[number], self._join_condition(plan, self.inputs[number]))
        return plan

    def _join_order(self, inputs: Inputs) -> Iterator[int]:
        """Yield inputs in an order in which each is joined with an earlier input where possible."""
        left = sorted(inputs)
        seen: set[int] = set()
        links = [self._inputs_of(c) for c in self.classes] + [readers for readers, _ in self.others]
        while left:
            near = (n for n in left if any(n in link and link & seen for link in links))
            number = next(near, left[0])
            left.remove(number)
            seen.add(number)
            yield number

    def _join_condition(self, left: Operator, right: Operator) -> Scalar:
        """Return the conditions that the join of two results is the first to satisfy."""
        ours, theirs = set(left.columns), set(right.columns)
        result = []
        for equal in self.classes:
            here, there = (
                in_order(equal & ours, left.columns),
                in_order(equal & theirs, right.columns),
            )
            result += [filled("x = y", x=x, y=y) for x, y in zip(here[:1], there[:1], strict=False)]
        for _, condition in self.others:
            read = condition.references
            if read <= ours | theirs and not read <= ours and not read <= theirs:
                result.append(condition)
        return conjunction(result)

    def _change_of_join(self, changed: Bag, number: int, inputs: Inputs) -> Bag:
        """Return the change of the join of some inputs that the change of one input causes."""
        for part in self._components(inputs, number):
            if len(part) > 1:
                state = self.stored[part]
                changed = self._join_with(changed, state)
                continue
            [single] = part
            later = self.changes[single] if single > number else None
            if later is not None:
                changed = self.composer.held("joined", changed)
            rows = self._join_with(changed, self.inputs[single])
            if later is None:
                changed = rows
                continue
            # Read the input as it was before its change: subtract inserted rows, add deleted rows.
            both = Join(
                changed.plan, later.plan, self._join_condition(changed.plan, self.inputs[single])
            )
            columns = [c for c in rows.plan.columns if c != changed.sign]
            sign = filled("- x * y", x=changed.sign, y=later.sign)
            changed = self.composer.union(columns, [(changed.sign, rows.plan), (sign, both)])
        return changed

    def _join_with(self, changed: Bag, rows: Operator) -> Bag:
        return replace(
            changed, plan=Join(changed.plan, rows, self._join_condition(changed.plan, rows))
        )

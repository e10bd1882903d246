"""The steps that maintain parts, the views over them, and the listed result, in the order of `program`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.deltascript.plan import (
    Assign,
)
from orchestrator.strategies.skew.part_states import PartStates
from orchestrator.strategies.skew.partition.split import Split
from orchestrator.strategies.skew.shared import Changes
from orchestrator.strategies.skew.triangle import (
    HEAVY,
    LIGHT,
    Division,
)
from orchestrator.strategies.viewtree.relation import Relation
from orchestrator.strategies.viewtree.tree import View


class PartUpkeep(PartStates):
    """Adds the steps that apply changes of atoms."""

    def _maintain(self) -> None:
        """Add the steps that maintain all states."""
        changing = [
            division
            for division in dict.fromkeys(self.sharing.first.values())
            if division.atom not in self.views.static
        ]
        deltas: dict[Division, Relation] = {}
        for division in changing:
            atom = self.views.atoms[division.atom]
            bag = self.views.change_of(atom)
            changed = self.views.leaf(division.whole, atom, atom.rows(bag.plan), bag.sign)
            deltas[division] = self.views.assigned(division.whole, changed)
        if not deltas:
            return
        splits = dict.fromkeys(split for division in changing for split in division.splits)
        for split in splits:
            self.degrees.add(split, [d for key, d in deltas.items() if key.atom in split.atoms])
        # Without a change of a divided relation no part changes.
        major = self.degrees.rebalance() if self.degrees.changes else None
        if major is not None:
            self._move_together()
        for division in dict.fromkeys(self.sharing.first.values()):
            if self._equal(division) != [division]:
                self._change_shared(division, deltas.get(division), major)
                continue
            moves = []
            for split in () if division.together or major is None else division.splits:
                moves.append(self._move(division, split))
                self.degrees.apply_moves(split)
            self._apply_change(division, deltas.get(division), moves)
        if major is not None:
            self.degrees.end(major)

    def _equal(self, division: Division) -> list[Division]:
        """Return the divisions that share their states with a division, and itself."""
        first = self.sharing.first
        return [other for other in self.skew.divisions if first[other] is division]

    def _change_shared(self, division: Division, delta: Relation | None, major: str | None) -> None:
        """Add the steps that change the parts of equal atoms, and the views over them."""
        for position, split in enumerate(division.splits if major is not None else ()):
            self._apply_shared(division, self._moved(division, split), position)
            self.degrees.apply_moves(split)
        if delta is not None:
            parts = {
                part: delta
                if part == division.whole
                else self.views.assigned(part, self._part(division, part, delta))
                for part in division.parts
            }
            self._apply_shared(division, parts)

    def _apply_shared(
        self, division: Division, parts: Mapping[View, Relation], moved: int | None = None
    ) -> None:
        """Add the steps that apply changes of the parts of equal atoms to everything."""
        equal = {other.atom: other for other in self._equal(division)}
        changes = Changes(self.views, self.sharing, equal, parts, self._current, moved)
        done: frozenset[str] = frozenset()
        for other in equal.values() if self.skew.factorized or moved is None else ():
            self.met = partial(changes.at, done=done)
            self._add_to_root(other, changes.of_part)
            done |= {other.atom}
        self.met = self._current
        stored = [view for view in self.skew.views if view not in self.sharing.twins]
        deltas = [(view, changes.of(view, frozenset(equal))) for view in stored]
        for view, delta in (*deltas, *parts.items()):
            if delta is not None:
                self.views.add(self.views.states[view], delta)

    def _move_together(self) -> None:
        """Move values of atoms that are divided together, before any of these atoms changes."""
        together = [division for division in self.skew.divisions if division.together]
        for division in together:
            moves = [self._move(division, split) for split in division.splits]
            self._apply_change(division, None, moves)
        for split in dict.fromkeys(split for division in together for split in division.splits):
            self.degrees.apply_moves(split)

    def _apply_change(
        self, division: Division, delta: Relation | None, moves: Sequence[Mapping[View, Relation]]
    ) -> None:
        """Add the steps that change the parts of a relation, and then the views over them."""
        changes: dict[View, Relation] = {}
        if delta is not None:
            for part in division.parts:
                rows = self._part(division, part, delta)
                changes[part] = delta if part == division.whole else self.views.assigned(part, rows)
                self.views.add(self.views.states[part], changes[part])

        def change_of(part: View) -> Relation | None:
            """Return the change of a part, without values that move between parts."""
            if delta is None or part == division.whole:
                return delta
            return self._union(delta, [changes[inner] for inner in division.within(part)])

        @cache
        def change_and_moves(part: View) -> Relation | None:
            # Moves between inner parts of a part are moves within it.
            moves_within = [
                moved_rows[inner]
                for position, moved_rows in enumerate(moves)
                if division.is_marked(part, position)
                for inner in division.within(part)
            ]
            own = change_of(part)
            if not moves_within:
                return own
            both = self._union(
                self.views.defined[division.whole], [*moves_within, *([own] if own else [])]
            )
            return self.views.assigned(part, both)

        # If all cases are listed, moving rows does not change their sum.
        self._add_to_root(division, change_and_moves if self.skew.factorized else change_of)
        self._add_to_views(division, change_and_moves)

    def _add_to_root(self, division: Division, of: Callable[[View], Relation | None]) -> None:
        """Add the step that adds the change of an atom's parts to the listed result."""
        skew = self.skew
        deltas = [(rule, of(rule.part)) for rule in skew.rules[division.atom]]
        rules = [(rule, delta) for rule, delta in deltas if delta is not None]
        if not rules:
            return
        relations = [self._joined(rule, delta) for rule, delta in rules]
        by_keys = [rule.by_key for rule, _ in rules]
        if not all(by_keys):
            # A step of its own, so that these lookups are not hashed.
            relations = [
                self.views.assigned(skew.root, rows) if by_key else rows
                for rows, by_key in zip(relations, by_keys, strict=True)
            ]
        delta = self.views.assigned(skew.root, self.views.summed(skew.root, relations))
        if not all(by_keys):
            # Values that change often tend to have many rows.
            step = self.views.composer.steps[-1]
            assert isinstance(step, Assign)
            self.views.composer.steps[-1] = replace(step, hashed=True)
        state = self.content.state if self.content else self.views.states[skew.root]
        self.views.add(state, delta, self.content)

    def _add_to_views(self, division: Division, of: Callable[[View], Relation | None]) -> None:
        """Add the steps that add the change of an atom's parts to the views over them."""
        changed: dict[View, Relation] = {}
        for view in self.skew.views:
            rule = self.skew.view_rules.get(view, {}).get(division.atom)
            if rule is not None:
                delta = of(rule.part)
                if delta is not None:
                    rows = self._joined(rule, delta, view)
                    self.views.add(self.views.states[view], self.views.assigned(view, rows))
                continue
            for position, child in enumerate(view.children):
                delta = of(child) if child.atoms == (division.atom,) else changed.get(child)
                if delta is None:
                    continue
                children = [
                    delta if n == position else self._current(v)
                    for n, v in enumerate(view.children)
                ]
                rows = self.views.inner(view, children, position, as_listed=True)
                changed[view] = self.views.assigned(view, rows)
                self.views.add(self.views.states[view], changed[view])

    def _move(self, division: Division, split: Split) -> dict[View, Relation]:
        """Move the rows of values that change their part by one split; return the changes of the parts."""
        changes = self._moved(division, split)
        for part, delta in changes.items():
            self.views.add(self.views.states[part], delta)
        return changes

    def _moved(self, division: Division, split: Split) -> dict[View, Relation]:
        """Return the changes of the parts by the rows of values that change their part by one split."""
        position, whole = division.splits.index(split), self.views.defined[division.whole]
        changes: dict[View, Relation] = {}
        for heavy in division.parts:
            if heavy.part[position] != HEAVY:
                continue
            light = division.part(f"{heavy.part[:position]}{LIGHT}{heavy.part[position + 1 :]}")
            rows = self.degrees.moves(
                split, whole, (self.views.states[heavy], self.views.states[light])
            )
            changes[heavy] = self.views.assigned(heavy, whole.at(rows))
            negated = [Item(column, part.negated(column)) for part, column in whole.payload.items()]
            keys = map(Item.kept, whole.keys.values())
            rows = Projection(changes[heavy].rows, (*keys, *negated))
            changes[light] = self.views.assigned(light, whole.at(rows))
        return changes

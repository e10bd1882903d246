"""Pass 4: minimization of queries by facts about diffs (papers/idivm.txt, figure 8).

A base table R is read in its state after the change, and the diffs of a source are its net changes.
Hence, for rows with the same key:

- C1: the rows of Δ+ are in R, with the values of the diff,
- C2: the rows of Δ- are not in R,
- C3: the rows of Δu are in R, with the values of the diff after the change.

If a diff and its table are joined on the table's key, one of the two is not needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.algebra.analysis.flat import Flat, flattened, in_terms
from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.copies import copied
from orchestrator.algebra.examples import PARTS, PID, PRICE
from orchestrator.algebra.operators.antisemijoin import Antisemijoin
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.scan import Scan
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.semijoin import Semijoin
from orchestrator.algebra.passes.push_conditions import joined_on
from orchestrator.algebra.predicates import equal_columns
from orchestrator.algebra.scalar import FALSE, Scalar, conjunction, filled
from orchestrator.algebra.traversal import walk
from orchestrator.deltascript.leaves import DiffScan
from orchestrator.deltascript.plan import ChangeKind


@dataclass(frozen=True)
class Held:
    """The changes that a variable holds: rows of a table that a key identifies."""

    kind: ChangeKind
    table: int
    key: frozenset[int]
    fields: Mapping[int, str]
    """The fields of the table's columns, without the prefix `old_` or `new_`."""


@dataclass(frozen=True)
class Meeting:
    """A diff and its table that are joined on the key."""

    diff: DiffScan
    held: Held
    rows: Scan

    @property
    def is_delete(self) -> bool:
        """Whether the rows of the diff are no longer in the table."""
        return self.held.kind is ChangeKind.DELETE

    def wide(self) -> tuple[DiffScan, dict[Column, Scalar]]:
        """Return the diff with the table's columns after the change, and replacements for the
        table's columns.
        """
        known = {name: column for column, name in self.diff.outputs}
        added = []
        replacements = {}
        for output in self.rows.outputs:
            name = f"new_{self.held.fields[output.attnum]}"
            if name not in known:
                added.append((output.column, name))
            elif known[name] != output.column:
                replacements[output.column] = Scalar.column(known[name])
        return replace(self.diff, outputs=(*self.diff.outputs, *added)), replacements


# Figure 8 ------------------------------------------------------------------------------------------


def join_with_table(product: Flat, meeting: Meeting) -> Flat:
    """Δ+ ⋈ R → Δ+ and Δu ⋈ R → Δu, independent of other inputs of the join.

    >>> flat = join_with_table(*_example(ChangeKind.INSERT, joined=True))
    >>> [atom.label for atom in flat.atoms], flat.conditions, list(flat.items.values())
    (['diff parts_inserted'], (Scalar(price > 5),), [Scalar(price)])
    """
    diff, replacements = meeting.wide()
    key = _keys(meeting, diff)
    conditions = [condition.substitute(replacements) for condition in product.conditions]
    return Flat(
        tuple(
            diff if atom is meeting.diff else atom
            for atom in product.atoms
            if atom is not meeting.rows
        ),
        tuple(condition for condition in conditions if not _is_trivial(condition, key)),
        {column: scalar.substitute(replacements) for column, scalar in product.items.items()},
    )


def join_after_deletion(product: Flat) -> Flat:
    """Δ- ⋈ R → ∅.

    >>> product, meeting = _example(ChangeKind.DELETE, joined=True)
    >>> join_after_deletion(product).conditions
    (Scalar(FALSE),)
    """
    return replace(product, conditions=(FALSE,))


def semijoin_with_table(left: Flat, meeting: Meeting, condition: Scalar) -> Flat:
    """Δ+ ⋉ σφ(R) → σφ(Δ+) and Δu ⋉ σφ(R) → σφ(Δu), with φ over the new values in the diff.

    >>> left, meeting = _example(ChangeKind.UPDATE)
    >>> semijoin_with_table(left, meeting, Scalar.read("(pid = id) AND (price > 5)", [PID, PRICE, _ID])).conditions
    (Scalar(price > 5),)
    """
    return join_with_table(
        replace(left, conditions=(*left.conditions, *condition.conjuncts)), meeting
    )


def semijoin_with_diff(left: Flat, meeting: Meeting, condition: Scalar) -> Flat:
    """R ⋉ σφ(Δ+) → σφ(Δ+) and R ⋉ σφ(Δu) → σφ(Δu), with the columns of R; a diff has each key once.

    >>> _, meeting = _example(ChangeKind.INSERT)
    >>> left = Flat((meeting.rows,), (), {PRICE: Scalar.column(PRICE)})
    >>> flat = semijoin_with_diff(left, meeting, Scalar.read("pid = id", [PID, _ID]))
    >>> [atom.label for atom in flat.atoms], flat.conditions
    (['diff parts_inserted'], ())
    """
    both = Flat((*left.atoms, meeting.diff), (*left.conditions, *condition.conjuncts), left.items)
    return join_with_table(both, meeting)


def antisemijoin_with_table(left: Flat, meeting: Meeting, condition: Scalar) -> Flat:
    """Δ+ ▷ σφ(R) → σ¬φ(Δ+) and Δu ▷ σφ(R) → σ¬φ(Δu), with φ over the new values in the diff.

    >>> left, meeting = _example(ChangeKind.INSERT)
    >>> antisemijoin_with_table(left, meeting, Scalar.read("(pid = id) AND (price > 5)", [PID, PRICE, _ID])).conditions
    (Scalar(((price > 5)) IS NOT TRUE),)
    """
    matching = semijoin_with_table(replace(left, conditions=()), meeting, condition)
    _, replacements = meeting.wide()
    own = [conjunct.substitute(replacements) for conjunct in left.conditions]
    negated = filled("(x) IS NOT TRUE", x=conjunction(matching.conditions))
    return replace(matching, conditions=(*own, negated))


# How they are applied ------------------------------------------------------------------------------


def minimized(plan: Operator, held: Mapping[str, Held], symbols: Symbols) -> Operator:
    """Return the plan without tables that diffs can replace, and without parts that have no rows."""
    tables = {operator.table.oid for operator in walk(plan) if isinstance(operator, Scan)}
    read = {operator.variable for operator in walk(plan) if isinstance(operator, DiffScan)}
    if any(name in read and changes.table in tables for name, changes in held.items()):
        return _Minimizer(held, symbols).of(plan)
    return plan


@dataclass
class _Minimizer:
    held: Mapping[str, Held]
    symbols: Symbols

    def of(self, plan: Operator) -> Operator:
        """Return a plan with each group of adjacent joins minimized."""
        if isinstance(plan, Semijoin):
            return self._semijoin(plan)
        if not isinstance(plan, Join | Selection | Projection):
            return plan.with_children(tuple(map(self.of, plan.children))) if plan.children else plan
        cluster = _Cluster(self)
        product = cluster.of(plan)
        smaller = product
        while meeting := next(
            self._meetings(smaller.atoms, smaller.atoms, smaller.conditions), None
        ):
            if meeting.is_delete:
                smaller = join_after_deletion(smaller)
                break
            smaller = join_with_table(smaller, meeting)
        return cluster.unchanged(plan) if smaller is product else _plan(smaller, plan.columns)

    def _semijoin(self, plan: Semijoin) -> Operator:
        """Apply the rules of figure 8 for semijoin (⋉) and antisemijoin (▷)."""
        plan = replace(plan, left=self.of(plan.left), right=self.of(plan.right))
        left, right = flattened(plan.left), flattened(plan.right)
        if len(right.atoms) != 1 or _shared((*left.atoms, *right.atoms)):
            return plan
        condition = conjunction(
            [*right.conditions, in_terms(in_terms(plan.condition, right.items), left.items)]
        )
        conditions = (*left.conditions, *condition.conjuncts)
        anti = isinstance(plan, Antisemijoin)
        [other] = right.atoms
        for meeting in self._meetings(left.atoms, right.atoms, conditions):
            if meeting.is_delete:
                # Δ- ⋉ R → ∅, R ⋉ Δ- → ∅, Δ- ▷ R → Δ-, R ▷ Δ- → R.
                return plan.left if anti else Selection(plan.left, FALSE)
            if other is meeting.rows:
                rule = antisemijoin_with_table if anti else semijoin_with_table
                return _plan(rule(left, meeting, condition), plan.columns)
            if not anti:
                return _plan(semijoin_with_diff(left, meeting, condition), plan.columns)
        return plan

    def _meetings(
        self, operators: Sequence[Operator], other: Sequence[Operator], conditions: Iterable[Scalar]
    ) -> Iterator[Meeting]:
        """Yield the diffs and tables on opposite sides that are joined on the key."""
        atoms = dict.fromkeys((*operators, *other))
        equal = _Equal(atoms, conditions)
        for diff in (atom for atom in atoms if isinstance(atom, DiffScan)):
            held = self.held.get(diff.variable)
            for rows in (atom for atom in atoms if isinstance(atom, Scan) and not atom.only):
                apart = (diff in operators and rows in other) or (
                    diff in other and rows in operators
                )
                if held is not None and apart and rows.table.oid == held.table:
                    meeting = Meeting(diff, held, rows)
                    if equal.on_key(meeting):
                        yield meeting


@dataclass
class _Cluster:
    """Turns joins, selections and projections into one product of inputs that share no column."""

    inside: _Minimizer
    columns: set[Column] = field(default_factory=set)
    aliases: set[str] = field(default_factory=set)
    done: dict[Operator, Operator] = field(default_factory=dict)

    def of(self, plan: Operator) -> Flat:
        """Return the product."""
        return flattened(plan, atom=self._atom)

    def unchanged(self, plan: Operator) -> Operator:
        """Return the original plan over its minimized inputs."""
        if plan in self.done:
            return self.done[plan]
        return plan.with_children(tuple(map(self.unchanged, plan.children)))

    def _atom(self, plan: Operator) -> Flat:
        atom = self.done[plan] = self.inside.of(plan)
        aliases = {operator.alias for operator in walk(atom) if hasattr(operator, "alias")}
        new_columns = {column: column for column in atom.columns}
        if aliases & self.aliases or self.columns & new_columns.keys():
            atom, copies = copied(atom, self.inside.symbols)
            new_columns = {column: copies.get(column, column) for column in new_columns}
            aliases = {operator.alias for operator in walk(atom) if hasattr(operator, "alias")}
        self.aliases |= aliases
        self.columns |= set(atom.columns)
        return Flat((atom,), (), {old: Scalar.column(new) for old, new in new_columns.items()})


class _Equal:
    """The columns that some conditions make equal."""

    def __init__(self, atoms: Iterable[Operator], conditions: Iterable[Scalar]) -> None:
        columns = {column for atom in atoms for column in atom.columns}
        self.classes = equal_columns(conditions, columns)

    def on_key(self, meeting: Meeting) -> bool:
        """Return whether a diff and its table are joined on the key."""
        side = "old" if meeting.is_delete else "new"
        fields = meeting.held.fields
        own = {output.attnum: output.column for output in meeting.rows.outputs}
        if not meeting.held.key <= own.keys() <= fields.keys():
            return False
        return all(
            any(
                {own[number], column} <= equal
                for column, name in meeting.diff.outputs
                if name == f"{side}_{fields[number]}"
                for equal in self.classes
            )
            for number in meeting.held.key
        )


def _plan(product: Flat, columns: Iterable[Column]) -> Operator:
    """Return a product as a plan that starts with the diffs."""
    inputs = sorted(product.atoms, key=lambda atom: not isinstance(atom, DiffScan))
    items = tuple(Item(column, product.items[column]) for column in columns)
    return Projection(joined_on(inputs, product.conditions), items)


def _keys(meeting: Meeting, diff: DiffScan) -> frozenset[Column]:
    """Return the columns of a diff that hold the key after the change, which is never NULL."""
    names = {f"new_{meeting.held.fields[number]}" for number in meeting.held.key}
    return frozenset(column for column, name in diff.outputs if name in names)


def _is_trivial(condition: Scalar, not_null: frozenset[Column]) -> bool:
    return any(condition == filled("x = x", x=column) for column in not_null)


def _shared(atoms: Iterable[Operator]) -> bool:
    columns = [column for atom in atoms for column in atom.columns]
    return len(columns) != len(set(columns))


_ID = Column("id", "integer", "integer_ops", exact=True)


def _example(kind: ChangeKind, joined: bool = False) -> tuple[Flat, Meeting]:
    """Return a diff of `parts` for the examples of the rules, alone or joined with the table."""
    held = Held(kind, PARTS.table.oid, frozenset({1}), {1: "pid", 2: "price"})
    name = "old_pid" if kind is ChangeKind.DELETE else "new_pid"
    diff = DiffScan(f"parts_{kind.done}", "d", ((_ID, name),))
    texts = ["pid = id", "price > 5"] if joined else []
    return (
        Flat(
            (diff, PARTS) if joined else (diff,),
            tuple(Scalar.read(text, [PID, PRICE, _ID]) for text in texts),
            {PRICE: Scalar.column(PRICE)} if joined else {_ID: Scalar.column(_ID)},
        ),
        Meeting(diff, held, PARTS),
    )

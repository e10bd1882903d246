"""μ(R), WITH RECURSIVE: with UNION, delete what deleted rows derive, then add what the tables derive.

If base and step consist of operators that are linear in each table, inserted rows can only add to the
result. The additions start from the new rows of base and step, given the result so far, and continue
with the step over the rows added last while they are new.

A row that was derived from a deleted row may still have another derivation. All such rows are deleted:
those that base and step derive from deleted rows and the stored result, and what the step derives from
these along the rows that stay. A deleted row that the tables still derive from the rest of the result is
an addition like any other. No other row can come back first.

If a table has no key, nothing tells which of its rows stay. Then the whole recursion is recomputed after
a delete or update, and its result replaced by difference, as for every recursion that is not linear.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.antisemijoin import Antisemijoin
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.group import Aggregate, Grouping
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.recursive import Recursion, RecursiveScan
from orchestrator.algebra.operators.scan import Scan
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.set_operation import Branch
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.scalar import Scalar, filled
from orchestrator.algebra.traversal import rewrite, walk
from orchestrator.algebra.unsupported import NotModelledError
from orchestrator.deltascript.leaves import DiffScan, StateScan
from orchestrator.deltascript.plan import ChangeKind
from orchestrator.engine.composer import Composer
from orchestrator.engine.diffs import Bag, variables
from orchestrator.engine.leaves import Sides, constant, sides
from orchestrator.engine.recompute_parts import exchange
from orchestrator.engine.states import Upkeep, store
from orchestrator.engine.terms import renamed, same, shown
from orchestrator.strategies.idiff.rules.base import bag, change, has_rule
from orchestrator.strategies.idiff.rules.stored import maintain

MOST = 500_000
"""The maximum number of derivations that a change carries on; with more, all derivations are recomputed."""

FEW = 1_000
"""The maximum if derivations that cancel each other may run in a cycle: without a key, a table does not
tell which of its rows stay. Each round may make such derivations longer."""


@maintain.register
def _(operator: Recursion, composer: Composer, role: str) -> StateScan:
    changed = _variables(operator, composer)
    state = store(role, operator, operator.outputs, composer)
    upkeep = Upkeep(state, composer)
    linear = _is_linear(operator)
    halves = _halves(operator, composer) if linear else None
    if halves is not None:
        _derive(upkeep, operator, _delete_derived(upkeep, operator, halves))
        return state
    kinds = {diff_class.variable: diff_class.kind for diff_class in composer.classes.values()}
    recompute_after = {variable for variable in changed if kinds[variable] is not ChangeKind.INSERT}
    note = "when rows of its tables go or change" if linear else "after every change"
    composer.notes.append(f"the recursion {operator.name} is computed again whole {note}")
    if not linear:
        recompute_after = changed
    fresh = composer.assign(f"{role}_after", operator, operator.columns, recompute_after)
    exchange(upkeep, state, fresh, recompute_after)
    if linear:
        _derive(upkeep, operator)
    return state


def _variables(operator: Recursion, composer: Composer) -> set[str]:
    """Return the variables that hold the changes of the recursion's tables; refuse other leaves."""
    result: set[str] = set()
    for leaf in walk(operator):
        if isinstance(leaf, Scan):
            changed = bag(leaf, composer)
            result |= variables(changed.plan) if changed is not None else frozenset()
        elif not leaf.children and not isinstance(leaf, RecursiveScan):
            constant(leaf)
    return result


def _is_linear(operator: Recursion) -> bool:
    return not any(
        (item.children and not has_rule(change, item)) or any(s.subqueries for s in item.scalars)
        for branch in (operator.base, operator.step)
        for item in walk(branch.input)
    )


def changes_of_recursion(
    operator: Recursion, state: StateScan, composer: Composer
) -> Iterator[Bag]:
    """Yield the change of μ(R) with UNION ALL, as bags to apply to the stored result in sequence.

    Every derivation counts. A derivation is gone if it used a deleted row. Take the last deleted row in
    it: the row was joined with a stored row, and the later steps used only rows that still exist. So the
    first bag starts with what base and step derive from the deleted rows and the stored result, and
    carries it on along the rows that stay. Afterwards the result has the derivations from rows that stay.
    A derivation is new if it uses an inserted row. Take the first inserted row in it: the row is joined
    with a remaining row of the result. So the second bag starts with these derivations and carries them
    on along all rows that exist now. Each round finds derivations that existed or exist, so a cycle that
    is not reached from the base is not entered.

    If a table has no key, nothing tells which of its rows stay. Then both halves are carried on along all
    rows that exist now, with their signs. The limit is lower, because derivations may run in a cycle
    although they cancel each other.
    """
    changed = _variables(operator, composer)
    if not _is_linear(operator):
        raise NotModelledError("a recursive UNION ALL of more than joins", operator.label)
    if not changed:
        return
    halves = _halves(operator, composer)
    if halves is None:
        first = list(_first_round(operator, state, composer))
        yield _carry_on(operator, operator.step.input, first, composer, changed, FEW)
        return
    kept = _along_kept_rows(operator, halves)
    rounds: list[tuple[Operator, dict[Operator, Bag]]] = [
        (kept, {half.kept: half.gone for half in halves.values()}),
        (operator, {scan: half.come for scan, half in halves.items()}),
    ]
    for recursion, changes in rounds:
        assert isinstance(recursion, Recursion)
        needs = {name for bag_of_table in changes.values() for name in variables(bag_of_table.plan)}
        first = list(_first_round(recursion, state, composer, changes))
        yield _carry_on(operator, recursion.step.input, first, composer, needs, MOST)


def _halves(operator: Recursion, composer: Composer) -> dict[Scan, Sides] | None:
    """Return the rows of each changed table that go, come and stay, or None if a table has no key."""
    scans = [
        scan
        for scan in walk(operator)
        if isinstance(scan, Scan) and bag(scan, composer) is not None
    ]
    found = {scan: sides(scan, composer) for scan in scans}
    halves = {scan: of_scan for scan, of_scan in found.items() if of_scan is not None}
    return halves if len(halves) == len(found) else None


def _along_kept_rows(operator: Recursion, halves: Mapping[Scan, Sides]) -> Recursion:
    """Return the recursion over the rows that stay."""

    def stays(plan: Operator) -> Operator:
        return halves[plan].kept if isinstance(plan, Scan) and plan in halves else plan

    kept = operator.with_children(tuple(rewrite(child, stays) for child in operator.children))
    assert isinstance(kept, Recursion)
    return kept


def _delete_derived(
    upkeep: Upkeep, operator: Recursion, halves: Mapping[Scan, Sides]
) -> DiffScan | None:
    """Add the steps that delete the rows with a derivation that used a deleted row; return these rows.

    Take the last deleted row in such a derivation: it was joined with a stored row, and the later steps
    used only rows that stay.
    """
    composer = upkeep.composer
    kept = _along_kept_rows(operator, halves)
    gone = {half.kept: half.gone for half in halves.values()}
    seeds = [
        Branch(shown(changed.plan, branch.columns), branch.columns)
        for branch, changed in _first_round(kept, upkeep.state, composer, gone)
    ]
    if not seeds:
        return None
    needs = {name for changed in gone.values() for name in variables(changed.plan)}
    united = tuple(map(composer.fresh, operator.outputs))
    first = Branch(UnionAll(tuple(seeds), united), united)
    derived, outputs = _continued(operator, first, kept.step, composer)
    lost = composer.assign(
        "withdrawn",
        renamed(derived, zip(outputs, operator.outputs, strict=True)),
        operator.outputs,
        sorted(needs),
        at_most=MOST,
    )
    upkeep.delete(lost, upkeep.state.ids)
    return lost


def _continued(
    operator: Recursion, first: Branch, step: Branch, composer: Composer
) -> tuple[Recursion, tuple[Column, ...]]:
    """Return the rows of a first round and what the step derives from them, and their columns."""
    name = composer.symbols.fresh(operator.name)
    outputs = tuple(map(composer.fresh, operator.outputs))
    names = tuple(column.symbol for column in outputs)

    def replace_scan(scan: Operator) -> Operator:
        if not isinstance(scan, RecursiveScan) or scan.name != operator.name:
            return scan
        return replace(scan, name=name, names=names)

    next_rows = replace(step, input=rewrite(step.input, replace_scan))
    return Recursion(name, first, next_rows, outputs), outputs


def _carry_on(
    operator: Recursion,
    step: Operator,
    first: Sequence[tuple[Branch, Bag]],
    composer: Composer,
    needs: Iterable[str],
    at_most: int,
) -> Bag:
    """Apply the step repeatedly to the rows of a first round; every row keeps its sign."""
    united = tuple(map(composer.fresh, operator.outputs))
    parts = []
    for branch, changed in first:
        named = zip(united, branch.columns, strict=True)
        items = [Item(new, Scalar.column(old)) for new, old in named]
        parts.append(
            (
                changed.sign,
                Projection(changed.plan, (*items, Item.kept(changed.sign))),
            )
        )
    seeds = composer.union(united, parts)
    name = composer.symbols.fresh(operator.name)
    outputs = tuple(map(composer.fresh, (*operator.outputs, seeds.sign)))
    sign = composer.fresh(seeds.sign)

    def with_sign(plan: Operator) -> Operator:
        """Return the step with the sign of the rows added last as a further column."""
        if isinstance(plan, RecursiveScan):
            names = tuple(column.symbol for column in outputs)
            return replace(plan, name=name, names=names, outputs=(*plan.outputs, sign))
        if not any(isinstance(item, RecursiveScan) for item in walk(plan)):
            return plan
        if isinstance(plan, UnionAll):
            raise NotModelledError("a recursive UNION ALL of more than joins", operator.label)
        result = plan.with_children(tuple(map(with_sign, plan.children)))
        if isinstance(result, Projection):
            return replace(result, items=(*result.items, Item.kept(sign)))
        return result

    derived = Recursion(
        name,
        Branch(seeds.plan, (*united, seeds.sign)),
        Branch(with_sign(step), (*operator.step.columns, sign)),
        outputs,
        all=True,
    )
    *new_columns, new_sign = outputs
    pairs = [*zip(new_columns, operator.outputs, strict=True), (new_sign, sign)]
    shown_columns = (*operator.outputs, sign)
    held = composer.assign(
        "derived", renamed(derived, pairs), shown_columns, sorted(needs), at_most=at_most
    )
    return Bag(held, sign)


def _first_round(
    operator: Recursion,
    state: StateScan,
    composer: Composer,
    given: Mapping[Operator, Bag] | None = None,
) -> Iterator[tuple[Branch, Bag]]:
    """Yield the changes of base and step, where the result so far replaces the rows added last.

    `given` holds changes of tables that replace the changes in the log.
    """

    step, unchanged = _step_from_result(operator, state, composer)
    with composer.joins_not_stored(), composer.other_bags(given):
        composer.bags.update(dict.fromkeys(unchanged))
        changes = [(branch, bag(branch.input, composer)) for branch in (operator.base, step)]
    for branch, changed in changes:
        if changed is not None:
            yield branch, changed


def _step_from_result(
    operator: Recursion, state: StateScan, composer: Composer
) -> tuple[Branch, list[Operator]]:
    """Return the step over the result so far, in place of the rows added last, and its scans."""
    scans: list[Operator] = []

    def replace_scan(scan: Operator) -> Operator:
        if not isinstance(scan, RecursiveScan) or scan.name != operator.name:
            return scan
        result = replace(state, alias=composer.symbols.fresh("s"))
        scans.append(result)
        return renamed(result, zip(operator.outputs, scan.outputs, strict=True))

    return replace(operator.step, input=rewrite(operator.step.input, replace_scan)), scans


def _derive(upkeep: Upkeep, operator: Recursion, lost: DiffScan | None = None) -> None:
    """Add the step that inserts the rows derived from inserted rows, and lost rows that are still derived."""
    composer = upkeep.composer
    seeds = []
    for branch, changed in _first_round(operator, upkeep.state, composer):
        # The change of a join of several changed tables has rows that cancel each other.
        net = Aggregate(composer.column("net"), filled("sum(x)", x=changed.sign))
        groups = Grouping(changed.plan, tuple(dict.fromkeys(branch.columns)), (net,))
        come = Selection(groups, filled("x > 0", x=net.column))
        seeds.append(Branch(shown(come, branch.columns), branch.columns))
    if lost is not None:
        step, _ = _step_from_result(operator, upkeep.state, composer)
        seeds += [_among(branch, lost, upkeep) for branch in (operator.base, step)]
    if not seeds:
        return
    united = tuple(map(composer.fresh, operator.outputs))
    first = Branch(_new(UnionAll(tuple(seeds), united), united, upkeep), united)
    columns = operator.step.columns
    step = replace(operator.step, input=_new(operator.step.input, columns, upkeep))
    derived, outputs = _continued(operator, first, step, composer)
    upkeep.insert(renamed(derived, zip(outputs, operator.outputs, strict=True)))


def _among(branch: Branch, lost: DiffScan, upkeep: Upkeep) -> Branch:
    """Return the rows of a branch that are among the lost rows."""
    composer, state = upkeep.composer, upkeep.state
    pairs = [(column, composer.fresh(column)) for column in lost.columns]
    names = [new for _, new in pairs]
    not_null = frozenset(new for old, new in pairs if old in state.not_null)
    equal = same(zip(branch.columns, names, strict=True), not_null)
    joined = Join(renamed(lost, pairs), branch.input, equal)
    return Branch(shown(joined, branch.columns), branch.columns)


def _new(rows: Operator, columns: Iterable[Column], upkeep: Upkeep) -> Operator:
    """Return the rows that are not in the result yet."""
    composer = upkeep.composer
    state = replace(upkeep.state, alias=composer.symbols.fresh("s"))
    pairs = [(stored, composer.fresh(stored)) for stored in state.ids]
    there = [new for _, new in pairs]
    not_null = frozenset(new for old, new in pairs if old in state.not_null)
    equal = same(zip(columns, there, strict=True), not_null)
    return Antisemijoin(rows, renamed(state, pairs), equal)

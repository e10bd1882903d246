"""μ(R), WITH RECURSIVE: semi-naive; with UNION where rows only come, else computed again.

Where base and step are of operators that are linear in each table, rows that come to the tables
can only add to the result. What they add follows from what base and step make of the new rows and
the result so far, and then from the step over what was added, as long as that is new.

When rows go or change, what had followed from them may follow from others too. Then the recursion
is computed again whole and its result replaced by difference; so is every other recursion.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.antisemijoin import Antisemijoin
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.group import Aggregate, Grouping
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.recursive import Recursion, RecursiveScan
from orchestrator.algebra.operators.scan import Scan
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.set_operation import Branch
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.scalar import Scalar, filled
from orchestrator.algebra.traversal import rewrite, walk
from orchestrator.algebra.unsupported import NotModelledError
from orchestrator.deltascript.leaves import StateScan
from orchestrator.deltascript.plan import ChangeKind
from orchestrator.engine.composer import Composer
from orchestrator.engine.diffs import Bag, variables
from orchestrator.engine.leaves import constant, sides
from orchestrator.engine.recompute_parts import exchange
from orchestrator.engine.states import Upkeep, store
from orchestrator.engine.terms import renamed, same, shown
from orchestrator.strategies.idiff.rules.base import bag, change, has_rule
from orchestrator.strategies.idiff.rules.stored import maintain

MOST = 500_000
"""A change of more derivations is not carried on: all of them are found again."""

FEW = 1_000
"""The same where a circle may carry derivations round for ever that cancel each other: a table
without a key tells not which of its rows stay. Each round may make them longer."""


@maintain.register
def _(operator: Recursion, composer: Composer, role: str) -> StateScan:
    changed = _variables(operator, composer)
    state = store(role, operator, operator.outputs, composer)
    kinds = {change_class.variable: change_class.kind for change_class in composer.classes.values()}
    again = {variable for variable in changed if kinds[variable] is not ChangeKind.INSERT}
    linear = _is_linear(operator)
    note = "when rows of its tables go or change" if linear else "after every change"
    composer.notes.append(f"the recursion {operator.name} is computed again whole {note}")
    if not linear:
        again = changed
    upkeep = Upkeep(state, composer)
    fresh = composer.assign(f"{role}_after", operator, operator.columns, again)
    exchange(upkeep, state, fresh, again)
    if linear:
        _derive(upkeep, operator)
    return state


def _variables(operator: Recursion, composer: Composer) -> set[str]:
    """The variables that hold the changes of the tables."""
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
    """Yield the change of μ(R) with UNION ALL, as bags that are applied to its stored result in turn.

    Every derivation counts. One is gone if it used a row that has gone; take the last such row: it
    was joined with a stored row, and what followed used only rows that are still there. So the first
    bag begins with what base and step made of the rows that have gone and of the stored result, and
    carries it on along the rows that stay. What remains are the derivations from rows that stay
    alone. A derivation has come if it uses a row that has come; take the first such row: it is joined
    with a row that remains. So the second bag begins with these, and carries them on along all rows
    that are there now. Each step finds a derivation that was there or is there: a circle that is not
    reached from the base is not entered.

    Where a table has no key, nothing tells which of its rows stay. There both halves are carried on
    along all rows that are there now, with their signs, and given up early, as they may run in a
    circle although they cancel each other.
    """
    changed = _variables(operator, composer)
    if not _is_linear(operator):
        raise NotModelledError("a recursive UNION ALL of more than joins", operator.label)
    if not changed:
        return
    scans = {
        item: sides(item, composer)
        for item in walk(operator)
        if isinstance(item, Scan) and bag(item, composer) is not None
    }
    halves = {scan: found for scan, found in scans.items() if found is not None}
    if len(halves) < len(scans):
        first = list(_first_round(operator, state, composer))
        yield _carried(operator, operator.step.input, first, composer, changed, FEW)
        return

    def stays(plan: Operator) -> Operator:
        return halves[plan].kept if isinstance(plan, Scan) and plan in halves else plan

    kept = operator.with_children(tuple(rewrite(child, stays) for child in operator.children))
    rounds: list[tuple[Operator, dict[Operator, Bag]]] = [
        (kept, {item.kept: item.gone for item in halves.values()}),
        (operator, {scan: item.come for scan, item in halves.items()}),
    ]
    for there, half in rounds:
        assert isinstance(there, Recursion)
        needs = {name for item in half.values() for name in variables(item.plan)}
        first = list(_first_round(there, state, composer, half))
        yield _carried(operator, there.step.input, first, composer, needs, MOST)


def _carried(
    operator: Recursion,
    step: Operator,
    first: Sequence[tuple[Branch, Bag]],
    composer: Composer,
    needs: Iterable[str],
    at_most: int,
) -> Bag:
    """Carry the rows of a first round on by a step, each with its sign."""
    united = tuple(map(composer.fresh, operator.outputs))
    parts = []
    for branch, found in first:
        named = zip(united, branch.columns, strict=True)
        items = [Item(new, Scalar.column(old)) for new, old in named]
        parts.append((found.sign, Projection(found.plan, (*items, Item.kept(found.sign)))))
    seeds = composer.union(united, parts)
    name = composer.symbols.fresh(operator.name)
    outputs = tuple(map(composer.fresh, (*operator.outputs, seeds.sign)))
    sign = composer.fresh(seeds.sign)

    def carried(plan: Operator) -> Operator:
        """The step with the sign of the rows added last."""
        if isinstance(plan, RecursiveScan):
            names = tuple(column.symbol for column in outputs)
            return replace(plan, name=name, names=names, outputs=(*plan.outputs, sign))
        if not any(isinstance(item, RecursiveScan) for item in walk(plan)):
            return plan
        if isinstance(plan, UnionAll):
            raise NotModelledError("a recursive UNION ALL of more than joins", operator.label)
        result = plan.with_children(tuple(map(carried, plan.children)))
        if isinstance(result, Projection):
            return replace(result, items=(*result.items, Item.kept(sign)))
        return result

    derived = Recursion(
        name,
        Branch(seeds.plan, (*united, seeds.sign)),
        Branch(carried(step), (*operator.step.columns, sign)),
        outputs,
        all=True,
    )
    *found_columns, found_sign = outputs
    pairs = [*zip(found_columns, operator.outputs, strict=True), (found_sign, sign)]
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
    """The changes of base and step, where the result so far stands for the rows added last.

    `given` are changes of tables that stand for those in the log.
    """

    def known(scan: Operator) -> Operator:
        if not isinstance(scan, RecursiveScan) or scan.name != operator.name:
            return scan
        before = replace(state, alias=composer.symbols.fresh("s"))
        unchanged.append(before)
        return renamed(before, zip(operator.outputs, scan.outputs, strict=True))

    unchanged: list[Operator] = []
    step = replace(operator.step, input=rewrite(operator.step.input, known))
    with composer.joins_not_stored(), composer.other_bags(given):
        composer.bags.update(dict.fromkeys(unchanged))
        found = [(branch, bag(branch.input, composer)) for branch in (operator.base, step)]
    for branch, changed in found:
        if changed is not None:
            yield branch, changed


def _derive(upkeep: Upkeep, operator: Recursion) -> None:
    """Adds what follows from rows that come."""
    composer = upkeep.composer
    seeds = []
    for branch, changed in _first_round(operator, upkeep.state, composer):
        # The change of a join of several changed tables has rows with both signs that were never there.
        net = Aggregate(composer.column("net"), filled("sum(x)", x=changed.sign))
        groups = Grouping(changed.plan, tuple(dict.fromkeys(branch.columns)), (net,))
        come = Selection(groups, filled("x > 0", x=net.column))
        seeds.append(Branch(shown(come, branch.columns), branch.columns))
    if not seeds:
        return
    name = composer.symbols.fresh(operator.name)
    outputs = tuple(map(composer.fresh, operator.outputs))
    names = tuple(column.symbol for column in outputs)
    united = tuple(map(composer.fresh, operator.outputs))

    def added(scan: Operator) -> Operator:
        if not isinstance(scan, RecursiveScan) or scan.name != operator.name:
            return scan
        return replace(scan, name=name, names=names)

    onwards = rewrite(operator.step.input, added)
    derived = Recursion(
        name,
        Branch(_new(UnionAll(tuple(seeds), united), united, upkeep), united),
        Branch(_new(onwards, operator.step.columns, upkeep), operator.step.columns),
        outputs,
    )
    upkeep.insert(renamed(derived, zip(outputs, operator.outputs, strict=True)))


def _new(rows: Operator, columns: Iterable[Column], upkeep: Upkeep) -> Operator:
    """The rows that are not in the result yet."""
    composer = upkeep.composer
    state = replace(upkeep.state, alias=composer.symbols.fresh("s"))
    pairs = [(stored, composer.fresh(stored)) for stored in state.ids]
    there = [new for _, new in pairs]
    not_null = frozenset(new for old, new in pairs if old in state.not_null)
    equal = same(zip(columns, there, strict=True), not_null)
    return Antisemijoin(rows, renamed(state, pairs), equal)

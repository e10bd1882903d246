"""μ(R), WITH RECURSIVE ... UNION: semi-naive where rows only come, else computed again.

Where base and step are of operators that are linear in each table, rows that come to the tables
can only add to the result. What they add follows from what base and step make of the new rows and
the result so far, and then from the step over what was added, as long as that is new.

When rows go or change, what had followed from them may follow from others too. Then the recursion
is computed again whole and its result replaced by difference; so is every other recursion.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.antisemijoin import Antisemijoin
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.recursive import Recursion, RecursiveScan
from orchestrator.algebra.operators.scan import Scan
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.set_operation import Branch
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.scalar import filled
from orchestrator.algebra.traversal import rewrite, walk
from orchestrator.deltascript.leaves import StateScan
from orchestrator.strategies.idiff.again import exchange
from orchestrator.strategies.idiff.composer import Composer
from orchestrator.strategies.idiff.diffs import variables
from orchestrator.strategies.idiff.leaves import constant
from orchestrator.strategies.idiff.rules.base import bag, change, has_rule
from orchestrator.strategies.idiff.rules.stored import maintain
from orchestrator.strategies.idiff.states import Upkeep, store
from orchestrator.strategies.idiff.terms import renamed, same, shown


@maintain.register
def _(operator: Recursion, composer: Composer, role: str) -> StateScan:
    changed = _variables(operator, composer)
    state = store(role, operator, operator.outputs, composer)
    kinds = {one.variable: one.kind for one in composer.classes.values()}
    again = {variable for variable in changed if kinds[variable] != "plus"}
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
    found: set[str] = set()
    for leaf in walk(operator):
        if isinstance(leaf, Scan):
            changed = bag(leaf, composer)
            found |= variables(changed.plan) if changed is not None else frozenset()
        elif not leaf.children and not isinstance(leaf, RecursiveScan):
            constant(leaf)
    return found


def _is_linear(operator: Recursion) -> bool:
    return not any(
        (one.children and not has_rule(change, one)) or any(s.subqueries for s in one.scalars)
        for branch in (operator.base, operator.step)
        for one in walk(branch.input)
    )


def _derive(upkeep: Upkeep, operator: Recursion) -> None:
    """Adds what follows from rows that come."""
    composer, state = upkeep.composer, upkeep.state

    def known(scan: Operator) -> Operator:
        """The result so far in the place of the rows added last."""
        if not isinstance(scan, RecursiveScan) or scan.name != operator.name:
            return scan
        before = replace(state, alias=composer.symbols.fresh("s"))
        composer.bags[before] = None
        return renamed(before, zip(operator.outputs, scan.outputs, strict=True))

    seeds = []
    step = replace(operator.step, input=rewrite(operator.step.input, known))
    for branch in (operator.base, step):
        changed = bag(branch.input, composer)
        if changed is not None:
            come = Selection(changed.plan, filled("x > 0", x=changed.sign))
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

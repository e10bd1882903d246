"""Graphs of a maintenance plan: the algebra plan, the Δ-script, and the stored states."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from orchestrator.deltascript.leaves import PROGRAM, STATE
from orchestrator.deltascript.plan import (
    Apply,
    Assign,
    BagTable,
    MaintenancePlan,
    Program,
    ReadChanges,
    ReplaceContent,
    Shape,
    Source,
    StateTable,
    StateView,
    Step,
)
from orchestrator.drawing.graph import Edge, Graph, Kind, Node

_WIDEST = 60
"""The most characters of a line of a node."""

_OWN = "idivm_"
"""What the names of columns begin with that idivm adds."""

Names = Mapping[str, str]
"""The names of tables for people, by oid."""

Readings = Mapping[str, Iterable[str]]


def graphs_of(plan: MaintenancePlan, view: str, tables: Sequence[str]) -> dict[str, Graph]:
    """Return the graphs of a plan by the names of the options of `idivm explain`.

    `tables` names the sources of the plan, in their order.
    """
    names = {str(s.oid): name for s, name in zip(plan.program.sources, tables, strict=True)}
    return {
        "plan": plan_graph(plan, view, names),
        "tree": states_graph(plan, view, names),
        "script": script_graph(plan, view, names),
    }


def plan_graph(plan: MaintenancePlan, view: str, names: Names) -> Graph:
    """Return the algebra plan: the view at the top, the tables at the bottom."""
    tree = plan.definition.algebra_tree
    title = f"the plan of {view}"
    if "root" not in tree:
        return _opaque(plan, title, view, names)
    top = Node("n0", view, "view", _wrapped(", ".join(tree["names"])))
    nodes, edges = [top], []
    for node, parent in _operators(tree["root"], "n0", [0]):
        nodes.append(node)
        edges.append(Edge(node.id, parent))
    return Graph(title, tuple(nodes), tuple(edges), "up")


def _operators(
    operator: Mapping[str, Any], parent: str, numbers: list[int], prefix: str = ""
) -> Iterator[tuple[Node, str]]:
    numbers[0] += 1
    own = f"n{numbers[0]}"
    ids = operator.get("ids")
    lines = [f"⟨{', '.join(ids)}⟩"] if ids is not None else []
    kind: Kind = "table" if operator["symbol"] == "scan" else "operator"
    title, *rest = _wrapped(prefix + operator["label"])
    yield Node(own, title, kind, (*rest, *(short(line) for line in lines))), parent
    for number, subquery in enumerate(operator["subqueries"], 1):
        yield from _operators(subquery["plan"], own, numbers, f"${number}: ")
    for child in operator["inputs"]:
        yield from _operators(child, own, numbers)


def _opaque(plan: MaintenancePlan, title: str, view: str, names: Names) -> Graph:
    """Return the graph of a query that the algebra does not model."""
    reasons = plan.definition.algebra_tree.get("unsupported", [])
    nodes = [
        Node("view", view, "view"),
        Node("query", "the query", "query", tuple(map(short, reasons))),
        *(_table(source, names) for source in plan.program.sources),
    ]
    edges = [Edge(_key(source), "query") for source in plan.program.sources]
    return Graph(title, tuple(nodes), (Edge("query", "view"), *edges), "up")


def script_graph(plan: MaintenancePlan, view: str, names: Names) -> Graph:
    """Return the steps of a refresh: an arrow leads from the step that computes a diff to each step that reads it."""
    nodes: list[Node] = []
    edges: list[Edge] = []
    writers: dict[str, list[str]] = {}
    for number, step in enumerate(plan.program.script):
        node = _step(f"s{number}", step, names)
        if node is None:
            continue
        nodes.append(node)
        reads = {writer for name in _reads(step) for writer in writers.get(name, ())}
        edges += [Edge(writer, node.id) for writer in sorted(reads, key=lambda name: int(name[1:]))]
        for written in _writes(step):
            writers.setdefault(written, []).append(node.id)
    return Graph(f"a refresh of {view}", tuple(nodes), tuple(edges))


def _step(name: str, step: Step, names: Names) -> Node | None:
    if isinstance(step, ReadChanges):
        words = step.notation.removeprefix("read ").split(", ")
        return Node(
            name, f"changes of {names[str(step.source.oid)]}", "changes", _wrapped(", ".join(words))
        )
    if isinstance(step, Assign):
        title, _, definition = step.notation.partition(" := ")
        # Rows whose internal counts and sums did not change are left out; that says nothing of the view.
        changed = re.fullmatch(rf"σ\[{_OWN}[^\]]*\]\((.*)\)", definition)
        lines = _wrapped(f":= {changed[1] if changed else definition}") if definition else ()
        return Node(name, short(title or step.variable), "diff", lines)
    if isinstance(step, Apply):
        action, _, diff = step.notation.partition(": ")
        return Node(
            name,
            short(action.partition("(")[0] or f"{step.kind} {step.state}"),
            "apply",
            _wrapped(diff),
        )
    if isinstance(step, ReplaceContent):
        return Node(name, f"recompute {step.state}", "apply", _wrapped(step.notation))
    return None


def _reads(step: Step) -> frozenset[str]:
    if isinstance(step, Assign | Apply):
        return step.query.names_behind(PROGRAM) | frozenset(step.needs)
    return frozenset()


def _writes(step: Step) -> Iterator[str]:
    if isinstance(step, ReadChanges):
        yield from (each.variable for each in step.classes)
    elif isinstance(step, Assign):
        yield step.variable
        yield from (variable for variable, _ in step.apart)
    elif isinstance(step, Apply) and step.collect is not None:
        yield step.collect


def states_graph(
    plan: MaintenancePlan, view: str, names: Names, facts: Readings | None = None
) -> Graph:
    """Return the stored states and what each is computed from: the view tree, or the heavy and light parts.

    `facts` adds lines to states, by role. An input that another input already contains has no arrow.
    """
    program = plan.program
    stored = [state for state in program.states if not isinstance(state, Shape)]
    applied = [step.state for step in program.script if isinstance(step, Apply)]
    partitions = plan.partitioning.partitions if plan.partitioning else ()
    first = [p.degrees for p in partitions] + [p.heavy_values for p in partitions]
    if plan.partitioning:
        first.insert(len(partitions), plan.partitioning.state)
    first += [part for p in partitions for part in p.parts]
    roles = dict.fromkeys([*first, *applied, *(state.role for state in stored)])
    places = {role: place for place, role in enumerate(roles)}
    # The heavy and the light part of a relation exchange rows; neither is computed from the other.
    siblings = {part: set(p.parts) for p in partitions for part in p.parts}
    inputs = {
        role: read - {f"state {part}" for part in siblings.get(role, ())}
        for role, read in _inputs(program, places).items()
    }
    nodes = [_table(source, names) for source in program.sources]
    heavy = {name for p in partitions for name in (p.heavy_values, *p.parts[:1])}
    for state in stored:
        is_content = state.role == program.content
        lines = (*_columns(state), *(facts or {}).get(state.role, ()))
        title = f"{view} ({state.role})" if is_content else state.role
        mark = "heavy" if state.role in heavy else ""
        kind: Kind = "content" if is_content else "state"
        nodes.append(Node(f"state {state.role}", title, kind, lines, mark))
    edges = [Edge(each, f"state {role}") for role in inputs for each in _reduced(inputs, role)]
    return Graph(f"what {view} stores", tuple(nodes), tuple(edges))


def _inputs(program: Program, places: Mapping[str, int]) -> dict[str, set[str]]:
    """Return the states before it, and the tables, that each state is computed from."""
    known: dict[str, set[str]] = {}
    inputs: dict[str, set[str]] = {role: set() for role in places}
    for step in program.script:
        if isinstance(step, ReadChanges):
            known.update((each.variable, {_key(step.source)}) for each in step.classes)
        elif isinstance(step, Assign | Apply):
            read = set().union(*(known.get(name, set()) for name in _reads(step)))
            read |= {f"state {role}" for role in step.query.names_behind(STATE)}
            read |= {f"table {oid}" for oid in step.query.sources}
            if isinstance(step, Apply):
                inputs[step.state] |= _earlier(read, places, step.state)
                read = {f"state {step.state}"}
                # From here on, the diff is the change of the state.
                known.update((name, read) for name in step.query.names_behind(PROGRAM))
            for name in _writes(step):
                known[name] = known.get(name, set()) | read
        elif isinstance(step, ReplaceContent):
            inputs[step.state] |= {_key(source) for source in program.sources}
    for state in program.states:
        if isinstance(state, StateView):
            inputs[state.role] |= {f"state {role}" for role in state.query.states}
    return inputs


def _earlier(read: Iterable[str], places: Mapping[str, int], role: str) -> set[str]:
    """Keep the tables, and the states that stand before a state. The content comes last."""

    def place(name: str) -> int:
        return -1 if name not in places else len(places) if name == "content" else places[name]

    return {each for each in read if place(each.removeprefix("state ")) < place(role)}


def _reduced(inputs: Mapping[str, set[str]], role: str) -> list[str]:
    """Return the inputs of a state that no other input of it contains."""
    direct = inputs[role]
    below = {each: _reachable(inputs, each) for each in direct}
    return sorted(
        each for each in direct if not any(each in below[other] for other in direct - {each})
    )


def _reachable(inputs: Mapping[str, set[str]], name: str) -> set[str]:
    reached: set[str] = set()
    pending = [name]
    while pending:
        for each in inputs.get(pending.pop().removeprefix("state "), set()):
            if each not in reached:
                reached.add(each)
                pending.append(each)
    return reached


def _columns(state: BagTable | StateTable | StateView) -> tuple[str, ...]:
    if isinstance(state, StateTable):
        names = [c.name for c in state.columns if not c.hidden and not c.name.startswith(_OWN)]
        own = len(state.columns) - len(names)
        more = [f"{own} internal column{'s'[: own > 1]}"] if own else []
        key = f"key: {', '.join(state.key)}" if state.key else "at most one row"
        return (*_wrapped(", ".join([*names, *more]), 2), short(key))
    columns = _wrapped(", ".join(column.name for column in state.columns), 2)
    return (
        (*columns, "not a table, but a query over states")
        if isinstance(state, StateView)
        else columns
    )


def _table(source: Source, names: Names) -> Node:
    columns = _wrapped(", ".join(column.name for column in source.columns), 2)
    return Node(_key(source), names[str(source.oid)], "table", columns)


def _key(source: Source) -> str:
    return f"table {source.oid}"


def short(line: str) -> str:
    """Return a line, cut if it is long."""
    return line if len(line) <= _WIDEST else f"{line[: _WIDEST - 1]}…"


def _wrapped(line: str, most: int = 3) -> tuple[str, ...]:
    """Return a text in a few lines, cut at the end if it is long.

    >>> _wrapped("word " * 60, 2)[1][-7:]
    'd word…'
    """
    lines = [""]
    for word in line.split():
        if lines[-1] and len(lines[-1]) + len(word) >= _WIDEST:
            if len(lines) == most:
                lines[-1] += "…"
                break
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return tuple(short(each) for each in lines)

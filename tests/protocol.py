"""A model of the protocol that keeps views right, small enough to explore every interleaving.

A process runs one transaction: a writer, a refresher, a change of mode, or a crash of the server. Each operation is a
list of atomic steps. `explore` takes the steps of all processes in every order and checks each state:

- no change is lost or applied twice: what a committed view holds is what its watermark says it has consumed;
- a reader sees one cut: an eager or on_commit view holds all that is committed;
- no deadlock: no processes wait for each other in a circle.

`Rules` are the choices that the protocol makes. The tests change one at a time and see the model find the fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

Step = tuple[object, ...]
Lock = tuple[str, ...]
Schedule = list[tuple[int, dict[int, frozenset[int]]]]
"""Who goes next, and who then waits for whom."""


@dataclass(frozen=True)
class Rules:
    """What the protocol chooses, and what would be wrong instead."""

    eager_lock: bool = True
    """A writer takes the lock of eager views before its statement; else each view's after it."""
    sorted_at_commit: bool = True
    """The locks of on_commit views are taken in one order."""
    waits_free_handed: bool = True
    """A refresh holds none of its tables and synchronous views while it waits for one of them."""
    counts_open: bool = True
    """Views wait until no statement is open."""
    by_snapshot: bool = True
    """A watermark is a snapshot; else the number of the last change."""
    locks_views: bool = True
    """A view is brought up under its lock."""
    yields: bool = True
    """A writer leaves a view as it is if its table is locked by a process that waits for this writer."""
    holds_writers: bool = True
    """A change of mode waits for the writers of the tables."""
    keeps_truncations: bool = True
    """A truncation stays pending after a refresh with a snapshot from before it."""


@dataclass(frozen=True)
class View:
    """A view over tables, in its first mode."""

    name: str
    tables: str
    mode: str = "deferred"


@dataclass(frozen=True)
class Change:
    """A row that a transaction has written; a statement's end logs it."""

    number: int
    txn: int
    table: str
    logged: bool = False
    truncates: bool = False
    """Whether the change is a TRUNCATE, which also deletes rows that its own snapshot does not see."""


@dataclass(frozen=True)
class Content:
    """What a view holds, and its watermark."""

    changes: tuple[int, ...] = ()
    seen: frozenset[int] = frozenset()
    own: int = -1
    consumed: frozenset[int] = frozenset()
    last: int = 0
    truncated: frozenset[str] = frozenset()
    """The tables that transaction `own` truncated. Its changes of them stay pending."""


@dataclass(frozen=True)
class Process:
    """A transaction under way."""

    ops: tuple[Step, ...]
    todo: tuple[Step, ...] = ()
    held: frozenset[tuple[Lock, str]] = frozenset()
    open: int = 0
    affected: frozenset[str] = frozenset()
    later: frozenset[str] = frozenset()
    fixed: frozenset[int] | None = None
    savepoint: tuple[object, ...] | None = None
    ended: str = ""


@dataclass(frozen=True)
class State:
    """Everything that decides about what comes next."""

    processes: tuple[Process, ...]
    modes: tuple[tuple[str, str], ...]
    committed: frozenset[int] = frozenset()
    log: tuple[Change, ...] = ()
    numbers: int = 0
    views: tuple[tuple[str, Content], ...] = ()
    drafts: tuple[tuple[int, str, Content], ...] = ()
    """Contents that open transactions have written."""


class WrongError(AssertionError):
    """An invariant that does not hold, with the steps that lead there."""


@dataclass
class Model:
    """Views, and processes over them, under some rules."""

    views: Sequence[View]
    rules: Rules = field(default_factory=Rules)

    def __post_init__(self) -> None:
        self.tables = {view.name: view.tables for view in self.views}

    def start(self, *programs: Sequence[Step]) -> State:
        return State(
            tuple(Process(tuple(ops)) for ops in programs),
            tuple((view.name, view.mode) for view in self.views),
            views=tuple((view.name, Content()) for view in self.views),
        )

    # What a process does next ------------------------------------------------------------------

    def expand(self, state: State, op: Step) -> tuple[Step, ...]:
        """The steps of an operation, as the modes are now."""
        match op:
            case ("write", table, row, *nested):
                return (("lock", ("table", table), "RX"), ("enter", table, row, *nested))
            case ("truncate", table):
                return (("lock", ("table", table), "AX"), ("enter", table, None))
            case ("enter", table, row, *nested):
                first = self.rules.eager_lock and self._affected(state, table, "eager")
                return (
                    *([("lock", ("eager",), "X")] if first else []),
                    ("begin",),
                    *([] if row is None else [("lock", ("row", table, row), "X")]),
                    ("put", table, row is None),
                    *(("write", *write) for write in nested),
                    ("log", table),
                    ("end", table),
                )
            case ("commit",):
                return (("bring_later",), ("finish", "committed"))
            case ("prepare",):
                return (("bring_later",),)
            case ("finish_prepared",):
                return (("finish", "committed"),)
            case ("rollback",):
                return (("finish", "aborted"),)
            case ("refresh_fixed", *names):
                apart = sorted(name for name in names if self._mode(state, name) == "deferred")
                return (
                    *(("lock", ("view", name), "X") for name in apart),
                    ("snapshot",),
                    *(("bring", name) for name in apart),
                    ("finish", "committed"),
                )
            case ("refresh", name):
                return (
                    ("lock", ("view", name), "X"),
                    ("ask", name),
                    ("finish", "committed"),
                )
            case ("refresh_inside", name):
                return (("lock", ("view", name), "X"), ("bring", name))
            case ("set_mode", name, mode):
                held = self._hold([(("table", table), "SRX") for table in self.tables[str(name)]])
                return (
                    *(
                        [("lock", ("view", name), "X")]
                        if self._mode(state, name) == "deferred"
                        else []
                    ),
                    *(held if self.rules.holds_writers else ()),
                    ("lock", ("view", name), "X"),
                    ("bring", name),
                    ("finish", "committed", name, mode),
                )
        return (op,)

    def _hold(self, locks: Sequence[tuple[Lock, str]]) -> tuple[Step, ...]:
        if self.rules.waits_free_handed:
            return (("hold", tuple(locks)),)
        return tuple(("lock", *lock) for lock in locks)

    def _still(self, state: State, name: object) -> list[tuple[Lock, str]]:
        """What keeps the tables of a view as they are: the lock of their writers, or of the table."""
        tables = self.tables[str(name)]
        eager = [
            table
            for table in tables
            if self.rules.eager_lock and self._affected(state, table, "eager")
        ]
        turn: list[tuple[Lock, str]] = [(("eager",), "X")] if eager else []
        return [*turn, *((("table", table), "RX" if table in eager else "S") for table in tables)]

    def _mode(self, state: State, name: object) -> str:
        return dict(state.modes)[str(name)]

    def _affected(self, state: State, table: object, mode: str) -> frozenset[str]:
        return frozenset(n for n, m in state.modes if m == mode and str(table) in self.tables[n])

    # Locks -------------------------------------------------------------------------------------

    def blockers(self, state: State, who: int) -> frozenset[int]:
        """The processes that this one waits for."""
        if self.rules.yields and self._step_name(state, who) == "read":
            edges = {n: self._holders(state, n) for n in range(len(state.processes))}
            if who in _reached(edges, who):
                return frozenset()
        return self._holders(state, who)

    def _step_name(self, state: State, who: int) -> object:
        todo = state.processes[who].todo
        return todo[0][0] if todo else None

    def _holders(self, state: State, who: int) -> frozenset[int]:
        """The processes that hold what this one's next step needs."""
        process = state.processes[who]
        if not process.todo:
            return frozenset()
        match process.todo[0]:
            case ("lock", lock, mode):
                wanted = [(lock, mode)]
            case ("hold", locks):
                wanted = list(locks)  # type: ignore[call-overload]
            case ("read", name):
                wanted = [(("table", table), "AS") for table in self.tables[str(name)]]
            case _:
                return frozenset()
        return frozenset(
            other
            for other, peer in enumerate(state.processes)
            if other != who
            for lock, held in peer.held
            if any(lock == name and _conflict(held, mode) for name, mode in wanted)
        )

    def waiting(self, state: State) -> dict[int, frozenset[int]]:
        """Who waits for whom."""
        edges = {who: self.blockers(state, who) for who in range(len(state.processes))}
        return {who: others for who, others in edges.items() if others}

    def in_circle(self, state: State) -> frozenset[int]:
        """Processes that wait for each other, or nobody."""
        edges = self.waiting(state)
        for who in edges:
            if who in (reached := _reached(edges, who)):
                return frozenset(reached)
        return frozenset()

    def _queued(self, state: State, queue: tuple[int, ...]) -> dict[int, frozenset[int]]:
        """Who waits for whom, also for those ahead in a lock's queue."""
        waiting = self.waiting(state)
        first = {who: state.processes[who].todo[0][1] for who in queue}
        return {
            who: others
            | {ahead for ahead in queue[: queue.index(who)] if first[ahead] == first[who]}
            for who, others in waiting.items()
        }

    # Steps -------------------------------------------------------------------------------------

    def ready(self, state: State, who: int) -> State:
        """The state with the next operation of a process expanded into steps."""
        process = state.processes[who]
        while process.todo and process.todo[0][0] in ("write", "truncate", "enter"):
            steps = self.expand(state, process.todo[0])
            process = replace(process, todo=(*steps, *process.todo[1:]))
            if steps[0][0] == "lock":
                break
        if not process.todo and process.ops:
            process = replace(process, todo=self.expand(state, process.ops[0]), ops=process.ops[1:])
        return _with(state, who, process)

    def step(self, state: State, who: int) -> State | None:
        """The state after the next step of a process; nothing if it waits or has ended."""
        state = self.ready(state, who)
        process = state.processes[who]
        if process.ended or not process.todo or self.blockers(state, who):
            return None
        busy = self._holders(state, who)
        step, process = process.todo[0], replace(process, todo=process.todo[1:])
        state = _with(state, who, process)
        match step:
            case ("lock", lock, mode):
                process = replace(process, held=process.held | {(lock, mode)})
            case ("hold", locks):
                process = replace(process, held=process.held | set(locks))  # type: ignore[call-overload]
            case ("read", name) if busy:
                process = replace(
                    process, todo=tuple(s for s in process.todo if s != ("bring", name))
                )
            case ("read", name):
                read = {(("table", table), "AS") for table in self.tables[str(name)]}
                process = replace(process, held=process.held | read)
            case ("begin",):
                process = replace(process, open=process.open + 1)
            case ("put", table, truncates):
                change = Change(state.numbers + 1, who, str(table), truncates=bool(truncates))
                state = replace(state, log=(*state.log, change), numbers=change.number)
            case ("log", table):
                last = max(
                    c.number for c in state.log if (c.txn, c.table, c.logged) == (who, table, False)
                )
                log = tuple(replace(c, logged=True) if c.number == last else c for c in state.log)
                state = replace(state, log=log)
            case ("end", table):
                process = self._ended_statement(state, process, str(table))
            case ("bring_later",):
                names = sorted(
                    process.later, reverse=not self.rules.sorted_at_commit and bool(who % 2)
                )
                process = replace(
                    process, later=frozenset(), todo=(*self._bring(names), *process.todo)
                )
            case ("bring", name):
                return self._brought(_with(state, who, process), who, str(name))
            case ("ask", name) if self._pending(state, who, str(name)):
                tables = self._hold(self._still(state, name))
                process = replace(process, todo=(*tables, ("bring", name), *process.todo))
            case ("ask", name):
                pass
            case ("snapshot",):
                process = replace(process, fixed=state.committed)
            case ("savepoint",):
                saved = (
                    process.held,
                    process.open,
                    process.affected,
                    process.later,
                    state.numbers,
                    state.drafts,
                )
                process = replace(process, savepoint=saved)
            case ("rollback_to",):
                return self._rolled_back(state, who, process)
            case ("finish", outcome, *changed):
                modes = {
                    **dict(state.modes),
                    **({str(changed[0]): str(changed[1])} if changed else {}),
                }
                state = replace(state, modes=tuple(modes.items()))
                return self._finished(state, who, str(outcome))
            case ("crash",):
                for other, peer in enumerate(state.processes):
                    if not peer.ended and other != who and peer.ops[:1] != (("finish_prepared",),):
                        state = self._finished(state, other, "aborted")
                process = replace(process, ended="committed")
            case _:
                raise ValueError(step)
        return _with(state, who, process)

    def _bring(self, names: Sequence[str]) -> tuple[Step, ...]:
        locks = [("lock", ("view", name), "X") for name in names] if self.rules.locks_views else []
        return (*locks, *(step for name in names for step in (("read", name), ("bring", name))))

    def _ended_statement(self, state: State, process: Process, table: str) -> Process:
        affected = process.affected | self._affected(state, table, "eager")
        later = process.later | self._affected(state, table, "on_commit")
        process = replace(process, open=process.open - 1, affected=affected, later=later)
        if process.open and self.rules.counts_open:
            return process
        return replace(
            process, affected=frozenset(), todo=(*self._bring(sorted(affected)), *process.todo)
        )

    def content(self, state: State, name: str, who: int = -1) -> Content:
        """What a view holds, for a transaction or for everybody."""
        own = [c for txn, n, c in state.drafts if (txn, n) == (who, name)]
        return own[0] if own else dict(state.views)[name]

    def _brought(self, state: State, who: int, name: str) -> State:
        """A view after a transaction has applied to it what is pending in its snapshot."""
        process = state.processes[who]
        snapshot = state.committed if process.fixed is None else process.fixed
        before = self.content(state, name, who)
        if process.fixed is not None and before.own >= 0 and before.own not in snapshot | {who}:
            return self._finished(state, who, "aborted")
        visible = [
            c for c in state.log if c.table in self.tables[name] and c.txn in snapshot | {who}
        ]
        pending = self._pending(state, who, name)
        # Rows that are in a table and not yet in its log are met by joins with what is pending.
        met = [c.number for c in visible if not c.logged] if pending else []
        truncating = [c for c in visible if c.truncates and c.logged]
        changes = tuple(sorted((*before.changes, *pending, *met)))
        if any(c.number in pending for c in truncating):
            # The view is recomputed.
            changes = _left(visible)
        truncated = frozenset(c.table for c in truncating if c.txn == who)
        keeps = self.rules.keeps_truncations and process.fixed is not None
        after = Content(
            changes,
            snapshot,
            who,
            frozenset(c.number for c in visible if c.txn == who and c.logged),
            max((c.number for c in visible if c.logged), default=before.last),
            truncated if keeps else frozenset(),
        )
        others = tuple(draft for draft in state.drafts if draft[:2] != (who, name))
        return replace(state, drafts=(*others, (who, name, after)))

    def _pending(self, state: State, who: int, name: str) -> list[int]:
        """The changes that a view has not consumed, as a transaction sees them."""
        fixed = state.processes[who].fixed
        snapshot = (state.committed if fixed is None else fixed) | {who}
        since = self.content(state, name, who)
        return [
            c.number
            for c in state.log
            if c.logged
            and c.table in self.tables[name]
            and c.txn in snapshot
            and self._is_pending(c, since)
        ]

    def _is_pending(self, change: Change, since: Content) -> bool:
        if not self.rules.by_snapshot:
            return change.number > since.last
        if change.txn == since.own:
            return change.number not in since.consumed or change.table in since.truncated
        return change.txn not in since.seen

    def _rolled_back(self, state: State, who: int, process: Process) -> State:
        assert process.savepoint is not None
        held, opened, affected, later, numbers, drafts = process.savepoint
        process = replace(process, held=held, open=opened, affected=affected, later=later)  # type: ignore[arg-type]
        log = tuple(c for c in state.log if c.txn != who or c.number <= numbers)  # type: ignore[operator]
        mine = tuple(draft for draft in drafts if draft[0] == who)  # type: ignore[attr-defined]
        others = tuple(draft for draft in state.drafts if draft[0] != who)
        return _with(replace(state, log=log, drafts=(*others, *mine)), who, process)

    def _finished(self, state: State, who: int, outcome: str) -> State:
        if outcome == "committed":
            drafts = {name: content for txn, name, content in state.drafts if txn == who}
            state = replace(
                state,
                committed=state.committed | {who},
                views=tuple((name, drafts.get(name, content)) for name, content in state.views),
            )
        else:
            state = replace(state, log=tuple(c for c in state.log if c.txn != who))
        state = replace(state, drafts=tuple(draft for draft in state.drafts if draft[0] != who))
        return _with(
            state,
            who,
            replace(state.processes[who], todo=(), ops=(), held=frozenset(), ended=outcome),
        )

    # Invariants --------------------------------------------------------------------------------

    def fault(self, state: State) -> str | None:
        """What is wrong with a state."""
        if circle := self.in_circle(state):
            return f"deadlock of {sorted(circle)}"
        for name, content in state.views:
            if self._mode(state, name) != "deferred":
                expected = self._visible(state, name, state.committed, -1)
            else:
                expected = self._visible(state, name, content.seen, content.own, content.consumed)
            if content.changes != _left(expected) and not self._lags(
                state, name, content, expected
            ):
                return f"{name} holds {content.changes} instead of {_left(expected)}"
        for who, process in enumerate(state.processes):
            if not process.open and not process.todo and not process.ended:
                for name in self._eager(state, who):
                    expected = self._visible(state, name, state.committed, who)
                    content = self.content(state, name, who)
                    if content.changes != _left(expected) and not self._lags(
                        state, name, content, expected
                    ):
                        return f"{who} sees {name} with {self.content(state, name, who).changes}"
        return None

    def _lags(self, state: State, name: str, content: Content, expected: Sequence[Change]) -> bool:
        """Whether a view lacks changes that the process with the lock of its table is about to bring."""
        return set(content.changes) < {change.number for change in expected} and any(
            (("table", table), "AX") in process.held
            for process in state.processes
            for table in self.tables[name]
        )

    def _eager(self, state: State, who: int) -> list[str]:
        """The eager views that a transaction has brought up, and holds."""
        return [n for txn, n, _ in state.drafts if txn == who and self._mode(state, n) == "eager"]

    def _visible(
        self,
        state: State,
        name: str,
        seen: frozenset[int],
        own: int,
        consumed: frozenset[int] | None = None,
    ) -> list[Change]:
        return [
            c
            for c in state.log
            if c.table in self.tables[name]
            and (
                c.txn in seen - {own}
                or (c.txn == own and (consumed is None or c.number in consumed))
            )
        ]

    # Exploring ---------------------------------------------------------------------------------

    def explore(self, *programs: Sequence[Step], most: int = 200_000) -> int:
        """Takes the steps of all processes in every order, and gives how many states there are."""
        first = self.start(*programs)
        came: dict[State, tuple[State, int] | None] = {first: None}
        border = [first]
        while border:
            state = border.pop()
            for who in range(len(programs)):
                after = self.step(state, who)
                if after is None:
                    continue
                # A process waits as soon as it has come to a lock that another holds.
                for other in range(len(programs)):
                    after = self.ready(after, other)
                if after in came:
                    continue
                came[after] = (state, who)
                if fault := self.fault(after):
                    raise WrongError(f"{fault}, after {self._trace(came, after)}")
                border.append(after)
                assert len(came) <= most, "too many states: choose shorter programs"
        return len(came)

    def _trace(self, came: dict[State, tuple[State, int] | None], state: State) -> list[int]:
        trace = []
        while (step := came[state]) is not None:
            state, who = step
            trace.append(who)
        return trace[::-1]

    def schedules(self, *programs: Sequence[Step]) -> Iterator[Schedule]:
        """Every order of whole operations."""

        def after(state: State, queue: tuple[int, ...]) -> tuple[State, tuple[int, ...]]:
            moved = True
            while moved:
                moved = False
                for who in queue:
                    while state.processes[who].todo and (then := self.step(state, who)) is not None:
                        state, moved = then, True
                    if state.processes[who].todo:
                        state = self.ready(state, who)
                    else:
                        queue = tuple(member for member in queue if member != who)
            return state, queue

        def go(state: State, queue: tuple[int, ...], done: Schedule) -> Iterator[Schedule]:
            free = [w for w, p in enumerate(state.processes) if p.ops and w not in queue]
            if not free:
                yield done
            for who in free:
                then, waiting = after(self.ready(state, who), (*queue, who))
                yield from go(then, waiting, [*done, (who, self._queued(then, waiting))])

        yield from go(self.start(*programs), (), [])


def _left(changes: Sequence[Change]) -> tuple[int, ...]:
    """The numbers of the changes that no truncation among them has deleted."""
    return tuple(
        c.number
        for c in changes
        if not any(t.truncates and t.table == c.table and t.number > c.number for t in changes)
    )


def _conflict(held: str, wanted: str) -> bool:
    modes = {held, wanted}
    return "AX" in modes if "AS" in modes else modes not in ({"RX"}, {"S"})


def _reached(edges: Mapping[int, frozenset[int]], who: int) -> set[int]:
    """The processes that one waits for, also by way of others."""
    reached: set[int] = set()
    border = set(edges.get(who, ()))
    while border:
        process = border.pop()
        if process not in reached:
            reached.add(process)
            border |= edges.get(process, frozenset())
    return reached


def _with(state: State, who: int, process: Process) -> State:
    processes = (*state.processes[:who], process, *state.processes[who + 1 :])
    return replace(state, processes=processes)

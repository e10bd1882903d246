"""Random steps of a case: one function for each kind of step, and the list of these functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from psycopg.sql import SQL, Literal

from orchestrator.fuzz.case import (
    Alone,
    Crash,
    Late,
    LateEnd,
    Recreate,
    Refresh,
    Replace,
    Statement,
    Step,
    Storm,
    Transaction,
    View,
)
from orchestrator.fuzz.steps.ddl import schema_change
from orchestrator.fuzz.steps.loads import load_rows
from orchestrator.fuzz.steps.rows import Writer, burst_of


@dataclass
class Story:
    """The state of a case while its steps are generated, and the parts that steps are made from.

    `other_query(view)` makes another query for a view that nothing reads.
    """

    rng: Random
    writer: Writer
    views: Sequence[View]
    free: Sequence[View]
    other_query: Callable[[View], View]
    late: bool = field(default=False)

    def chance(self, share: float) -> bool:
        """Return True in this share of calls."""
        return self.rng.random() < share

    def steps(self, times: int = 1) -> list[Step]:
        """Return all steps of a case, with frequent refreshes so that a failure can be located.

        With a higher `times`, the case has so many times as many steps.
        """
        result: list[Step] = []
        for _ in range(times * self.rng.choice((1, 2, 3, 4, 5, 6, 8))):
            result += self.rng.choice(STEPS)(self)
        return [*result, LateEnd(self.rng.choice(("commit", "rollback")))] if self.late else result

    def steps_with_loads(self) -> list[Step]:
        """Return the steps of a case that loads rows, mostly without other steps in between."""
        result: list[Step] = []
        for _ in range(self.rng.choice((1, 2, 3, 4))):
            if self.chance(0.4):
                result += self.rng.choice(STEPS)(self)
            result += load(self)
        return [*result, LateEnd(self.rng.choice(("commit", "rollback")))] if self.late else result


def load(story: Story) -> list[Step]:
    """Return a load, and mostly a refresh of all views."""
    steps: list[Step] = []
    if story.late:
        story.late = False
        steps.append(LateEnd())
    steps.append(load_rows(story.writer))
    return [*steps, *(refresh_all(story) if story.chance(0.7) else transaction(story))]


def transaction(story: Story) -> list[Step]:
    """Return a transaction, sometimes with savepoints or a refresh inside."""
    statements: list[Statement] = []
    for _ in range(story.rng.choice((1, 1, 1, 2, 3, 4, 6))):
        statements.append(story.writer.statement())
        if story.chance(0.08):
            statements += _within_savepoint(story)
        if story.chance(0.08):
            statements.append(_refresh_inside(story))
    end = story.rng.choice(("commit",) * 10 + ("rollback", "crash"))
    level = story.rng.choice(("read committed",) * 6 + ("repeatable read",) * 2 + ("serializable",))
    return [Transaction(tuple(statements), end, level)]


def batch_and_refresh(story: Story) -> list[Step]:
    """Return some transactions, and then a refresh of all views."""
    steps = [step for _ in range(story.rng.choice((1, 1, 2, 3))) for step in transaction(story)]
    return [*steps, *refresh_all(story)]


def refresh_all(story: Story) -> list[Step]:
    """Return a refresh of all views."""
    return [Refresh((), story.rng.choice(("api", "jobs", "sql", "call", "check")))]


def refresh_some(story: Story) -> list[Step]:
    """Return a transaction and a refresh of one or two views."""
    chosen = story.rng.sample(story.views, min(len(story.views), story.rng.choice((1, 1, 2))))
    how = story.rng.choice(("api", "jobs", "sql", "call", "check"))
    return [*transaction(story), Refresh(tuple(view.name for view in chosen), how)]


def late_commit(story: Story) -> list[Step]:
    """Begin a transaction on a second connection before some steps, or end it after them."""
    if story.late:
        story.late = False
        return [LateEnd(story.rng.choice(("commit", "commit", "commit", "rollback")))]
    story.late = True
    statements = [story.writer.statement() for _ in range(story.rng.choice((1, 1, 2)))]
    if story.chance(0.1):
        statements.append(_refresh_inside(story))
    return [Late(tuple(statements), story.chance(0.2)), *batch_and_refresh(story)]


def other_definition(story: Story) -> list[Step]:
    """Return CREATE OR REPLACE, or drop and create, of a view that no other view reads."""
    if story.late or not story.free:
        return transaction(story)
    view = story.rng.choice(story.free)
    if story.chance(0.4):
        return [Recreate(view)]
    other = story.other_query(view)
    return [Replace(other) if story.chance(0.6) else Recreate(other)]


def ddl(story: Story) -> list[Step]:
    """Return DDL on a table and the DDL that undoes it, with changes and refreshes in between."""
    steps: list[Step] = []
    for statement in schema_change(story.rng, story.writer.models):
        steps += [statement, *story.rng.choice((transaction, batch_and_refresh))(story)]
    return [*steps, *refresh_all(story)]


def collect(story: Story) -> list[Step]:
    """Return a collection of the logs, with a low limit so that segments fill up quickly."""
    pages = SQL(str(story.rng.choice((0, 0, 1))))
    statement = Statement(SQL("SELECT idivm.collect({})").format(pages).as_string(None))
    return [
        *transaction(story),
        Alone(statement),
        *story.rng.choice((refresh_all, transaction))(story),
    ]


_LEAVE_BEHIND = """
    WITH behind AS (
        UPDATE idivm.watermarks w SET content_only = true
        FROM idivm.views v
        WHERE v.id = w.view AND v.maintain = 'deferred' AND v.status = 'ready'
          AND v.id NOT IN (SELECT idivm.synchronous_views())
          AND to_regproc(format('idivm_state.%I', 'content_' || v.id)) IS NOT NULL
        RETURNING v.id)
    INSERT INTO idivm.costs AS c (view, row_seconds, content_row_seconds, lost_seconds)
    SELECT id, 1, 1e-9, {0} FROM behind
    ON CONFLICT (view) DO UPDATE SET row_seconds = 1, content_row_seconds = 1e-9, lost_seconds = {0}
"""


def leave_behind(story: Story) -> list[Step]:
    """Let refreshes compute the contents alone, as after large changes, and then let them compute the states."""
    steps: list[Step] = []
    for lost in (0, 1e12) if story.chance(0.7) else (0,):
        statement = Statement(SQL(_LEAVE_BEHIND).format(Literal(lost)).as_string(None).strip())
        steps += [Alone(statement), *story.rng.choice((batch_and_refresh, refresh_some))(story)]
    return steps


def burst(story: Story) -> list[Step]:
    """Insert and delete many rows, in one transaction or in two."""
    model = story.rng.choice(story.writer.models)
    pair = burst_of(model)
    if pair is None:
        return transaction(story)
    if story.chance(0.5):
        return [Transaction(pair), *transaction(story), *refresh_all(story)]
    return [Transaction(pair[:1]), *transaction(story), Transaction(pair[1:]), *refresh_all(story)]


def storm(story: Story) -> list[Step]:
    """Return concurrent writers and refreshers."""
    if story.late:
        return transaction(story)
    writers = []
    for _ in range(story.rng.choice((1, 2, 3))):
        steps = [step for _ in range(story.rng.randint(1, 4)) for step in transaction(story)]
        quiet = [s for s in steps if isinstance(s, Transaction) and s.end != "crash"]
        writers.append(tuple(quiet))
    hows = ["api", "jobs", "sql", "call", "check"]
    if any("TRUNCATE" in s.sql for w in writers for t in w for s in t.statements):
        # A snapshot taken before a TRUNCATE finds the table empty, so `check` may report a
        # difference.
        hows.remove("check")
    refreshes = tuple(Refresh((), story.rng.choice(hows)) for _ in range(story.rng.randint(1, 4)))
    return [Storm(tuple(writers), refreshes)]


def crash(story: Story) -> list[Step]:
    """Return changes, an interrupted refresh, and a complete refresh."""
    how = story.rng.choice(("timeout", "terminate"))
    cut = Crash(how, story.rng.randint(0, 25))
    if not story.late and story.free and story.chance(0.3):
        cut = replace(cut, view=story.rng.choice(story.free), milliseconds=story.rng.randint(0, 80))
    return [*transaction(story), cut, *batch_and_refresh(story)]


STEPS: tuple[Callable[[Story], list[Step]], ...] = (
    batch_and_refresh,
    batch_and_refresh,
    batch_and_refresh,
    transaction,
    transaction,
    refresh_all,
    refresh_some,
    late_commit,
    other_definition,
    ddl,
    collect,
    leave_behind,
    burst,
    storm,
    crash,
)
"""All kinds of steps; a kind that is listed twice occurs twice as often."""


def _within_savepoint(story: Story) -> list[Statement]:
    inside = [story.writer.statement() for _ in range(story.rng.choice((1, 2)))]
    if story.chance(0.2):
        inside.append(_refresh_inside(story))
    end = "ROLLBACK TO SAVEPOINT sp" if story.chance(0.7) else "RELEASE SAVEPOINT sp"
    return [Statement("SAVEPOINT sp"), *inside, Statement(end)]


def _refresh_inside(story: Story) -> Statement:
    view = story.rng.choice(story.views)
    call = SQL("SELECT * FROM idivm.refresh({})").format(Literal(view.name))
    return Statement(call.as_string(None), refreshes=view.name)

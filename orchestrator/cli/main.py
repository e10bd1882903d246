"""Parse the arguments of `idivm`, call the Python interface and print the results."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from orchestrator import __version__
from orchestrator.cli import streams
from orchestrator.errors import IdivmError


class _Parser(argparse.ArgumentParser):
    """Report a wrong argument in one sentence, with exit status 2."""

    def error(self, message: str) -> Any:
        sys.stderr.write(f"idivm: {message}; see {self.prog} --help.\n")
        raise SystemExit(2)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    # These imports take a second or two. `main` catches Ctrl-C meanwhile.
    from orchestrator.bench import names
    from orchestrator.cli import capture, commands, load, overview, timing, watch
    from orchestrator.cli.completion import SHELLS
    from orchestrator.cli.pictures import FORMATS
    from orchestrator.runtime.serve import WORKERS
    from orchestrator.runtime.wal.switching import WAYS

    parser = _Parser(
        prog="idivm",
        description="Maintain SQL views incrementally inside PostgreSQL.",
    )
    parser.add_argument("--version", action="version", version=f"idivm {__version__}")
    common = _Parser(add_help=False)
    common.add_argument(
        "--dsn",
        help="database to connect to (default: $IDIVM_DSN, then $DATABASE_URL, then the embedded server)",
    )
    common.add_argument("--json", action="store_true", help="print JSON")
    verbs = parser.add_subparsers(
        dest="verb", required=True, metavar="COMMAND", parser_class=_Parser
    )

    def verb(name: str, text: str, run: Any) -> argparse.ArgumentParser:
        sub = verbs.add_parser(name, help=text, description=text, parents=[common])
        sub.set_defaults(run=run)
        return sub

    sub = verb(
        "sql", "run SQL; CREATE VIEW, DROP VIEW and REFRESH manage maintained views", commands.sql
    )
    sub.add_argument("-c", dest="text", metavar="SQL", help="SQL to run")
    sub.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help="SQL file (-: standard input; default: standard input, or a shell on a terminal)",
    )

    verb("init", "prepare a database, so that SQL alone can create views", commands.init)

    sub = verb(
        "plan",
        "plan the views that SQL created, so that they are incremental (default: all)",
        commands.plan,
    )
    sub.add_argument("views", nargs="*", metavar="VIEW")

    sub = verb("refresh", "refresh views (default: all) in one snapshot", commands.refresh)
    sub.add_argument("views", nargs="*", metavar="VIEW")
    sub.add_argument(
        "--jobs",
        type=int,
        default=1,
        metavar="N",
        help="how many sessions refresh views that do not read each other at once (default: 1)",
    )

    verb("list", "list the maintained views", overview.list_views)

    sub = verb(
        "status", "show pending changes, the last refresh, sizes and errors", overview.status
    )
    sub.add_argument("view", nargs="?", metavar="VIEW")

    sub = verb("explain", "show how a view is maintained, and why", commands.explain)
    sub.add_argument("view", nargs="?", metavar="VIEW")
    sub.add_argument(
        "--query", metavar="SQL", help="explain a view of this query, without creating it"
    )
    sub.add_argument(
        "--plan",
        action="store_true",
        help="show the algebra plan, the captured columns and the stored tables",
    )
    sub.add_argument(
        "--script", action="store_true", help="show the steps of a refresh in relational notation"
    )
    sub.add_argument(
        "--tree",
        action="store_true",
        help="show the stored states and what each is computed from: the view tree, or heavy and light parts",
    )
    sub.add_argument("--sql", action="store_true", help="show the SQL that maintains the view")
    sub.add_argument(
        "--why", action="store_true", help="show why this strategy was chosen, with cost estimates"
    )
    sub.add_argument(
        "--format",
        choices=FORMATS,
        help="draw the plan, or what --tree or --script shows: text, json, mermaid, dot, svg, or html with all",
    )

    sub = verb(
        "check",
        "refresh views and compare each with the result of its query; exit status 1 if they differ",
        commands.check,
    )
    sub.add_argument("views", nargs="*", metavar="VIEW")

    sub = verb(
        "enumerate",
        "print the rows of a view as they are computed, without computing all of them first",
        commands.enumerate_rows,
    )
    sub.add_argument("view", metavar="VIEW")
    sub.add_argument(
        "--with",
        dest="prefix",
        action="append",
        default=[],
        metavar="COLUMN=VALUE",
        help="print only rows with this value",
    )
    sub.add_argument("--limit", type=int, metavar="N", help="print at most N rows")

    sub = verb("drop", "drop a maintained view and everything that only it uses", commands.drop)
    sub.add_argument("view", metavar="VIEW")
    sub.add_argument("--cascade", action="store_true", help="also drop the views that read it")
    sub.add_argument("--if-exists", action="store_true", help="do nothing if there is no such view")

    sub = verb(
        "restore",
        "recreate views that DROP ... CASCADE of a table or plain view removed",
        commands.restore,
    )
    sub.add_argument("views", nargs="*", metavar="VIEW")

    sub = verb(
        "adopt",
        "make maintained views of materialized views and of views of pg_ivm",
        commands.adopt,
    )
    sub.add_argument("--all", action="store_true", help="adopt all that this role owns")
    sub.add_argument(
        "--dry-run",
        action="store_true",
        help="show the strategy, the cost and what would be lost, and change nothing",
    )
    sub.add_argument(
        "--jobs",
        type=int,
        default=2,
        metavar="N",
        help="how many sessions adopt views at once (default: 2)",
    )
    sub.add_argument(
        "--maintain",
        metavar="MODE",
        help="deferred, eager or on_commit (default: eager for views of pg_ivm, else deferred)",
    )
    sub.add_argument("views", nargs="*", metavar="VIEW")

    sub = verb("release", "give a maintained view back as a materialized view", commands.release)
    sub.add_argument("view", metavar="VIEW")

    load.add_arguments(
        verb("load", "load files or databases into tables with Apache Spark", load.load)
    )

    sub = verb(
        "stream", "streams that load tables, and streams whose rows stay in files", commands.stream
    )
    actions = sub.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("list", help="show the last batch of each stream", parents=[common])
    action = actions.add_parser(
        "create",
        help="create a table whose rows stay in files, for views that follow the files",
        parents=[common],
    )
    action.add_argument("name", metavar="STREAM")
    action.add_argument("columns", metavar="COLUMNS", help="columns as in CREATE TABLE")
    action.add_argument(
        "--from",
        dest="paths",
        nargs="+",
        required=True,
        metavar="FILES",
        help="folders, patterns or URIs",
    )
    action.add_argument(
        "--format", default="auto", metavar="NAME", help="auto, csv, json, parquet or orc"
    )
    action.add_argument(
        "--options",
        action="append",
        default=[],
        metavar="K=V",
        help="option of the reader of the files",
    )
    action.add_argument(
        "--op", metavar="COLUMN", help="column of the files that says insert or delete (or i, d)"
    )
    action.add_argument("--where", metavar="CONDITION", help="take only these rows (Spark SQL)")
    action.add_argument(
        "--select", metavar="LIST", help="take these expressions instead of the columns (Spark SQL)"
    )
    load.add_stream_arguments(
        actions.add_parser(
            "run",
            help="let the views over a stream follow its files, until stopped",
            parents=[common],
        )
    )
    action = actions.add_parser(
        "drop", help="drop a table whose rows stay in files; the files stay", parents=[common]
    )
    action.add_argument("name", metavar="STREAM")
    action = actions.add_parser(
        "remove",
        help="forget a stream: one of this name then begins from the start",
        parents=[common],
    )
    action.add_argument("name", metavar="NAME")

    sub = verb(
        "watch", "show the changes of a view with feed = on as refreshes make them", watch.watch
    )
    sub.add_argument("view", metavar="VIEW")
    sub.add_argument("--since", type=int, metavar="REFRESH", help="begin after this refresh")
    sub.add_argument("--snapshot", action="store_true", help="begin with the rows of the view")
    sub.add_argument(
        "--consumer", metavar="NAME", help="begin where this registered consumer is, and advance it"
    )
    sub.add_argument("--once", action="store_true", help="end with the changes that there are")

    sub = verb(
        "schedule",
        "refresh a view at an interval or at cron's times; alone: list schedules, refresh groups and gates",
        timing.schedule,
    )
    sub.add_argument("view", nargs="?", metavar="VIEW")
    sub.add_argument(
        "every", nargs="?", metavar="TIMES", help="an interval, as in '10 s', or as in '0 3 * * *'"
    )
    sub = verb("unschedule", "end the schedule of a view", timing.unschedule)
    sub.add_argument("view", metavar="VIEW")

    sub = verb(
        "gate",
        "say that a batch of changes of a table is complete; alone: list the last batches",
        timing.gate,
    )
    sub.add_argument("table", nargs="?", metavar="TABLE")
    sub.add_argument("batch", nargs="?", metavar="BATCH")

    sub = verb(
        "capture",
        "capture the changes of a table by triggers or from the WAL; alone: list tables and the slot",
        capture.capture,
    )
    sub.add_argument("table", nargs="?", metavar="TABLE")
    sub.add_argument("--from", dest="way", choices=WAYS)

    sub = verb("serve", "refresh deferred views continuously until stopped", commands.serve)
    sub.add_argument(
        "--interval",
        default="500ms",
        help="maximum staleness of views that do not set the option staleness (default: 500ms)",
    )
    sub.add_argument(
        "--metrics", metavar="[HOST:]PORT", help="serve metrics for Prometheus at this address"
    )
    sub.add_argument("--console", metavar="[HOST:]PORT", help="serve the console at this address")
    sub.add_argument(
        "--workers",
        type=int,
        default=WORKERS,
        metavar="N",
        help="how many groups of views are refreshed at once, each in a session of its own"
        f" (default: {WORKERS})",
    )
    sub.add_argument(
        "--traces", action="store_true", help="export a span of OpenTelemetry for each refresh"
    )
    sub.add_argument(
        "--log-format",
        choices=("text", "json"),
        default="text",
        help="text, or json: one JSON object with time and level for each event (default: text)",
    )

    sub = verb("console", "serve pages that show views, plans and refreshes", commands.console)
    sub.add_argument(
        "--listen",
        default="9188",
        metavar="[HOST:]PORT",
        help="the address (default: localhost:9188)",
    )
    sub.add_argument(
        "--allow-refresh",
        action="store_true",
        help="let the pages refresh views, not only show them",
    )

    verb(
        "top",
        "show the views in the terminal, with keys to refresh, explain and pause",
        commands.top,
    )

    sub = verb("up", "start the embedded server and print its connection string", commands.up)
    sub.add_argument(
        "--accelerate",
        action="store_true",
        help="also build the optional C modules; needs a C compiler and PostgreSQL's header files",
    )
    verb("demo", "take a tour of about a minute, with a server of its own", commands.demo)
    sub = verb("completion", "print the completion script of a shell", commands.completion)
    sub.add_argument("shell", choices=SHELLS, metavar="SHELL", help=" or ".join(SHELLS))
    verb("down", "stop the embedded server", commands.down)

    sub = verb(
        "doctor", "find and repair problems; exit status 1 if there were any", commands.doctor
    )
    sub.add_argument(
        "--quick",
        action="store_true",
        help="do not compare the content of views with their queries",
    )
    sub.add_argument(
        "--health",
        action="store_true",
        help="change nothing: report capture, and the state of each view",
    )
    sub.add_argument(
        "--max-lag", metavar="TIME", help="with --health: how old a view may be, as in 5min"
    )

    sub = verbs.add_parser("bench", help="run a benchmark", description="Run a benchmark.")
    names.add_arguments(sub, common)
    return parser


def _java_early(arguments: Sequence[str]) -> AbstractContextManager[None]:
    """Start Java for a short load before the imports that take as long; end Java if the load did not use it."""
    from orchestrator.cli.load import expects_spark

    if not expects_spark(arguments):
        return nullcontext()
    from orchestrator.spark.launch import launched_early

    return launched_early()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Return its exit status: 0 for success, 1 for a finding, 2 for an error."""
    options = argparse.Namespace()
    try:
        streams.make_usable()
        with _java_early(sys.argv[1:] if arguments is None else arguments):
            options = build_parser().parse_args(arguments)
            # The error that is raised then reports the connection problem already.
            logging.getLogger("psycopg").setLevel(logging.CRITICAL)
            status: int = options.run(options)
            sys.stdout.flush()
            return status
    except IdivmError as error:
        return _failed(options, str(error), error.exit_status)
    except KeyboardInterrupt:
        return _failed(options, "Interrupted; uncommitted changes are rolled back.", 130)
    except BrokenPipeError:
        streams.give_up(sys.stdout)
        return 0
    except OSError as error:
        if error.filename is not None:
            raise
        streams.give_up(sys.stdout)
        return _failed(options, f"Cannot write the output: {error.strerror}.", 2)


def _failed(options: argparse.Namespace, sentence: str, status: int) -> int:
    try:
        if getattr(options, "json", False):
            print(json.dumps({"error": sentence}), flush=True)
        else:
            print(f"idivm: {sentence}", file=sys.stderr, flush=True)
    except OSError:
        streams.give_up(sys.stdout)
        streams.give_up(sys.stderr)
    return status


if __name__ == "__main__":
    raise SystemExit(main())

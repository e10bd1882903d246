"""The `idivm` command: parses arguments, calls the Python interface, prints."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from typing import Any

from orchestrator.cli import streams
from orchestrator.errors import IdivmError


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, with exit status 2."""

    def error(self, message: str) -> Any:
        sys.stderr.write(f"idivm: {message}; see {self.prog} --help.\n")
        raise SystemExit(2)


def build_parser() -> argparse.ArgumentParser:
    """The command line's grammar."""
    # These take a second or two to load: within `main`, so that Ctrl-C is answered meanwhile.
    from orchestrator.bench import names
    from orchestrator.cli import commands, load

    parser = _Parser(
        prog="idivm",
        description="SQL views that stay up to date by themselves inside PostgreSQL.",
    )
    common = _Parser(add_help=False)
    common.add_argument(
        "--dsn",
        help="the database (default: $IDIVM_DSN, then $DATABASE_URL, then the embedded server)",
    )
    common.add_argument("--json", action="store_true", help="print JSON for programs")
    verbs = parser.add_subparsers(
        dest="verb", required=True, metavar="COMMAND", parser_class=_Parser
    )

    def verb(name: str, text: str, run: Any) -> argparse.ArgumentParser:
        sub = verbs.add_parser(name, help=text, description=text, parents=[common])
        sub.set_defaults(run=run)
        return sub

    sub = verb(
        "sql", "run SQL; CREATE VIEW, DROP VIEW and REFRESH act on maintained views", commands.sql
    )
    sub.add_argument("-c", dest="text", metavar="SQL", help="the SQL to run")
    sub.add_argument("file", nargs="?", help="a file of SQL (- or nothing: standard input)")

    sub = verb(
        "refresh", "bring views up to date, all by default, in one snapshot", commands.refresh
    )
    sub.add_argument("views", nargs="*", metavar="VIEW")

    verb("list", "list the maintained views", commands.list_views)

    sub = verb("status", "show staleness, pending changes, sizes and costs", commands.status)
    sub.add_argument("view", nargs="?", metavar="VIEW")

    sub = verb("explain", "show how a view is maintained", commands.explain)
    sub.add_argument("view", metavar="VIEW")
    sub.add_argument("--plan", action="store_true", help="the algebra plan and what is stored")
    sub.add_argument("--script", action="store_true", help="the SQL that maintains the view")
    sub.add_argument("--why", action="store_true", help="why this strategy and not another")

    sub = verb(
        "check", "refresh views and compare each with its query's own answer", commands.check
    )
    sub.add_argument("views", nargs="*", metavar="VIEW")

    sub = verb(
        "enumerate",
        "print a view's rows one after the other, as they are found",
        commands.enumerate_rows,
    )
    sub.add_argument("view", metavar="VIEW")
    sub.add_argument(
        "--with",
        dest="prefix",
        action="append",
        default=[],
        metavar="COLUMN=VALUE",
        help="only rows that have this value",
    )
    sub.add_argument("--limit", type=int, metavar="N", help="no more than N rows")

    sub = verb("drop", "drop a maintained view", commands.drop)
    sub.add_argument("view", metavar="VIEW")
    sub.add_argument("--cascade", action="store_true", help="drop what reads it as well")
    sub.add_argument(
        "--if-exists", action="store_true", help="do nothing when there is no such view"
    )

    sub = verb(
        "restore",
        "create views again that DROP ... CASCADE took along with what they read",
        commands.restore,
    )
    sub.add_argument("views", nargs="*", metavar="VIEW")

    load.add_arguments(
        verb("load", "load files or databases into tables, by Spark, each row once", load.load)
    )

    sub = verb("serve", "keep deferred views fresh until it is stopped", commands.serve)
    sub.add_argument(
        "--interval",
        default="500ms",
        help="how far a view may lag behind whose option staleness says nothing (default: 500ms)",
    )

    sub = verb("up", "start the embedded server", commands.up)
    sub.add_argument(
        "--accelerate",
        action="store_true",
        help="build capture in C for it, which needs a compiler and PostgreSQL's header files",
    )
    verb("down", "stop the embedded server", commands.down)

    sub = verb("doctor", "look at an installation and mend what is broken", commands.doctor)
    sub.add_argument(
        "--quick", action="store_true", help="do not compare the views' content with their queries"
    )

    sub = verbs.add_parser("bench", help="run a measurement", description="Run a measurement.")
    names.add_arguments(sub, common)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and gives its exit status: 0 success, 1 a finding, 2 bad input."""
    options = argparse.Namespace()
    try:
        streams.make_usable()
        options = build_parser().parse_args(arguments)
        # What is wrong with a connection is said once, by the error that follows.
        logging.getLogger("psycopg").setLevel(logging.CRITICAL)
        status: int = options.run(options)
        sys.stdout.flush()
        return status
    except IdivmError as error:
        return _failed(options, str(error), error.exit_status)
    except KeyboardInterrupt:
        return _failed(options, "Interrupted; what was not committed is undone.", 130)
    except BrokenPipeError:
        streams.give_up(sys.stdout)
        return 0
    except OSError as error:
        if error.filename is not None:
            raise
        streams.give_up(sys.stdout)
        return _failed(options, f"The output could not be written: {error.strerror}.", 2)


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

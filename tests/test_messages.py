"""What users read when something goes wrong: one sentence, in their own words, that says where and what to do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orchestrator.cli.main import main


@pytest.fixture
def said(dsn, capfd):
    """Runs a command; returns its status, and what it printed and said."""

    def run(*arguments):
        status = main([*arguments, "--dsn", dsn])
        captured = capfd.readouterr()
        return status, captured.out, captured.err

    status, *_ = run(
        "sql",
        "-c",
        "CREATE TABLE orders (id int PRIMARY KEY, customer text, amount int);"
        "CREATE VIEW totals AS SELECT customer, sum(amount) AS total FROM orders GROUP BY customer;"
        "CREATE VIEW ids AS SELECT id FROM orders",
    )
    assert status == 0
    return run


def process(*arguments, dsn="host=/nowhere", **options):
    """The command as a process of its own."""
    command = [sys.executable, "-m", "orchestrator.cli.main", *arguments, "--dsn", dsn]
    return subprocess.Popen(
        command, **{"stderr": subprocess.PIPE, "stdout": subprocess.PIPE, **options}
    )


def one_sentence(text):
    assert text.startswith("idivm: "), text
    assert len(text.strip().splitlines()) == 1, text
    assert "Traceback" not in text
    return text


@pytest.mark.parametrize(
    ("script", "place"),
    [
        ("SELECT id\nFROM orders\nWHRE id > 1 ORDER", "line 3, column 6, at 'id > 1 ORDER'"),
        ("SELECT 1;\n SELECT wrong FROM orders", "line 1, column 8, at 'wrong FROM orders'"),
        (
            "CREATE VIEW v AS\nSELECT id,\n  custmer FROM orders",
            "line 2, column 3, at 'custmer FROM orders'",
        ),
        (
            "CREATE VIEW v (a, b) AS SELECT id, 'ä', FROM orders",
            "line 1, column 17, at 'FROM orders'",
        ),
    ],
)
def test_syntax_errors_say_where(said, script, place):
    status, _, errors = said("sql", "-c", script)
    assert status == 2
    assert place in one_sentence(errors)


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["explain", "totls"], "totals"),
        (["refresh", "Totals_"], "totals"),
        (["sql", "-c", "SELECT * FROM ordrs"], "orders"),
        (["sql", "-c", "DROP VIEW total"], "totals"),
        (["sql", "-c", "CREATE VIEW v AS SELECT * FROM order_s"], "orders"),
    ],
)
def test_near_misses_of_names(said, arguments, meant):
    status, _, errors = said(*arguments)
    assert status == 2
    assert f"Did you mean {meant}?" in one_sentence(errors)


def test_a_name_that_nothing_is_like_gets_no_guess(said):
    assert "Did you mean" not in said("explain", "revenue_by_month")[2]


def test_drops_speak_of_the_users_views(said):
    for statement in (
        "ALTER TABLE orders DROP COLUMN amount",
        "DROP TABLE orders",
        "ALTER TABLE orders ALTER COLUMN amount TYPE bigint",
    ):
        status, _, errors = said("sql", "-c", statement)
        assert status == 2
        assert "idivm_" not in one_sentence(errors)
        assert "totals" in errors, errors
    status, _, notices = said("sql", "-c", "DROP TABLE orders CASCADE")
    assert status == 0
    assert "totals" in notices
    assert "ids" in notices
    assert "idivm_" not in notices


def test_a_byte_order_mark_is_no_part_of_a_script(said, tmp_path):
    script = tmp_path / "script.sql"
    script.write_bytes(b"\xef\xbb\xbfSELECT 42 AS answer")
    status, out, _ = said("sql", str(script))
    assert status == 0
    assert "42" in out
    assert said("sql", "-c", "\ufeffSELECT 42 AS answer")[0] == 0


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"SELECT 1;\nSELECT '\x00'", "Line 2 of the SQL text has a NUL byte"),
        ("SELECT 1".encode("utf-16"), "is not UTF-8 text (line 1)"),
        (b"SELECT 1;\n\nSELECT '\xe4'", "is not UTF-8 text (line 3)"),
    ],
)
def test_texts_that_are_not_utf_8(said, tmp_path, content, says):
    script = tmp_path / "script.sql"
    script.write_bytes(content)
    status, out, errors = said("sql", str(script))
    assert (status, out) == (2, "")
    assert says in one_sentence(errors)


@pytest.mark.parametrize(
    ("dsn", "says"),
    [
        ("host=127.0.0.1 port=1", ('"127.0.0.1", port 1', "Connection refused")),
        ("host=/nowhere", ("/nowhere", "No such file")),
        ("host=127.0.0.1,/nowhere port=1,2", ('"127.0.0.1", port 1', "/nowhere")),
        ("host=no-such-host.invalid password=secret", ("no-such-host.invalid",)),
    ],
)
def test_connection_errors_name_the_host_and_the_reason(capfd, dsn, says):
    assert main(["list", "--dsn", dsn]) == 2
    errors = one_sentence(capfd.readouterr().err)
    for part in says:
        assert part in errors
    assert "secret" not in errors


def test_a_database_that_does_not_exist(said, dsn, capfd):
    assert main(["list", "--dsn", f"{dsn} dbname=nowhere"]) == 2
    assert 'database "nowhere" does not exist' in one_sentence(capfd.readouterr().err)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["starting", "loading"])
def test_ctrl_c_while_the_program_starts(tmp_path, moment):
    # What the program imports waits until it is interrupted.
    reached = tmp_path / "reached"
    waiting = "import time, pathlib; pathlib.Path({!r}).touch()\nwhile True: time.sleep(0.01)"
    name = {"starting": "rich", "loading": "sqlglot"}[moment]
    (tmp_path / f"{name}.py").write_text(waiting.format(str(reached)))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}

    def restore():  # A shell's background job ignores the signal, and so do its children.
        signal.signal(signal.SIGINT, signal.default_int_handler)

    with process("list", env=environment, preexec_fn=restore) as running:
        while not reached.exists():
            assert running.poll() is None
            time.sleep(0.01)
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate()
    assert running.returncode == 130
    assert "Interrupted" in one_sentence(errors.decode())


@pytest.mark.slow
def test_a_closed_standard_output(said, dsn):
    with process("list", dsn=dsn, stdout=None, preexec_fn=lambda: os.close(1)) as running:
        _, errors = running.communicate()
    assert (running.returncode, errors) == (0, b"")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full device")
@pytest.mark.parametrize("arguments", [["list"], ["list", "--json"], ["explain", "totals"]])
def test_a_full_standard_output(said, dsn, arguments):
    with (
        open("/dev/full", "w") as full,  # noqa: PTH123
        process(*arguments, dsn=dsn, stdout=full) as running,
    ):
        _, errors = running.communicate()
    assert running.returncode == 2
    if "--json" not in arguments:
        assert "No space left" in one_sentence(errors.decode())
    assert b"Traceback" not in errors
    assert b"Exception" not in errors


@pytest.mark.slow
def test_an_ascii_terminal(said, dsn):
    said("sql", "-c", "CREATE TABLE t (name text); INSERT INTO t VALUES ('größe Δ')")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    for arguments in (
        ["sql", "-c", "SELECT name FROM t"],
        ["explain", "totals", "--plan"],
        ["sql", "--json", "-c", "SELECT name FROM t"],
        ["explain", "größe"],
    ):
        with process(*arguments, dsn=dsn, env=environment) as running:
            out, errors = running.communicate()
        assert running.returncode == (2 if "größe" in arguments else 0)
        assert (out + errors).isascii()
        assert b"Traceback" not in errors

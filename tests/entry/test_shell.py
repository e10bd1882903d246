"""The shell of `idivm sql` on a terminal, and the completion of its commands by other shells."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from orchestrator.api import Orchestrator
from orchestrator.cli.main import main
from orchestrator.cli.output import print_result
from orchestrator.cli.shell import Shell

TYPED = r"""CREATE TABLE orders
(id int PRIMARY KEY, amount int);
CREATE VIEW totals AS SELECT sum(amount) AS total FROM orders;
INSERT INTO orders VALUES (1, 42);
REFRESH VIEW totals;
\timing
TABLE totals;
SELECT broken;
\d
\d totals
\?
\q
"""


def test_statements_commands_completion_and_history(
    orc: Orchestrator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = tmp_path / "history"
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        pipe.send_text(TYPED.replace("\n", "\r"))
        shell = Shell(orc, print_result, history)
        shell.loop()
    printed = capsys.readouterr().out
    for words in (
        "CREATE VIEW totals: deferred",
        "REFRESH: 1 rows changed",
        "Timing is on.",
        "42",
        "time: ",
        'error: SELECT failed: column "broken" does not exist',
        "maintained view",
        "bigint",
        "show the columns of a relation",
    ):
        assert words in printed, printed
    assert {"SELECT", "orders", "amount", "total"} <= set(shell.words)
    assert "(id int PRIMARY KEY, amount int);" in history.read_text()


@pytest.mark.parametrize("shell", ["bash", "fish", "zsh"])
def test_shells_complete_commands(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "refresh" in script
    if shell == "bash":
        check = f'{script}\nCOMP_WORDS=(idivm expl); COMP_CWORD=1; _idivm; echo "${{COMPREPLY[@]}}"'
        check += '; COMP_WORDS=(idivm explain --w); COMP_CWORD=2; _idivm; echo "${COMPREPLY[@]}"'
        done = subprocess.run(["bash", "-c", check], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines() == ["explain", "--why"]

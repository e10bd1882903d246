"""Processes of a benchmark that is killed."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

PROGRAM = """
import signal, subprocess
from orchestrator.bench.load.cluster import Processes
# A program in the background of a shell ignores it.
signal.signal(signal.SIGINT, signal.default_int_handler)
started = Processes()
command = ["sh", "-c", "sleep 1000 & echo $$ $!; wait"]
process = started.start(command, stdout=subprocess.PIPE, text=True)
print(process.stdout.readline().strip(), flush=True)
signal.pause()
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="only Linux can watch other processes")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_processes_and_their_children_end_with_the_benchmark(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as bench:
        assert bench.stdout is not None
        watched = [os.pidfd_open(int(pid)) for pid in bench.stdout.readline().split()]
        assert len(watched) == 2
        bench.send_signal(number)
    for process in watched:
        assert select.select([process], [], [], 60)[0]
        os.close(process)

"""The tables of TPC-H, made by its generator."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
import tempfile
from functools import partial
from pathlib import Path

from psycopg import sql

from orchestrator.api import Orchestrator
from orchestrator.bench.workload import Workload, configure
from orchestrator.errors import UsageError

TABLES = (
    "region",
    "nation",
    "supplier",
    "part",
    "partsupp",
    "customer",
    "orders",
    "lineitem",
)

GENERATOR = "tpchgen-cli"
_PIECE = 1 << 20


def workload(scale: float) -> Workload:
    """Return the workload with the data of a scale; scale 1 has 6 million order lines."""
    return Workload("tpch", partial(_fill, scale=scale))


def change(orchestrator: Orchestrator, number: int, share: float) -> None:
    """Change a share of all rows, with different rows in every round."""
    configure(orchestrator, "bench.round", number)
    configure(orchestrator, "bench.share", share)
    orchestrator.connection.execute(Workload("tpch").text("change").encode())


def _fill(orchestrator: Orchestrator, scale: float) -> None:
    with tempfile.TemporaryDirectory(prefix="idivm-tpch-") as folder:
        command = [_generator(), "csv", "-s", f"{scale}", "-o", folder, "--quiet"]
        completed = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
        if completed.returncode:
            raise UsageError(f"{GENERATOR} cannot make the tables of TPC-H at scale {scale}.")
        for table in TABLES:
            copy = sql.SQL("COPY {} FROM STDIN (FORMAT csv, HEADER)").format(sql.Identifier(table))
            with (
                (Path(folder) / f"{table}.csv").open("rb") as rows,
                orchestrator.connection.cursor().copy(copy) as copying,
            ):
                while piece := rows.read(_PIECE):
                    copying.write(piece)


def _generator() -> str:
    """Return the path of the generator, which pip installs next to this Python."""
    beside = Path(sysconfig.get_path("scripts")) / GENERATOR
    result = shutil.which(beside) or shutil.which(GENERATOR)
    if result is None:
        raise UsageError(
            f"The data of TPC-H is made by {GENERATOR}, which is not there: "
            "install it with pip install 'idivm[bench]'."
        )
    return result

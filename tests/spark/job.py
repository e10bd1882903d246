"""A small job in a Spark session; says on one line of JSON what came of it.

`python job.py well|short|badly|dead`: the block ends well, is a short one, ends with a failing query, or after its
JVM died.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import sys
from pathlib import Path
from typing import Any

from orchestrator.errors import IdivmError
from orchestrator.spark.session import Life, spark_session

# A JVM for a short life, with a heap that fits beside other tests.
SHORT = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def descendants() -> list[int]:
    """The processes that this one started, and those that they started."""
    parents: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            if parent := re.search(r"^PPid:\s+(\d+)", status.read_text(), re.MULTILINE):
                parents[int(status.parent.name)] = int(parent[1])
        except OSError:
            continue  # it has ended meanwhile
    family = [os.getpid()]
    for member in family:
        family += [pid for pid, parent in parents.items() if parent == member]
    return family[1:]


def surroundings() -> list[Any]:
    """What belongs to this process and is only lent to Spark."""
    variables = {name: os.environ.get(name) for name in ("JAVA_HOME", "SPARK_HOME", *os.environ)}
    # PySpark notes two of the JVM's settings here, which no one else reads.
    for name in ("SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE"):
        variables.pop(name, None)
    return [variables, list(sys.path), signal.getsignal(signal.SIGINT)]


def main(ending: str) -> dict[str, Any]:
    before = surroundings()
    report: dict[str, Any] = {"error": None}
    watched: dict[int, int] = {}
    try:
        with spark_session("local[1]", "a job", Life(ending == "short"), **SHORT) as session:
            if ending != "dead":
                report |= work(session)
            watched = {pid: os.pidfd_open(pid) for pid in descendants()}
            if ending == "badly":
                session.sql("SELECT nothing FROM range(3)")
            if ending == "dead":
                os.kill(session.sparkContext._gateway.proc.pid, signal.SIGKILL)
                session.range(3).count()
    except IdivmError as error:
        report["error"] = str(error)
    report["left"] = [pid for pid, fd in watched.items() if not select.select([fd], [], [], 60)[0]]
    report["started"] = len(watched)
    report["unchanged"] = surroundings() == before
    return report


def work(session: Any) -> dict[str, Any]:
    from pyspark.sql.functions import udf

    named = udf(lambda number: f"{number} in {sys.executable}")
    return {
        "java": session._jvm.System.getProperty("java.home"),
        "count": session.range(1000).count(),
        "rows": [row[0] for row in session.range(2).select(named("id")).collect()],
        "sum": session.sparkContext.range(10).mapPartitions(lambda part: [sum(part)]).collect(),
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))

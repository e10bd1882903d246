"""The process that forks Spark's Python workers on this machine.

It imports once what tasks of loads need, so that a worker starts in milliseconds instead of a second.
"""

from __future__ import annotations

from pyspark.daemon import manager

import orchestrator.spark.formats.text
import orchestrator.spark.loading.copying  # noqa: F401 - for the workers
from orchestrator.spark.formats.arrow import pa

pa.array([0])  # for which PyArrow imports Pandas, if it is installed

if __name__ == "__main__":
    manager()

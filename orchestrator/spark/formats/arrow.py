"""PyArrow, which has no types of its own, behind one import."""

from __future__ import annotations

from typing import Any

from orchestrator.spark.errors import SparkError

try:
    import pyarrow  # type: ignore[import-not-found,import-untyped,unused-ignore]
    import pyarrow.compute  # type: ignore[import-not-found,import-untyped,unused-ignore]
    import pyarrow.csv  # type: ignore[import-not-found,import-untyped,unused-ignore]
except ImportError as error:
    raise SparkError(
        "PyArrow is not installed, which bulk loads need: run pip install pyarrow, on every "
        "machine that runs Spark's workers."
    ) from error

pa: Any = pyarrow
pc: Any = pyarrow.compute
arrow_csv: Any = pyarrow.csv

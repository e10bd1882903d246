"""PyArrow, which has no types of its own, behind one import."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from orchestrator.spark.errors import SparkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

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


def mapped(frame: DataFrame, function: Callable[[Any], Any], schema: StructType) -> DataFrame:
    """Do the same as DataFrame.mapInArrow, which requires Pandas without using it."""
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as f
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    kind = PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    mapping: Any = UserDefinedFunction(function, returnType=schema, evalType=kind)
    column = mapping(*(f.col(f"`{name}`") for name in frame.columns))
    plain: Any = frame
    return DataFrame(plain._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)

"""A query of Structured Streaming that carries the changes of a view to Parquet files: `python follow_steps.py DSN VIEW FOLDER`.

It prints a line for each batch that is done.
"""

from __future__ import annotations

import sys
from typing import Any

from job import SHORT
from pyspark.errors import StreamingQueryException

from orchestrator.spark.session import spark_session


def start(spark: Any, dsn: str, view: str, folder: str) -> Any:
    changes = spark.readStream.format("idivm").option("dsn", dsn).option("view", view)
    query = (
        changes.option("consumer", "lake")
        .load()
        .writeStream.format("parquet")
        .option("path", f"{folder}/rows")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .start()
    )
    return query  # noqa: RET504 (the documentation shows these lines)


def main(dsn: str, view: str, folder: str) -> None:
    with spark_session("local[1]", "follow", **SHORT) as spark:
        seen: Any = None
        while True:
            query = start(spark, dsn, view, folder)
            try:
                while not query.awaitTermination(1):
                    progress = query.lastProgress
                    if progress and progress["batchId"] != seen and progress["numInputRows"]:
                        seen = progress["batchId"]
                        print("done", seen, flush=True)
            except StreamingQueryException as error:
                # On a busy machine, Python starts more slowly than Spark waits for it.
                if "connect back" not in str(error):
                    raise


if __name__ == "__main__":
    main(*sys.argv[1:])

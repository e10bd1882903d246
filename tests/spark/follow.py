"""A query of Structured Streaming that carries the changes of a view to Parquet files: `python follow.py DSN VIEW FOLDER`.

It prints a line for each batch that is done.
"""

from __future__ import annotations

import sys
from typing import Any

from job import SHORT

from orchestrator.spark.session import spark_session


def main(dsn: str, view: str, folder: str) -> None:
    with spark_session("local[1]", "follow", **SHORT) as spark:
        changes = spark.readStream.format("idivm").option("dsn", dsn).option("view", view)
        query = (
            changes.option("consumer", "lake")
            .load()
            .writeStream.format("parquet")
            .option("path", f"{folder}/rows")
            .option("checkpointLocation", f"{folder}/checkpoint")
            .start()
        )
        seen: Any = None
        while True:
            query.awaitTermination(0.05)
            progress = query.lastProgress
            if progress is not None and progress["batchId"] != seen and progress["numInputRows"]:
                seen = progress["batchId"]
                print("done", seen, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

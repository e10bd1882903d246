"""Report Spark's failures in one sentence instead of the traces of two languages."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.spark.errors import SparkError
from orchestrator.spark.java import Java

_PREFIX = re.compile(
    r'^(\S+ ERROR [\w.$]+: )?(Exception in thread "[^"]*" )?([\w.$]+(Exception|Error): )?'
)
_WITHOUT_REASON = re.compile(r"error while reading file|ould not read footer|Job aborted")
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


@contextmanager
def unlogged() -> Iterator[None]:
    """Keep PySpark from logging errors to the terminal that it also raises."""
    from pyspark.logger import PySparkLogger

    def foreign(record: logging.LogRecord) -> bool:
        return Path(record.pathname).parent.name != "py4j"

    root = logging.getLogger()
    root.addFilter(foreign)
    loggers = [PySparkLogger.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger in loggers:
            logger.disabled = False
        root.removeFilter(foreign)


def not_started(error: Exception, log: Path, java: Java, master: str) -> SparkError:
    """Return the error for a session that did not start."""
    return SparkError(
        f"Spark does not start with master {master} on Java {java.version} ({java.program}): "
        f"{_last_words(log) or _reason(error)}"
    )


def ended(status: int, log: Path) -> SparkError:
    """Return the error for a JVM that ended before its session."""
    words = _last_words(log)
    return SparkError(
        f"Spark's Java process ended before its work was done (status {status}"
        f"{', ' if words else ''}{words}): try again, and if the machine lacks the memory for it, "
        "with a smaller spark.driver.memory or fewer cores in the master, such as local[1]."
    )


def failed(error: Exception) -> SparkError | None:
    """Return the error for an exception of Spark; None if the exception is not Spark's.

    Call it while the session lives, because Spark's exceptions ask the JVM for their text.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    is_from_spark = isinstance(error, (PySparkException, Py4JError))
    return SparkError(f"Spark failed: {_bare(_reason(error))}.") if is_from_spark else None


def reason_of(error: Exception) -> str | None:
    """Return why Spark could not do something; None if its JVM has died or the error is not Spark's."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    if not isinstance(error, (PySparkException, Py4JJavaError)):
        return None
    return _bare(_reason(error))


def _bare(text: str) -> str:
    """Return a message of Spark without its class and its final period.

    >>> _bare("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012")
    'Division by zero'
    """
    # Spark suggests all columns of the source, of which one is ours, and settings that loads do not take.
    ours = r", `idivm: \w+`|`idivm: \w+`, | If necessary set .*? to bypass this error\."
    return re.sub(rf"\s*SQLSTATE: .*$|^\[[\w.]+\] |{ours}", "", text).rstrip(". ;")


def _reason(error: Exception) -> str:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PythonException

    texts = error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else str(error)
    if missing := re.search(r"ModuleNotFoundError: No module named '([\w.]+)'", str(texts)):
        return (
            f"its workers do not have the Python package {missing[1]}: install idivm[spark] for the Python of "
            "the workers, or name a Python that has it (PYSPARK_PYTHON)"
        )
    raised = re.findall(r"^(?:\w+\.)*\w+(?:Error|Exception): (.+)$", str(texts), re.MULTILINE)
    if raised and "Traceback (most recent call last)" in str(texts):
        return str(raised[-1])
    lines = str(texts).strip().splitlines() or [type(error).__name__]
    line = lines[-1 if isinstance(error, PythonException) else 0]  # the end of a worker's trace
    if _WITHOUT_REASON.search(line) and (cause := _first_cause(error)) and cause not in line:
        aborted = line.startswith("Job aborted")
        return cause if aborted else f"{line.partition(' SQLSTATE: ')[0].rstrip('. ')}: {cause}"
    return line


def _first_cause(error: Exception) -> str:
    """Return the message of the exception in Java that caused all others."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while java is not None and (cause := java.getCause()) is not None:
        java = cause
    message = str(java.getMessage() or "") if java is not None else ""
    return message.strip().partition("\n")[0]


def _last_words(log: Path) -> str:
    """Return the end of Spark's log without warnings and traces, as a part of a sentence.

    >>> from tempfile import NamedTemporaryFile
    >>> with NamedTemporaryFile("w+") as log:
    ...     lines = ["9:30 WARN A: b", "9:30 ERROR C: d.", "a.b.SomeException: no", "\\tat e.f"]
    ...     print(*lines, sep="\\n", file=log, flush=True)
    ...     _last_words(Path(log.name))
    'd.; no'
    """
    lines = log.read_text(errors="replace").splitlines()
    words = [
        line for line in lines if not re.match(r"\s|$|(\S+ )?WARN|Caused by:|Picked up ", line)
    ]
    return "; ".join(_PREFIX.sub("", line).strip() for line in words[-2:])

"""Parts of a load's messages: the sources, and the reasons of errors."""

from __future__ import annotations

import re
from collections.abc import Iterable

from orchestrator.spark.errors import LoadError
from orchestrator.spark.loading.report import RejectedRow
from orchestrator.spark.loading.sources import Source

_WIDTH = 200


def sources_of(sources: Iterable[Source]) -> str:
    """Return the names of sources for a message."""
    paths = [path for source in sources for path in source.paths]
    return ", ".join("the DataFrame" if path == "frame:" else public(path) for path in paths)


def reasons_of(error: Exception) -> list[str]:
    """Return the reasons for which tasks refused rows or files."""
    if isinstance(error, LoadError):
        return [str(error)]
    return re.findall(r"\w+\.(?:LoadError|BadRowError): (.+)", str(error)) or re.findall(
        r"\[USER_RAISED_EXCEPTION\] (.+?)(?: SQLSTATE: \w+)?$", str(error), re.MULTILINE
    )


def public(path: str) -> str:
    """Return a path or URL without parts that may be secret."""
    return re.sub(r"//[^/@]*@|[?;].*$", lambda match: "//" if match[0][0] == "/" else "", path)


def described_row(row: RejectedRow, sources: Iterable[Source]) -> str:
    """Return where a row is and what is wrong with it; show the row if the source has no lines and rows."""
    if row.file or row.row:
        return str(row)
    content = row.content.replace("\t", ", ")
    excerpt = content if len(content) <= _WIDTH else f"{content[:_WIDTH]}..."
    column = f", column {row.column}" if row.column else ""
    return f"{sources_of(sources)}, the row ({excerpt}){column}: {row.reason}"

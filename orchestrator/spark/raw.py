"""Lines of CSV on their way to PostgreSQL, which takes them apart itself, faster than anyone.

This is for loads of whole files that stop at a bad row. Every line has to be a row: what Spark's CSV
reader would find torn is refused here as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from orchestrator.spark.arrow import pa, pc
from orchestrator.spark.errors import LoadError

LINE, FILE = "idivm_text", "idivm_start"
"""The columns of a scan of lines: the line, and for the first block of a file what tells it apart."""

_CONTINUES = "a field with a line break, or a quote that is not closed (--options multiLine=true)"


@dataclass
class RawLines:
    """Takes batches of lines; leaves out the header of each file, and checks that it is the same."""

    header: str | None
    before: int = 0

    def rows(self, batch: Any) -> Any:
        """The lines of a batch that are rows."""
        lines = batch.column(0).cast(pa.large_string())
        if self.header is None or not batch.num_rows:
            return lines
        files = batch.column(1).to_numpy(zero_copy_only=False)
        first = (files != np.concatenate([[self.before], files[:-1]])) & (files != 0)
        self.before = int(files[-1])
        if not first.any():
            return lines
        for place in np.flatnonzero(first):
            if lines[int(place)].as_py() != self.header:
                raise LoadError(
                    f"A file begins with the line {lines[int(place)].as_py()!r}, and another with "
                    f"{self.header!r}: load files with different headers apart."
                )
        return lines.filter(pa.array(~first))


def torn(lines: Any) -> tuple[int, str] | None:
    """The first line that cannot be a row by itself, and why; None if all can.

    >>> torn(pa.array(['1,"a"', '2,"b'], pa.large_string()))[0]
    1
    """
    ends = pc.equal(lines, "\\.")
    odd = pc.not_equal(pc.bit_wise_and(pc.count_substring(lines, '"'), 1), 0)
    wrong = pc.or_(ends, odd)
    if not pc.any(wrong).as_py():
        return None
    place = int(pc.index(wrong, True).as_py())
    return place, _CONTINUES if odd[place].as_py() else "the line has 1 field"

"""Store JSON in the catalog as ASCII, so that a database of any encoding can hold it.

Plans contain characters such as Δ that many encodings lack, and `jsonb` decodes JSON's own escapes. So each
character beyond ASCII is stored as `%` and the four hexadecimal digits of its UTF-16 unit, and `%` itself as
`%%`.
"""

from __future__ import annotations

import json
import re
from typing import Any

_ESCAPED = re.compile(r"\\\\|\\u([0-9a-f]{4})")
_STORED = re.compile(r"%%|%([0-9a-f]{4})")


def dump(value: Any) -> str:
    r"""Return a value as JSON for the catalog.

    >>> dump({"Δ-script": "100 % \\u0394"})
    '{"%0394-script": "100 %% \\\\u0394"}'
    """

    def stored(escape: re.Match[str]) -> str:
        # JSON's escapes of control characters are already ASCII.
        return f"%{escape[1]}" if escape[1] and int(escape[1], 16) > 127 else escape[0]

    return _ESCAPED.sub(stored, json.dumps(value).replace("%", "%%"))


def load(text: str) -> Any:
    r"""Read JSON that `dump` wrote, as PostgreSQL shows it.

    >>> load(dump({"Δ-script": "100 %%25 %0394 \\ \U0001f600"}))
    {'Δ-script': '100 %%25 %0394 \\ 😀'}
    """
    return json.loads(_STORED.sub(lambda stored: f"\\u{stored[1]}" if stored[1] else "%", text))

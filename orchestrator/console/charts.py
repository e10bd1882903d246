"""Charts of past refreshes as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from markupsafe import Markup

WIDTH, HEIGHT, LEFT, FOOT = 720, 130, 64, 18


@dataclass(frozen=True)
class Bar:
    """A value, what the pointer shows of it, and a word for its style."""

    value: float
    hint: str
    mark: str = ""


def bars(title: str, values: Sequence[Bar], unit: str) -> Markup:
    """Return a chart with a bar for each value, the oldest first."""
    most = max((bar.value for bar in values), default=0.0) or 1.0
    step = (WIDTH - LEFT) / max(1, len(values))
    depth = HEIGHT - FOOT
    lines = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img"'
        f' aria-label="{escape(title)}: at most {most:,.3g} {escape(unit)}">',
        f'<text x="{LEFT - 6}" y="12" text-anchor="end">{most:,.3g} {escape(unit)}</text>',
        f'<text x="{LEFT - 6}" y="{depth}" text-anchor="end">0</text>',
        f'<path class="axis" d="M{LEFT} 0V{depth}H{WIDTH}"/>',
        f'<text x="{LEFT}" y="{HEIGHT - 4}">older</text>',
        f'<text x="{WIDTH}" y="{HEIGHT - 4}" text-anchor="end">now</text>',
    ]
    for number, bar in enumerate(values):
        height = max(1.0, bar.value / most * (depth - 4))
        lines.append(
            f'<rect class="{escape(bar.mark or "usual")}" x="{LEFT + number * step + 1:.1f}" y="{depth - height:.1f}"'
            f' width="{max(1.0, step - 2):.1f}" height="{height:.1f}"><title>{escape(bar.hint)}</title></rect>'
        )
    return Markup("\n".join([*lines, "</svg>"]))

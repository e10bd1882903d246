"""Draw boxes, arrows, tables and bars as SVG."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.sax.saxutils import escape

INK, LINE, PAPER = "#1f2937", "#64748b", "#ffffff"
FILLS = {
    "plain": "#f1f5f9",
    "store": "#dbeafe",
    "change": "#fef3c7",
    "result": "#dcfce7",
    "old": "#fee2e2",
    "none": "none",
}
"""Colors by role: stored data, changes, results, deleted or skipped rows."""

FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
MONO = "ui-monospace, 'DejaVu Sans Mono', monospace"
LINE_HEIGHT = 17


class Drawing:
    """A drawing on a light card, which fits light and dark pages."""

    def __init__(self, width: int, height: int, title: str) -> None:
        """Start a drawing; the title is its text for screen readers."""
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" role="img" font-family="{FONT}" font-size="13" fill="{INK}">',
            f"<title>{escape(title)}</title>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            f'orient="auto"><path d="M0 0 8 4 0 8z" fill="{LINE}"/></marker></defs>',
            f'<rect width="{width}" height="{height}" rx="8" fill="{PAPER}" stroke="#e2e8f0"/>',
        ]

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        bold: bool = False,
        mono: bool = False,
        anchor: str = "middle",
        small: bool = False,
    ) -> None:
        """Write lines of text; `y` is the base line of the first line."""
        style = f' text-anchor="{anchor}"' if anchor != "start" else ""
        style += ' font-weight="600"' if bold else ""
        style += f' font-family="{MONO}"' if mono else ""
        style += ' font-size="11.5"' if small or mono else ""
        for number, line in enumerate(text.split("\n")):
            self.parts.append(
                f'<text x="{x:g}" y="{y + number * LINE_HEIGHT:g}"{style}>{escape(line)}</text>'
            )

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        text: str = "",
        *,
        fill: str = "plain",
        mono: bool = False,
        title: str = "",
    ) -> None:
        """Draw a box with centered text, or with a title at its top."""
        dashes = ' stroke-dasharray="4 3"' if fill == "none" else ""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" '
            f'fill="{FILLS[fill]}" stroke="{LINE}"{dashes}/>'
        )
        if title:
            self.text(x + width / 2, y + 18, title, bold=True)
        if text:
            lines = text.count("\n")
            top = y + (26 if title else 0)
            middle = top + (height - (top - y)) / 2 - lines * LINE_HEIGHT / 2 + 4.5
            self.text(x + width / 2, middle, text, mono=mono)

    def arrow(self, *points: tuple[float, float], label: str = "", dashed: bool = False) -> None:
        """Draw an arrow through points; the label stands above its first part."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        dashes = ' stroke-dasharray="4 3"' if dashed else ""
        self.parts.append(
            f'<polyline points="{path}" fill="none" stroke="{LINE}" stroke-width="1.4"{dashes} '
            'marker-end="url(#tip)"/>'
        )
        if label:
            (x1, y1), (x2, y2) = points[:2]
            if abs(x2 - x1) >= abs(y2 - y1):
                self.text((x1 + x2) / 2, min(y1, y2) + abs(y2 - y1) / 2 - 6, label, small=True)
            else:
                self.text(x1 + 7, (y1 + y2) / 2 + 4, label, small=True, anchor="start")

    def line(self, x1: float, y1: float, x2: float, y2: float, *, dashed: bool = False) -> None:
        """Draw a line."""
        dashes = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(
            f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{LINE}"{dashes}/>'
        )

    def bar(self, x: float, base: float, width: float, height: float, fill: str) -> None:
        """Draw a bar that stands on a base line."""
        self.parts.append(
            f'<rect x="{x:g}" y="{base - height:g}" width="{width:g}" height="{height:g}" '
            f'fill="{FILLS[fill]}" stroke="{LINE}"/>'
        )

    def table(
        self,
        x: float,
        y: float,
        title: str,
        columns: Sequence[str],
        rows: Iterable[Sequence[str]],
        *,
        widths: Sequence[float],
        marked: Sequence[int] = (),
        fill: str = "change",
    ) -> float:
        """Draw a table with marked rows, and return the y below it."""
        total, height = sum(widths), 21
        self.text(x, y - 6, title, bold=True, anchor="start")
        for number, row in enumerate([columns, *rows]):
            top = y + number * height
            color = "store" if number == 0 else fill if number - 1 in marked else "plain"
            self.parts.append(
                f'<rect x="{x:g}" y="{top:g}" width="{total:g}" height="{height}" '
                f'fill="{FILLS[color]}" stroke="#cbd5e1"/>'
            )
            left = x
            for cell, width in zip(row, widths, strict=True):
                self.text(left + 6, top + 15, cell, mono=True, anchor="start")
                left += width
        return y + height * (len(list(rows)) + 1)

    def __str__(self) -> str:
        """Return the SVG document."""
        return "\n".join([*self.parts, "</svg>"]) + "\n"

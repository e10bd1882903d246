"""The drawings of the documentation."""

from __future__ import annotations

from orchestrator.documentation.svg import Drawing


def overview() -> Drawing:
    """Draw the path of a change from a table to a view."""
    d = Drawing(760, 250, "A change goes from a table through a change log to a view")
    d.box(20, 20, 720, 50, fill="none")
    d.text(35, 50, "Python, once for each view:", bold=True, anchor="start")
    d.box(245, 28, 180, 34, "CREATE VIEW totals AS ...", mono=True)
    d.box(520, 28, 200, 34, "plan and program of the view", fill="change")
    d.arrow((425, 45), (520, 45), label="compile")
    d.box(20, 95, 720, 135, fill="none")
    d.text(35, 116, "PostgreSQL, for each change:", bold=True, anchor="start")
    d.box(40, 135, 130, 62, "your tables\nINSERT UPDATE ...", fill="store")
    d.box(260, 135, 120, 62, "change log", fill="change")
    d.box(460, 135, 110, 62, "program of\nthe view", fill="change")
    d.box(655, 135, 70, 62, "totals", fill="result")
    d.arrow((170, 166), (260, 166), label="triggers")
    d.arrow((380, 166), (460, 166), label="refresh")
    d.arrow((570, 166), (655, 166), label="few rows")
    d.arrow((540, 62), (540, 135), label="install")
    d.text(
        400,
        219,
        "a refresh reads the logged changes, looks up what they affect, and writes only the rows that differ",
        small=True,
    )
    return d


def architecture() -> Drawing:
    """Draw the compiler and what runs in the database."""
    d = Drawing(780, 330, "The compiler in Python, and the programs in PostgreSQL")
    d.box(20, 20, 740, 110, fill="none")
    d.text(35, 42, "Compiler in Python: immutable values", bold=True, anchor="start")
    names = [
        ("frontend", "statement, analysis\nby PostgreSQL"),
        ("planning", "types, statistics,\nIDs"),
        ("strategies", "id, tuple, recursive,\nviewtree, skew, ..."),
        ("deltascript", "maintenance plan\nas SQL"),
    ]
    for number, (name, text) in enumerate(names):
        x = 35 + number * 183
        d.box(x, 52, 162, 68, text, title=name)
        if number:
            d.arrow((x - 21, 86), (x, 86))
    d.box(300, 160, 180, 40, "runtime", fill="plain")
    d.arrow((665, 120), (665, 180), (480, 180), label="statements")
    d.box(20, 225, 740, 90, fill="none")
    d.text(35, 246, "PostgreSQL", bold=True, anchor="start")
    d.arrow((390, 200), (390, 225), label="install, refresh, check, repair")
    parts = [
        ("user tables", "store"),
        ("idivm_log\nchange logs", "change"),
        ("idivm_state\nprograms, states", "change"),
        ("the view that\nusers read", "result"),
    ]
    for number, (text, fill) in enumerate(parts):
        x = 35 + number * 193
        d.box(x, 256, 132, 46, text, fill=fill)
        if number:
            label = ["triggers", "refresh", ""][number - 1]
            d.arrow((x - 61, 279), (x, 279), label=label)
    return d


def id_diffs() -> Drawing:
    """Draw how an ID-based diff skips the join that a diff of whole rows needs."""
    d = Drawing(760, 330, "A diff that names the ID skips the join")
    bottom = d.table(
        30,
        50,
        "products",
        ["id", "price"],
        [["1", "10"], ["2", "20 → 25"]],
        widths=[40, 80],
        marked=[1],
    )
    assert bottom < 130
    d.table(
        30,
        160,
        "lines",
        ["order", "product", "qty"],
        [["7", "2", "3"], ["8", "1", "1"], ["9", "2", "1"]],
        widths=[55, 65, 40],
    )
    d.table(
        535,
        85,
        "view: lines ⋈ products",
        ["order", "product", "price"],
        [["7", "2", "25"], ["8", "1", "10"], ["9", "2", "25"]],
        widths=[55, 65, 70],
        marked=[0, 2],
        fill="result",
    )
    d.box(240, 50, 205, 52, "Δᵘ  product = 2\nprice := 25", fill="change", mono=True)
    d.arrow((150, 103), (195, 76), (240, 76))
    d.arrow((445, 76), (490, 76), (490, 130), (535, 130))
    d.text(342, 40, "ID-based diff: 1 row", bold=True)
    d.text(342, 118, "update the view's rows with product = 2", small=True)
    d.box(
        240,
        170,
        205,
        86,
        "− (7, 2, 20)   + (7, 2, 25)\n− (9, 2, 20)   + (9, 2, 25)",
        fill="old",
        mono=True,
        title="",
    )
    d.text(342, 160, "diff of whole rows: 4 rows", bold=True)
    d.arrow((190, 213), (240, 213), label="join")
    d.arrow((445, 213), (490, 213), (490, 155), (535, 155), dashed=True)
    d.text(
        30,
        300,
        "Both update the view correctly. The ID-based diff does not read the table lines: the ID of the view's rows\n"
        "contains the key of products, so the key finds them. The saving grows with the number of joined tables.",
        anchor="start",
    )
    return d


def view_tree() -> Drawing:
    """Draw a view tree of a sum over a join."""
    d = Drawing(760, 320, "A tree of views computes a sum over a join")
    d.text(
        30,
        36,
        "SELECT sum(price * qty) FROM lines JOIN orders USING (o) JOIN products USING (p)",
        mono=True,
        anchor="start",
    )
    d.box(250, 66, 220, 46, "V()  =  Σ V(o) × orders(o)\nthe answer", fill="result")
    d.box(120, 160, 230, 46, "V(o)  =  Σ qty × V(p)\none number for each order", fill="store")
    d.box(440, 160, 180, 46, "orders(o)\ncounts rows")
    d.box(40, 254, 150, 46, "lines(o, p)\nsums qty")
    d.box(280, 254, 150, 46, "products(p)\nsums price", fill="change")
    d.arrow((115, 254), (190, 206))
    d.arrow((355, 254), (280, 206), label="")
    d.arrow((235, 160), (320, 112))
    d.arrow((530, 160), (400, 112))
    d.text(445, 281, "a changed price", anchor="start", bold=True)
    d.text(490, 84, "A change moves from its table to the root.", anchor="start", small=True)
    d.text(490, 101, "Each step adds products to stored sums.", anchor="start", small=True)
    return d


def heavy_light() -> Drawing:
    """Draw values by their number of rows, and the threshold between light and heavy."""
    d = Drawing(760, 300, "Values with many rows are heavy, values with few rows are light")
    counts = [118, 96, 74, 30, 25, 21, 18, 14, 12, 10, 9, 7, 6, 5, 4, 4, 3, 3, 2, 2]
    base, left = 225, 70
    for number, count in enumerate(counts):
        d.bar(left + number * 21, base, 15, count * 1.35, "old" if count > 50 else "store")
    d.line(left - 15, base, left + 21 * len(counts) + 5, base)
    threshold = base - 50 * 1.35
    d.line(left - 15, threshold, left + 21 * len(counts) + 5, threshold, dashed=True)
    d.text(left + 21 * len(counts) - 2, threshold - 7, "threshold N^ε", anchor="end", bold=True)
    d.text(left + 210, base + 24, "values of a join column, by number of rows", small=True)
    d.text(left + 28, base + 48, "heavy: few values", bold=True)
    d.text(left + 240, base + 48, "light: few rows for each value", bold=True)
    d.box(520, 50, 220, 74, "look up each heavy value:\nthere are at most N^(1−ε)", fill="old")
    d.box(520, 145, 220, 74, "go through the rows of a value:\nthere are at most N^ε", fill="store")
    d.text(630, 250, "With ε = ½, both cost √N.", bold=True)
    return d


def factorized() -> Drawing:
    """Draw a result as rows and as a factorized tree."""
    d = Drawing(760, 300, "A result as a list of rows, and factorized")
    rows = [["a", f"{x}", y] for x in (1, 2, 3) for y in ("p", "q", "r")]
    d.table(
        30,
        50,
        "listing: 9 rows, 27 values",
        ["shop", "item", "person"],
        rows,
        widths=[60, 60, 70],
    )
    d.text(420, 44, "factorized: 7 values", bold=True)
    d.box(370, 60, 100, 34, "shop a", fill="store")
    d.box(300, 130, 110, 84, "1\n2\n3", fill="store", title="items")
    d.box(440, 130, 110, 84, "p\nq\nr", fill="store", title="persons")
    d.arrow((400, 94), (360, 130))
    d.arrow((440, 94), (490, 130))
    d.text(425, 172, "×", bold=True)
    d.text(
        300,
        242,
        "Items and persons of a shop are independent. The factorized\n"
        "form stores both lists once; reading joins them again.\n"
        "A new item is one stored value instead of three rows.",
        anchor="start",
    )
    d.text(600, 100, "n × m rows", anchor="start", small=True)
    d.text(600, 118, "need n + m values", anchor="start", small=True)
    return d


def watermarks() -> Drawing:
    """Draw the change log with the transactions that a watermark contains."""
    d = Drawing(760, 280, "A watermark is a snapshot, not a position in the log")
    d.text(30, 32, "change log, in the order of writing", bold=True, anchor="start")
    entries = [
        ("T1", "result"),
        ("T2", "change"),
        ("T1", "result"),
        ("T3", "result"),
        ("T2", "change"),
        ("T4", "change"),
    ]
    for number, (name, fill) in enumerate(entries):
        d.box(30 + number * 78, 45, 70, 36, name, fill=fill)
    d.text(515, 60, "T1, T3 committed before the refresh", anchor="start", small=True)
    d.text(515, 78, "T2 was still open, T4 had not begun", anchor="start", small=True)
    d.arrow((30, 125), (720, 125), label="")
    d.text(715, 145, "time", anchor="end", small=True)
    marks = [
        (90, "T1 commits"),
        (215, "T3 commits"),
        (330, "refresh 1"),
        (450, "T2 commits"),
        (550, "T4 commits"),
        (650, "refresh 2"),
    ]
    for x, label in marks:
        d.line(x, 118, x, 132)
        d.text(x, 110, label, small=True, bold=label.startswith("refresh"))
    d.box(250, 160, 165, 50, "applies T1, T3\nstores its snapshot", fill="result")
    d.box(570, 160, 160, 50, "applies T2, T4\nand nothing twice", fill="change")
    d.arrow((330, 132), (330, 160))
    d.arrow((650, 132), (650, 160))
    d.text(
        30,
        240,
        "T2 wrote its rows before T3, and committed later. A position in the log would lose T2. The stored snapshot\n"
        "says for each transaction whether a refresh has seen it, so late commits are applied by the next refresh.",
        anchor="start",
    )
    return d


def all_drawings() -> dict[str, str]:
    """Return each drawing under its file name."""
    drawings = (overview, architecture, id_diffs, view_tree, heavy_light, factorized, watermarks)
    return {f"{draw.__name__.replace('_', '-')}.svg": str(draw()) for draw in drawings}

"""Random loads: rows with ordinary, extreme and wrong values, a format, and options."""

from __future__ import annotations

from random import Random

from psycopg.sql import Composable

from orchestrator.fuzz.case import Load, LoadColumn
from orchestrator.fuzz.schemas.schema import Column, Model, Row, any_value
from orchestrator.fuzz.schemas.values import fresh_value
from orchestrator.fuzz.steps.rows import Writer

FORMS = ("csv", "csv", "csv", "json", "json", "parquet", "orc", "jdbc")
TYPED = ("parquet", "orc")

EXTREMES: dict[str, tuple[str, ...]] = {
    "text": (
        *('"', '""', ",", ";", "\t", " a", "a ", "\\N", "\\.", "null", "\ufeff", "\u2028", "x\\"),
        *("\U0001f600", "a\nb", "a\r\nb", '"\n', "{}", "[1]", "5", "true"),
    ),
    "num": ("98765432109876543210.12345", "-0.00001", "0.0000000001", "-0.0"),
    "date": ("0001-01-01", "1582-10-10", "9999-12-31", "4713-01-01 BC"),
    "timestamp": ("2024-02-29 12:00:00.000001", "0044-03-15 00:00:00 BC", "9999-12-31 23:59:59"),
    "timestamptz": ("2024-02-29 12:00:00.000001+05:45", "0044-03-15 00:00:00+00 BC"),
    "float": ("-0", "5e-324", "-Infinity", "1e-7", "123456789.123456789"),
    "bytea": ("\\x0a0d5c22", "\\x5c"),
    "json": ('{"b" :  1.0, "a": "x", "b": 2}', '"5"', "1.50", '"\\u00e9"', "[]"),
    "jsonb": ('{"b": 1.50, "a": {"c": null}}', '"null"', '"\\ud83d\\ude00"', "1e10"),
    "text[]": ('{"",NULL,"NULL"}', '{"\\"q\\"","\\\\"}', '{" ","a\nb"}'),
    "int[]": ("{2147483647,-2147483648}",),
    "interval": ("-1 year 3 days -04:05:06.789", "1 day -00:00:00.000001"),
}
WRONG: dict[str, tuple[str, ...]] = {
    "int": ("x", "1.5", "99999999999999999999", ""),
    "text": ("a\0b", "x" * 101),
    "num": ("1,5", "1e99999", "9999999999999999999999999999999999999999.5"),
    "date": ("2024-02-30", "yesterday?"),
    "timestamp": ("2024-02-30 00:00", "noon"),
    "timestamptz": ("2024-01-01 25:00+00",),
    "bool": ("maybe", ""),
    "uuid": ("a0",),
    "json": ("{", "01", "'x'", ""),
    "jsonb": ("[1,]", '"\\u0000"'),
    "float": ("1d", "1e309"),
    "bytea": ("\\x0",),
    "int[]": ("{1", "{1,x}", "5"),
    "text[]": ("{a", "a"),
    "interval": ("1 fortnight?",),
    "enum": ("none", ""),
}


def load_rows(w: Writer) -> Load:
    """Return a load into a random table."""
    rng = w.rng
    model = rng.choice(w.models)
    form = rng.choice(FORMS)
    columns = [c for c in model.columns if c.computed is None]
    columns = [
        c for c in columns if c in model.key or c.identity or not c.nullable or rng.random() < 0.9
    ]
    mode = "append"
    keyed = model.key_kind in ("primary", "unique", "index") and not model.inherited
    if rng.random() < 0.35:
        mode = rng.choice(("upsert", "replace") if keyed else ("replace",))
    rows = _rows(w, model, columns, form)
    return Load(
        table=_text(model.name),
        columns=tuple(LoadColumn(c.name, _text(c.type.sql), c.type.family) for c in columns),
        rows=tuple(tuple(row[c.name] for c in columns) for row in rows),
        form=form,
        mode=mode,
        key=tuple(c.name for c in model.key) if mode != "append" and keyed else (),
        quarantine=mode == "append" and model.key_kind != "deferrable" and rng.random() < 0.4,
        views=rng.choice(("auto", "auto", "refresh", "rebuild", "leave")),
        packed=form in ("csv", "json") and rng.random() < 0.3,
        multiline=form in ("csv", "json") and _spans_lines(rows, form, rng),
        files=rng.choice((1, 1, 2, 3)),
        present=rng.choice(columns).name if rng.random() < 0.2 else None,
        select=rng.random() < 0.2,
        style=rng.randint(0, 10**6),
    )


def _rows(w: Writer, model: Model, columns: list[Column], form: str) -> list[Row]:
    """Return rows whose keys mostly are new and whose references mostly exist."""
    rng = w.rng
    bold = rng.choice((0.0, 0.1, 0.4))
    wrong = rng.choice((0.0, 0.0, 0.05)) if form in ("csv", "json") else 0.0
    same = rng.choice((0.0, 0.0, 0.1))
    rows: list[Row] = []
    # A source of JSON without documents has no columns.
    fewest = 1 if form == "json" else 0
    for number in range(max(fewest, rng.choice((0, 1, 2, 3, 5, 8, 12, 30)))):
        row = w.row(model, 0.0)
        for column in columns:
            if column in model.key and rng.random() >= same:
                row[column.name] = fresh_value(
                    column.type.family, 100 + 40 * number + rng.randrange(40)
                )
            elif column not in model.key and rng.random() < bold:
                row[column.name] = _extreme(rng, column, form)
        for reference in model.references:
            itself = reference.table.name == model.name
            targets = model.rows if itself else reference.table.rows
            target = rng.choice(targets) if targets and rng.random() < 0.95 else None
            for mine, theirs in zip(reference.columns, reference.table.key, strict=True):
                if target is not None or mine.nullable:
                    row[mine.name] = None if target is None else target[theirs.name]
        for column in columns:
            if rng.random() < wrong:
                row[column.name] = rng.choice((None, *WRONG[column.type.family]))
            row[column.name] = _held(rng, column, form, row[column.name])
        rows.append(row)
    return rows


def _extreme(rng: Random, column: Column, form: str) -> str | None:
    sized = _text(column.type.sql)
    values = EXTREMES.get(column.type.family, ())
    if sized == "numeric(10,2)":
        values = ("99999999.99", "-0.005", "12.345")
    if column.type.family in ("date", "timestamp", "timestamptz") and form not in TYPED:
        values = (*values, "infinity", "-infinity")
    if sized == "numeric" and form not in TYPED:
        values = (*values, "Infinity", f"0.{'0' * 30}1", "1" * 50)
    if column.type.family == "int[]" and form not in TYPED:
        values = (*values, "{{1,2},{3,4}}")
    if column.type.family == "text" and "(" in sized:
        values = tuple(value for value in values if len(value) <= 5)
    return rng.choice(values) if values else any_value(rng, column)


def _held(rng: Random, column: Column, form: str, value: str | None) -> str | None:
    """Return a value that the format can hold, instead of one that it cannot hold."""
    if form in TYPED and column.type.family == "num" and value == "NaN":
        return rng.choice(("0", "1.50"))
    if form == "json" and column.type.family in ("json", "jsonb") and value == "null":
        # In a document, null means NULL.
        return '{"null":null}'
    return value


def _spans_lines(rows: list[Row], form: str, rng: Random) -> bool:
    broken = any("\n" in value for row in rows for value in row.values() if value)
    return (broken and form == "csv") or rng.random() < 0.2


def _text(part: Composable) -> str:
    return part.as_string(None)

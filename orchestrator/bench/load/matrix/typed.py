"""Files with types, DataFrames and the data source, compared with the values that PyArrow wrote."""

# ruff: noqa: S608 - all names are our own

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pyarrow.orc as arrow_orc  # type: ignore[import-not-found,import-untyped,unused-ignore]
import pyarrow.parquet as arrow_parquet  # type: ignore[import-not-found,import-untyped,unused-ignore]

from orchestrator.bench.load.matrix.comparing import Matrix
from orchestrator.bench.load.matrix.values import Kind, in_orc, kinds, of_parquet
from orchestrator.spark.formats.arrow import pa

ALONE = ("ns", "nz", "coded", "f48")
"""Columns that are not in arrays and documents as well."""
ALWAYS = 3
"""The first types, which documents and maps need."""


def column(kind: Kind, length: int) -> Any:
    """Return the values of a type, and NULL until the column has a length."""
    values = kind.values + [None] * (length - len(kind.values))
    if pa.types.is_date(kind.arrow):
        return pa.array(values, pa.int32()).cast(kind.arrow)
    if pa.types.is_timestamp(kind.arrow):
        return pa.array(values, pa.int64()).cast(kind.arrow)
    return pa.array(values, kind.arrow)


def table(chosen: Sequence[Kind]) -> Any:
    """Return a table with a column for each type, an array of each, and documents with all of them."""
    length = max(len(kind.values) for kind in chosen)
    scalars = {kind.name: column(kind, length) for kind in chosen}
    plain = {name: values for name, values in scalars.items() if name not in ALONE}
    columns = {"id": pa.array(range(length), pa.int32()), **scalars}
    # The first row has all values as an array, the others an empty one.
    offsets = pa.array([0, length, *[length] * (length - 1)], pa.int32())
    for name, values in plain.items():
        columns[f"a_{name}"] = pa.ListArray.from_arrays(offsets, values)
    document = pa.StructArray.from_arrays(list(plain.values()), names=list(plain))
    columns["doc"] = document
    singles = pa.array(range(length + 1), pa.int32())
    columns["docs"] = pa.ListArray.from_arrays(singles, document)
    keys = pa.array([f'{number}"\\' for number in range(length)])
    columns["by_text"] = pa.MapArray.from_arrays(singles, keys, scalars["s"])
    days = scalars["d"].fill_null(pa.scalar(0, pa.int32()).cast(pa.date32()))
    columns["by_day"] = pa.MapArray.from_arrays(singles, days, scalars["z"])
    return pa.table(columns)


def create(matrix: Matrix, name: str, chosen: Sequence[Kind]) -> None:
    """Create the table that a source is loaded into."""
    plain = [kind for kind in chosen if kind.name not in ALONE]
    columns = [
        "id int",
        *(f"{kind.name} {kind.type}" for kind in chosen),
        *(f"a_{kind.name} {kind.type.replace('(3)', '')}[]" for kind in plain),
        *("doc jsonb", "docs jsonb[]", "by_text jsonb", "by_day json"),
    ]
    matrix.execute(f"DROP TABLE IF EXISTS {name}; CREATE TABLE {name} ({', '.join(columns)})")


def compare(matrix: Matrix, path: str, name: str, chosen: Sequence[Kind]) -> None:
    """Compare a loaded table with the generated values."""
    matrix.execute("SET TimeZone = 'UTC'; SET extra_float_digits = 1")
    columns = ", ".join(kind.sql.format(kind.name) for kind in chosen)
    actual = matrix.execute(f"SELECT {columns} FROM {name} ORDER BY id")
    for kind, values in zip(chosen, zip(*actual, strict=True), strict=True):
        expected = [*map(kind.as_text, kind.values), *[None] * (len(actual) - len(kind.values))]
        for value, right in zip(values, expected, strict=True):
            if value != right:
                matrix.differs(path, f"column {kind.name}", value, right)
    plain = [kind for kind in chosen if kind.name not in ALONE]
    fields = ", ".join(kind.name for kind in plain)
    documents = f"SELECT t.id, to_jsonb(r) AS it, t.d, t.z, t.s FROM {name} t, LATERAL (SELECT {fields}) AS r"
    counts = matrix.execute(f"""
        SELECT count(*) FILTER (WHERE doc IS DISTINCT FROM it),
            count(*) FILTER (WHERE docs IS DISTINCT FROM ARRAY[it]),
            count(*) FILTER (WHERE by_text IS DISTINCT FROM jsonb_build_object(id || '"\\', q.s)),
            count(*) FILTER (WHERE by_day::jsonb IS DISTINCT FROM
                jsonb_build_object(to_jsonb(coalesce(q.d, '1970-01-01')) #>> '{{}}', q.z))
        FROM ({documents}) AS q JOIN {name} USING (id)""")
    if counts != [(0, 0, 0, 0)]:
        matrix.differs(path, "documents and maps", counts, 0)
    for kind in plain:
        lists = matrix.execute(f"""SELECT (SELECT a_{kind.name}::text FROM {name} WHERE id = 0)
            = (SELECT array_agg({kind.name} ORDER BY id)::text FROM {name}),
            (SELECT bool_and(a_{kind.name} = '{{}}') FROM {name} WHERE id > 0)""")
        if lists != [(True, True)]:
            matrix.differs(path, f"array of {kind.name}", lists, True)


def variants(matrix: Matrix, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the options of each variant of a load of a source with types."""
    spark, theirs = matrix.spark, matrix.their_session()
    return {
        "plain": {"spark": spark},
        "where": {"spark": spark, "where": "id >= 0", "partitions": 3},
        "select": {"spark": spark, "select": ", ".join(reversed(names)), "where": "id > -1"},
        "quarantine": {"spark": spark, "on_bad_row": "quarantine"},
        "own session": {"spark": theirs},
        "own session, select, quarantine": {
            "spark": theirs,
            "on_bad_row": "quarantine",
            "select": "*",
        },
    }


def load_by_all(
    matrix: Matrix,
    source: Any,
    make: Callable[[str], None],
    names: Sequence[str],
    label: str,
    values: dict[str, list[Any]],
    **options: Any,
) -> None:
    """Load a source by each variant; each must give what the plain variant gives, which the caller compares."""
    number = sum(map(len, values.values()))
    items = list(variants(matrix, names).items())
    for variant, how in matrix.taken(items, keep=1):
        target = "plain" if variant == "plain" else "other"
        make(target)
        path = f"{label}, {variant}"
        report = matrix.orc.load(source, target, again=True, **options, **how)
        matrix.went(path, values, number)
        if report.rejected:
            matrix.differs(path, "rejected rows", report.rejected, 0)
        if target == "other":
            matrix.same(path, "plain", "other")


def run_files(matrix: Matrix, form: str) -> None:
    """Load a file of Parquet or ORC by each way."""
    chance = Random(matrix.seed)
    if form == "parquet":
        chosen = matrix.taken([*kinds(chance), *of_parquet(chance)], keep=ALWAYS)
    else:
        chosen = in_orc(matrix.taken(kinds(chance), keep=ALWAYS))
    written = table(chosen)
    path = matrix.folder / f"matrix.{form}"
    if form == "parquet":
        arrow_parquet.write_table(written, path, row_group_size=50)
    else:
        arrow_orc.write_table(written, path)
    values = values_of(chosen)
    load_by_all(
        *(
            matrix,
            path,
            lambda name: create(matrix, name, chosen),
            written.column_names,
            form,
            values,
        )
    )
    compare(matrix, form, "plain", chosen)


def values_of(chosen: Sequence[Kind]) -> dict[str, list[Any]]:
    """Return the values of each type of a column; an array holds all values of a column."""
    values: dict[str, list[Any]] = {}
    for kind in chosen:
        values.setdefault(kind.type, []).extend(kind.values)
        if kind.name not in ALONE:
            values.setdefault(f"{kind.type}[]", []).append(kind.values)
    return values


def run_frames(matrix: Matrix) -> None:
    """Load what Spark holds itself: DataFrames, rows of the data source, and ORC that Spark writes."""
    chance = Random(matrix.seed)
    chosen = matrix.taken(kinds(chance), keep=ALWAYS)
    path = matrix.folder / "frame.parquet"
    arrow_parquet.write_table(table(chosen), path)
    frame = matrix.spark.read.parquet(str(path))
    values = values_of(chosen)
    number = sum(map(len, values.values()))
    create(matrix, "plain", chosen)
    matrix.orc.load(frame, "plain")
    compare(matrix, "DataFrame", "plain", chosen)
    matrix.went("DataFrame", values, number)
    create(matrix, "other", chosen)
    writer = frame.write.format("idivm").mode("append")
    writer.options(dsn=matrix.orc.connection.info.dsn, table="other").save()
    matrix.same("data source", "plain", "other")
    matrix.went("data source", values, number)
    # Spark's own writer moves days that only the Julian calendar has.
    kept = frame.where("coalesce(year(d), 0) <> 1582").selectExpr("id", "s", "d")
    kept.write.mode("overwrite").orc(str(matrix.folder / "spark.orc"))
    matrix.execute(
        "DROP TABLE IF EXISTS other; CREATE TABLE other AS SELECT id, s, d FROM plain LIMIT 0"
    )
    matrix.orc.load(matrix.folder / "spark.orc", "other", spark=matrix.spark)
    matrix.execute(
        "CREATE OR REPLACE VIEW kept AS SELECT id, s, d FROM plain WHERE coalesce(extract(year FROM d), 0) <> 1582"
    )
    matrix.same("ORC of Spark", "kept", "other")
    matrix.execute("DROP VIEW kept")
    matrix.went(
        "ORC of Spark", {kind.type: kind.values for kind in chosen[:2]}, 2 * len(chosen[0].values)
    )

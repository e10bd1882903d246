"""Simplifies comparisons with a diff that holds no NULL, so that PostgreSQL can hash them.

If columns may be NULL, a diff names rows by `stored = diff OR stored IS NULL AND diff IS NULL`. An
index can find such rows, but a hash join cannot: without an index, PostgreSQL scans the table for
each row of the diff. Most diffs hold no NULL, and then `stored = diff` is equivalent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from psycopg.sql import SQL, Composable, Literal
from sqlglot import exp

from orchestrator.algebra.dialect import Tree
from orchestrator.algebra.scalar import unwrapped
from orchestrator.deltascript import sizes
from orchestrator.deltascript.costing import size
from orchestrator.deltascript.leaves import PROGRAM
from orchestrator.deltascript.names import Names
from orchestrator.deltascript.plan import Apply, Nulls, Query
from orchestrator.deltascript.query import query_code
from orchestrator.deltascript.writer import Lines, around, dotted, listed


def without_nulls(query: Query) -> tuple[Query, frozenset[tuple[str, str]]] | None:
    """Return a query with plain equalities, and the variables and fields that must hold no NULL for
    it.

    Return None if the query has no such comparison with a diff.

    >>> from orchestrator.algebra import dialect
    >>> from orchestrator.algebra.examples import PARTS, PID
    >>> from orchestrator.deltascript.leaves import DiffScan
    >>> from orchestrator.algebra.columns import Column
    >>> from orchestrator.algebra.operators.join import Join
    >>> from orchestrator.algebra.rendering import Renderer
    >>> from orchestrator.algebra.scalar import Scalar
    >>> old = Column("old")
    >>> diff = DiffScan("gone", "d", ((old, "pid"),))
    >>> same = Scalar.read("(pid = old) OR ((pid IS NULL) AND (old IS NULL))", [PID, old])
    >>> plan = Join(diff, PARTS, same)
    >>> query, fields = without_nulls(Query(Renderer(plan).query(plan, {}, (PID,))))
    >>> dialect.write(query.tree.args["joins"][0].args["on"]), sorted(fields)
    ('parts.pid = d.pid', [('gone', 'pid')])
    >>> without_nulls(query) is None
    True
    """
    tree = query.tree
    diffs = {
        table.alias: table.this.expressions[0].name
        for table in tree.find_all(exp.Table)
        if is_diff(table)
    }
    fields: set[tuple[str, str]] = set()

    def plain(node: Tree) -> Tree:
        bare = unwrapped(node) if isinstance(node, exp.Paren) else node
        if isinstance(bare, exp.Or) and (compared := _compared(bare)) is not None:
            equal, sides = compared
            read = [(diffs[side.table], side.name) for side in sides if side.table in diffs]
            if read:
                # One side without NULLs is enough.
                fields.add(read[0])
                return equal
        return node

    tree = tree.transform(plain, copy=False)
    return (Query(tree), frozenset(fields)) if fields else None


def with_records(query: Query) -> Query:
    """Return a query that looks rows up in diffs by records, in which NULLs are equal.

    PostgreSQL can merge by records, but not by `a = b OR a IS NULL AND b IS NULL`.
    """
    tree = query.tree

    def record(node: Tree) -> Tree:
        bare = unwrapped(node) if isinstance(node, exp.Paren) else node
        if isinstance(bare, exp.Or) and (compared := _compared(bare)) is not None:
            left, right = map(_record, compared[1])
            return exp.EQ(this=left, expression=right)
        return node

    for exists in lookups(tree):
        where = exists.args.get("where")
        if where is not None:
            where.set("this", where.this.transform(record, copy=False))
    return Query(tree)


def _record(column: exp.Column) -> exp.Cast:
    row = exp.Anonymous(this="ROW", expressions=[column.copy()])
    return exp.Cast(this=row, to=exp.DataType(this=exp.DType.USERDEFINED, kind="record"))


def lookups(tree: Tree) -> Iterator[exp.Select]:
    """Yield the queries of EXISTS that read a single diff."""
    for exists in tree.find_all(exp.Exists):
        query = exists.this
        if (
            isinstance(query, exp.Select)
            and query.args.get("from_")
            and not query.args.get("joins")
        ):
            table = query.args["from_"].this
            if isinstance(table, exp.Table) and is_diff(table):
                yield query


def is_diff(table: exp.Table) -> bool:
    """Return whether an item of FROM is a variable of the program."""
    rows = table.this
    return (
        isinstance(rows, exp.Anonymous)
        and len(rows.expressions) == 1
        and isinstance(rows.expressions[0], exp.Column)
        and rows.expressions[0].table == PROGRAM
    )


def _compared(either: exp.Or) -> tuple[exp.EQ, tuple[exp.Column, exp.Column]] | None:
    """Return the equality in `a = b OR a IS NULL AND b IS NULL`, and its two columns."""
    equal, both = unwrapped(either.this), unwrapped(either.expression)
    if not (isinstance(equal, exp.EQ) and isinstance(both, exp.And)):
        return None
    left, right = unwrapped(equal.this), unwrapped(equal.expression)
    tests = unwrapped(both.this), unwrapped(both.expression)
    if not (isinstance(left, exp.Column) and isinstance(right, exp.Column)):
        return None
    if not all(
        isinstance(test, exp.Is) and isinstance(test.expression, exp.Null) for test in tests
    ):
        return None
    if {unwrapped(test.this) for test in tests} != {left, right}:
        return None
    return equal, (left, right)


def nullable_keys(step: Apply) -> list[str]:
    """Return the columns of a diff that name rows and may be NULL in some rows."""
    return [column for _, column, nulls in step.keys if nulls == "some"]


def with_nulls_in(step: Apply, columns: Iterable[str]) -> Apply:
    """Return a step for the rows of its diff that are NULL in some columns and in no others."""
    null = frozenset(columns)

    def known(column: str, nulls: Nulls) -> Nulls:
        if nulls != "some":
            return nulls
        return "all" if column in null else "none"

    return replace(step, keys=tuple((k, d, known(d, nulls)) for k, d, nulls in step.keys))


def where_without_nulls(step: Apply, called: Names) -> Lines:
    """Return the head of IF for a diff that holds no NULL in its keys, and is large if that matters.

    See `is_found_by_index`.
    """
    nullable = nullable_keys(step)
    null = listed((SQL("{} IS NULL").format(dotted("d", column)) for column in nullable), " OR ")
    large = SQL("{} > {} AND ").format(size(step.needs), Literal(sizes.FEW))
    head = SQL("{}NOT EXISTS").format(large if is_found_by_index(step) else SQL(""))
    return where_any(head, step, called, null)


def where_any(exists: Composable, step: Apply, called: Names, rows: Composable) -> Lines:
    """Return the head of IF for a diff that has some rows, or none."""
    return around(
        SQL("IF {} (SELECT FROM (").format(exists),
        query_code(step.query, called),
        SQL(") AS d WHERE {}) THEN").format(rows),
    )


def is_found_by_index(step: Apply) -> bool:
    """Return whether an index finds the rows of a small diff whose keys may be NULL.

    PostgreSQL combines two searches of an index, for the values and for NULL, but only by this column alone.
    """
    return len(step.keys) == 1 and not step.bounded

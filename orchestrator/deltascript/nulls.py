"""Simplifies comparisons with a diff that holds no NULL, so that PostgreSQL can hash them.

If columns may be NULL, a diff names rows by `stored = diff OR stored IS NULL AND diff IS NULL`. An
index can find such rows, but a hash join cannot: without an index, PostgreSQL scans the table for
each row of the diff. Most diffs hold no NULL, and then `stored = diff` is equivalent.

A diff that holds NULLs is joined once for each set of columns that are NULL. PostgreSQL looks up no row by
two columns of which one may be NULL, and by an index of one column it reads the rows that hold NULL for
each row of the diff.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import combinations

from psycopg.sql import SQL, Composable, Literal
from sqlglot import exp

from orchestrator.algebra import dialect
from orchestrator.algebra.dialect import Tree
from orchestrator.algebra.scalar import operands, unwrapped
from orchestrator.deltascript import sizes
from orchestrator.deltascript.costing import size
from orchestrator.deltascript.leaves import PROGRAM
from orchestrator.deltascript.names import Names
from orchestrator.deltascript.plan import Apply, Nulls, Query
from orchestrator.deltascript.query import query_code
from orchestrator.deltascript.writer import Lines, around, dotted, listed

Field = tuple[str, str]
"""A column of an item of FROM: the item's alias, and the column's name."""

_MOST_SPLIT = 3
"""The maximum number of columns that are split; each one doubles the number of joins."""


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
        if isinstance(bare, exp.Or) and (comparison := _compared(bare)) is not None:
            equal, sides = comparison
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
        if isinstance(bare, exp.Or) and (comparison := _compared(bare)) is not None:
            left, right = map(_record, comparison[1])
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


def split_by_nulls(query: Query) -> Query:
    """Return a query in which each inner join with a diff is a union of joins by equalities and by NULL.

    >>> from orchestrator.algebra.columns import Column
    >>> from orchestrator.algebra.examples import PARTS, PID
    >>> from orchestrator.algebra.operators.join import Join
    >>> from orchestrator.algebra.rendering import Renderer
    >>> from orchestrator.algebra.scalar import Scalar
    >>> from orchestrator.deltascript.leaves import DiffScan
    >>> old = Column("old")
    >>> diff = DiffScan("gone", "d", ((old, "pid"),))
    >>> same = Scalar.read("(pid = old) OR ((pid IS NULL) AND (old IS NULL))", [PID, old])
    >>> plan = Join(diff, PARTS, same)
    >>> split = split_by_nulls(Query(Renderer(plan).query(plan, {}, (PID,)))).tree
    >>> for arm in split.find(exp.Union).flatten(exp.Union):
    ...     print(dialect.write(arm.args["joins"][0].args["on"]))
    (parts.pid = d.pid)
    ((parts.pid IS NULL) AND (d.pid IS NULL))
    """
    tree = query.tree
    for select in [*tree.find_all(exp.Select)]:
        _split(tree, select)
    return Query(tree)


def _split(tree: Tree, select: exp.Select) -> None:
    fields = _split_fields(select)
    columns = _read_columns(select)
    if not fields or len(fields) > _MOST_SPLIT or columns is None:
        return
    names = _distinct_names(map(_field, columns))
    arms = [
        _arm(select, names, frozenset(null))
        for number in range(len(fields) + 1)
        for null in combinations(fields, number)
    ]
    alias = _unused_alias(tree)
    for column in columns:
        read: Tree = dialect.reference(names[_field(column)], alias)
        if column.parent is select and read.name != column.name:
            read = exp.Alias(this=read, alias=dialect.identifier(column.name))
        column.replace(read)
    union: exp.Query = arms[0]
    for arm in arms[1:]:
        union = exp.Union(this=union, expression=arm, distinct=False)
    named = exp.TableAlias(this=dialect.identifier(alias))
    select.set("from_", exp.From(this=exp.Subquery(this=union, alias=named)))
    select.set("joins", None)
    select.set("where", None)


def _items(select: exp.Select) -> list[Tree]:
    source = select.args.get("from_")
    return [source.this, *(join.this for join in _joins(select))] if source else []


def _diffs(select: exp.Select) -> set[str]:
    return {item.alias for item in _items(select) if isinstance(item, exp.Table) and is_diff(item)}


def _aliases(item: Tree) -> set[str]:
    """Return the names that an item of FROM gives to its columns; a join in parentheses has several."""
    joined = item.args.get("joins") or []
    names = {item.alias_or_name} if item.alias_or_name else _aliases(item.this)
    return names.union(*(_aliases(join.this) for join in joined))


def _joins(select: exp.Select) -> list[exp.Join]:
    return select.args.get("joins") or []


def _split_fields(select: exp.Select) -> list[Field]:
    """Return the fields of diffs that the inner joins of a query compare so that NULL equals NULL."""
    joins = _joins(select)
    if not joins or not all(map(_is_inner, joins)):
        return []
    diffs = _diffs(select)
    fields = (_compared_field(condition, diffs) for condition in _conditions(select))
    return [*dict.fromkeys(field for field in fields if field)]


def _is_inner(join: exp.Join) -> bool:
    is_plain = not (join.side or join.method or join.args.get("using"))
    return is_plain and join.kind in ("", "INNER", "CROSS")


def _conditions(select: exp.Select) -> Iterator[Tree]:
    """Yield the conditions that every row of an inner join fulfills."""
    where = select.args.get("where")
    for condition in [*(join.args.get("on") for join in _joins(select)), where and where.this]:
        if condition is not None:
            yield from operands(condition, exp.And)


def _compared_field(condition: Tree, diffs: set[str]) -> Field | None:
    comparison = _compared(condition) if isinstance(condition, exp.Or) else None
    sides = comparison[1] if comparison else ()
    return next((_field(side) for side in sides if side.table in diffs), None)


def _read_columns(select: exp.Select) -> list[exp.Column] | None:
    """Return where a query reads columns of its FROM outside of FROM and WHERE.

    Return None if this cannot be told.
    """
    aliases: set[str] = set().union(*map(_aliases, _items(select)))
    nodes = [
        node
        for name, clause in select.args.items()
        if name not in ("from_", "joins", "where")
        for part in (clause if isinstance(clause, list) else [clause])
        if isinstance(part, exp.Expression)
        for node in part.walk()
    ]
    columns = [node for node in nodes if isinstance(node, exp.Column)]
    is_told = all(column.table and not isinstance(column.this, exp.Star) for column in columns)
    hides = any(
        node.alias_or_name in aliases
        for node in nodes
        if isinstance(node, exp.Table | exp.Subquery)
    )
    if not is_told or hides or any(isinstance(output, exp.Star) for output in select.expressions):
        return None
    return [column for column in columns if column.table in aliases]


def _field(column: exp.Column) -> Field:
    return column.table, column.name


def _distinct_names(fields: Iterator[Field]) -> dict[Field, str]:
    names: dict[Field, str] = {}
    for field in fields:
        if field not in names:
            # A column of a table also has its number.
            name = bare = field[1].partition("\0")[0]
            number = 1
            while name in names.values():
                number += 1
                name = f"{bare}_{number}"
            names[field] = name
    return names


def _unused_alias(tree: Tree) -> str:
    used = {alias.name for alias in tree.find_all(exp.TableAlias)}
    used |= {table.name for table in tree.find_all(exp.Table)}
    number = 1
    while (alias := f"matched_{number}") in used:
        number += 1
    return alias


def _arm(select: exp.Select, names: dict[Field, str], null: frozenset[Field]) -> exp.Select:
    """Return the join of a query for the rows of diffs that are NULL in some fields and in no others."""
    arm = exp.Select(
        expressions=[
            exp.Alias(
                this=dialect.reference(column, table),
                alias=dialect.identifier(names[table, column]),
            )
            for table, column in names
        ],
        **{
            name: [part.copy() for part in clause] if isinstance(clause, list) else clause.copy()
            for name in ("from_", "joins", "where")
            if (clause := select.args.get(name)) is not None
        },
    )
    diffs = _diffs(arm)
    for condition in [*_conditions(arm)]:
        if (field := _compared_field(condition, diffs)) is not None:
            condition.replace(condition.expression if field in null else condition.this)
    return arm


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

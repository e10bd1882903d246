"""Plans of a query, changed into plans over captured relations.

A maintained view is captured at the table that stores its content. The rows there have a key, which
the view may not show. Changes are captured by this key, and the plan identifies rows by it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from orchestrator.algebra import Column, Operator, Plan, Scan, ScanColumn, Table
from orchestrator.algebra.ids import used_symbols
from orchestrator.algebra.operators.distinct import Distinct
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.traversal import rewrite
from orchestrator.deltascript.plan import Source
from orchestrator.frontend.facts import RelationColumn


def as_captured(plan: Plan, sources: Mapping[int, tuple[Source, frozenset[int]]]) -> Plan:
    """Return the plan over the captured sources of its relations, given by the oids of the
    relations.

    Each source has the numbers of the columns that are never NULL. A column of a maintained view
    has the same number in the content, which begins with the columns of the view.
    """
    symbols = used_symbols(plan.root)

    def with_source(operator: Scan) -> Scan:
        if operator.table.oid not in sources:
            return operator
        source, not_null = sources[operator.table.oid]
        key = tuple(column.attnum for column in source.columns if column.in_key)
        if source.oid == operator.table.oid:
            # If capture identifies rows by their content, the plan cannot use a key of the table.
            table = operator.table if key else replace(operator.table, keys=())
            return replace(operator, table=table)
        keys = (key,) if key else ()
        table = Table(source.oid, source.schema, source.name, keys, not_null)
        attnums = {output.attnum for output in operator.outputs}
        hidden = tuple(
            ScanColumn(
                Column(symbols.fresh(column.name), column.plain_type),
                column.attnum,
                column.name,
            )
            for column in source.columns
            if column.in_key and column.attnum not in attnums
        )
        return replace(operator, table=table, outputs=(*operator.outputs, *hidden))

    return _with_scans(plan, with_source)


def with_visible_keys(plan: Plan, keys: Mapping[int, tuple[RelationColumn, ...]]) -> Plan:
    """Return a plan whose scans of maintained views know the keys that the views show.

    PostgreSQL does not know these keys, because a relation that shows a content declares none. A column of
    the relation has the same number in the content.
    """
    symbols = used_symbols(plan.root)

    def add_key(operator: Scan) -> Scan:
        if operator.table.oid not in keys:
            return operator
        key = keys[operator.table.oid]
        table = replace(operator.table, keys=(tuple(column.attnum for column in key),))
        added = tuple(
            ScanColumn(
                Column(symbols.fresh(column.name), column.plain_type), column.attnum, column.name
            )
            for column in key
            if operator.at(column.attnum) is None
        )
        return replace(operator, table=table, outputs=(*operator.outputs, *added))

    return _with_scans(plan, add_key) if keys else plan


def _with_scans(plan: Plan, change: Callable[[Scan], Scan]) -> Plan:
    """Return the plan with changed scans. Columns that they add do not tell rows apart that were equal."""
    added: set[Column] = set()

    def changed(operator: Operator) -> Operator:
        if isinstance(operator, Scan):
            scan = change(operator)
            added.update(set(scan.columns) - set(operator.columns))
            return scan
        if isinstance(operator, Distinct) and not added.isdisjoint(operator.columns):
            kept = [column for column in operator.columns if column not in added]
            return Distinct(Projection(operator.input, tuple(map(Item.kept, kept))))
        return operator

    return replace(plan, root=rewrite(plan.root, changed))

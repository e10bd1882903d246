"""Plans of a query, as plans over what is captured.

A maintained view is captured where its content is stored. There the rows have a key, though the view
may not show it: changes are captured by it, and the plan identifies rows by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from orchestrator.algebra import Column, Operator, Plan, Scan, ScanColumn, Table
from orchestrator.algebra.ids import used_symbols
from orchestrator.algebra.traversal import rewrite
from orchestrator.deltascript.plan import Source
from orchestrator.frontend.facts import RelationColumn


def as_captured(plan: Plan, sources: Mapping[int, tuple[Source, frozenset[int]]]) -> Plan:
    """The plan over the sources of its relations, which are given by the relations' oids.

    With each come the numbers of the columns that never hold NULL. A column of a maintained view has
    the same number in the content, which begins with what the view shows.
    """
    symbols = used_symbols(plan.root)

    def through(operator: Operator) -> Operator:
        if not isinstance(operator, Scan) or operator.table.oid not in sources:
            return operator
        source, not_null = sources[operator.table.oid]
        key = tuple(column.attnum for column in source.columns if column.in_key)
        if source.oid == operator.table.oid:
            # Where capture tells rows apart by their content, a key of the table is of no use.
            table = operator.table if key else replace(operator.table, keys=())
            return replace(operator, table=table)
        keys = (key,) if key else ()
        table = Table(source.oid, source.schema, source.name, keys, not_null)
        attnums = {output.attnum for output in operator.outputs}
        hidden = tuple(
            ScanColumn(Column(symbols.fresh(item.name), item.plain_type), item.attnum, item.name)
            for item in source.columns
            if item.in_key and item.attnum not in attnums
        )
        return replace(operator, table=table, outputs=(*operator.outputs, *hidden))

    return replace(plan, root=rewrite(plan.root, through))


def with_visible_keys(plan: Plan, keys: Mapping[int, tuple[RelationColumn, ...]]) -> Plan:
    """Return a plan whose scans of maintained views know the keys that the views show.

    PostgreSQL does not know these keys, because a relation that shows a content declares none. A column of
    the relation has the same number in the content.
    """
    symbols = used_symbols(plan.root)

    def add_key(operator: Operator) -> Operator:
        if not isinstance(operator, Scan) or operator.table.oid not in keys:
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

    return replace(plan, root=rewrite(plan.root, add_key)) if keys else plan

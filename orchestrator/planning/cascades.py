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

"""Enumerate the rows of a view in the order of the option `ranked`, without computing the other rows.

The method is the partition-based one of Tziavelis, Gatterbauer and Riedewald (docs/papers.md, "Ranked enumeration"),
after Lawler. A solution is a row of each node of the tree. The first solution takes the first row of each group. A heap
holds candidates: each is the best of the solutions that agree with a produced solution on the nodes before some node,
and have a later row there. When a solution is produced, the next row at each node from its own on gives a candidate.

The states are sorted in indexes, so the first and the next row of a group are lookups. All of it is one plpgsql
function for each view, which reads in the snapshot of the statement that calls it. It does not keep its heap between
two calls. So a cursor reads pages, each as long as all pages before it, and rows cost at most four times as much as
without pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from psycopg import Connection
from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from orchestrator.deltascript import emit
from orchestrator.deltascript.capture.table import function_body
from orchestrator.deltascript.names import Names
from orchestrator.deltascript.plan import MaintenancePlan, StateView
from orchestrator.runtime.enumeration.gate import (
    TOKEN,
    allowed,
    create_secret,
    opening_function,
    relation_of,
    secret_of,
)
from orchestrator.runtime.enumeration.ordered import OFF, PAGE
from orchestrator.runtime.enumeration.ranked_function import Fields, FunctionBody
from orchestrator.sqltext import SEARCH_PATH


def relation_statements(names: Names, plan: MaintenancePlan) -> Iterator[Composed]:
    """Yield the statements that create the relation of a ranked view, and what it reads.

    The function works for the relation alone, which has no rows for roles that may not read the view.
    """
    if plan.ranking is None:
        return
    content = plan.program.state(plan.ranking.rows)
    assert isinstance(content, StateView)
    writer = _Writer(names, plan.ranking, content)
    yield create_secret(names)
    yield from writer.node_views()
    yield writer.content_view()
    yield writer.candidate_type()
    yield writer.function()
    if plan.ranking.excerpt is not None:
        yield _show_excerpt(names, plan, names.state(plan.program.content))
        return
    yield writer.pages()
    yield SQL("GRANT SELECT ON {} TO PUBLIC").format(relation_of(names))
    yield opening_function(names, OFF)


def create_state_view(
    names: Names, plan: MaintenancePlan, state: StateView, relation: Composable
) -> Composed:
    """Return the statement that creates the final form of a view: the content of an excerpt calls the function."""
    if state.role == plan.program.content and plan.ranking is not None and plan.ranking.excerpt:
        return _show_excerpt(names, plan, relation)
    return emit.create_state_view(state, names, relation)


def _show_excerpt(names: Names, plan: MaintenancePlan, relation: Composable) -> Composed:
    """Return the statement by which the content reads its rows from the function, and does not sort all rows.

    Only the owner of the view may read the content, as users read it through the view.
    """
    content = plan.program.state(plan.program.content)
    assert isinstance(content, StateView) and plan.ranking is not None and plan.ranking.excerpt
    return SQL(
        "CREATE OR REPLACE VIEW {} AS SELECT {} FROM {} AS g CROSS JOIN LATERAL {}({}, {}, {}) AS r"
    ).format(
        relation,
        SQL(", ").join(SQL("r.{}").format(Identifier(item.name)) for item in content.columns),
        secret_of(names),
        function_of(names),
        TOKEN,
        Literal(plan.ranking.excerpt.skipped),
        Literal(plan.ranking.excerpt.count),
    )


def rows(connection: Connection[Any], names: Names) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a ranked view in its order, in one snapshot."""
    with connection.transaction(), connection.cursor("idivm_rows") as cursor:
        cursor.execute(SQL("SELECT * FROM {}").format(relation_of(names)))
        size = 1
        while batch := cursor.fetchmany(size):
            yield from batch
            # The rows of a page cost as much as all rows before it, whether they are read or not.
            size = min(2 * size, PAGE)


def order_by(connection: Connection[Any], relation: Composable) -> str | None:
    """Return the order of a view as SQL over its columns, if it is ranked."""
    name = Literal(relation.as_string(connection))
    row = connection.execute(SQL("SELECT idivm.ranked_by({})").format(name)).fetchone()
    assert row is not None
    return None if row[0] is None else str(row[0])


def function_of(names: Names) -> Identifier:
    """Return the name of the function that returns a range of the ranked rows of a view."""
    return Identifier("idivm_feed", f"ranked_{names.id}")


class _Writer(Fields):
    """Writes the relations and the function of one view."""

    def node_views(self) -> Iterator[Composed]:
        """Yield the views over the sorted states."""
        for number, node in enumerate(self.ranking.nodes):
            items = [
                SQL("s.{} AS {}").format(Identifier(column), Identifier(self.numbers[name]))
                for name, column in node.columns
            ]
            items += [
                SQL("s.{} AS {}").format(Identifier(item.column), Identifier(f"w{term}"))
                for term, item in zip(node.terms, node.order, strict=False)
            ]
            yield _view(self.relation(number), items, self.names.state(node.state))

    def content_view(self) -> Composed:
        """Return the view over the content, with its hidden keys."""
        columns = (*(column.name for column in self.content.columns), *self.content.keys)
        items = [SQL("s.{}").format(Identifier(name)) for name in columns]
        return _view(self.relation("content"), items, self.names.state(self.content.role))

    def candidate_type(self) -> Composed:
        """Return the view whose row type candidates have; it has no rows."""
        items: list[Composable] = []
        seen: set[str] = set()
        for number, node in enumerate(self.ranking.nodes):
            alias = Identifier(f"n{number}")
            for name, _ in node.columns:
                if name not in seen:
                    items.append(SQL("{}.{}").format(alias, Identifier(self.numbers[name])))
                    seen.add(name)
            items += [
                SQL("{}.{} AS {}").format(
                    alias, Identifier(f"w{term}"), Identifier(f"w{number}_{term}")
                )
                for term in node.terms
            ]
        items += [
            SQL("0::numeric AS {}").format(Identifier(f"total{term}"))
            for term in range(len(self.ranking.terms))
            if self.is_sum(term)
        ]
        tables = SQL(", ").join(
            SQL("{} AS {}").format(self.relation(number), Identifier(f"n{number}"))
            for number in range(len(self.ranking.nodes))
        )
        return SQL("CREATE OR REPLACE VIEW {} AS SELECT {}, 0 AS place FROM {} WHERE false").format(
            self.relation("solution"), SQL(", ").join(items), tables
        )

    def pages(self) -> Composed:
        """Return the relation through which SQL enumerates the view: pages, each as long as all before it."""
        function = function_of(self.names)
        columns = SQL(", ").join(
            SQL("r.{}").format(Identifier(column.name)) for column in self.content.columns
        )
        return SQL(
            "CREATE OR REPLACE VIEW {relation} WITH (security_barrier) AS\n"
            "WITH RECURSIVE gate (token) AS MATERIALIZED (SELECT {token} FROM {secret} AS g WHERE {allowed}),\n"
            "page (skipped, size, listed) AS (\n"
            "    SELECT 0::bigint, 1::bigint, ARRAY(SELECT r FROM {function}(g.token, 0, 1) AS r) FROM gate AS g\n"
            "  UNION ALL\n"
            "    SELECT p.skipped + p.size, p.skipped + p.size,"
            " ARRAY(SELECT r FROM {function}(g.token, p.skipped + p.size, p.skipped + p.size) AS r)\n"
            "    FROM page AS p CROSS JOIN gate AS g WHERE cardinality(p.listed) = p.size\n)\n"
            "SELECT {columns} FROM page AS p CROSS JOIN LATERAL unnest(p.listed) AS r"
        ).format(
            relation=relation_of(self.names),
            token=TOKEN,
            secret=secret_of(self.names),
            allowed=allowed(self.names),
            function=function,
            columns=columns,
        )

    def function(self) -> Composed:
        """Return the statement that creates the function for a range of the rows."""
        settings = SQL(" ").join(
            SQL("SET {} = off").format(Identifier(name)) for name in (*OFF, "enable_bitmapscan")
        )
        excerpt = self.ranking.excerpt
        rows = SQL(" ROWS {}").format(Literal(excerpt.count)) if excerpt else SQL("")
        return SQL(
            "CREATE OR REPLACE FUNCTION {}(token bytea, skipped bigint, size bigint) RETURNS SETOF {}"
            " LANGUAGE plpgsql STABLE SECURITY DEFINER{} SET search_path = {}"
            " SET plan_cache_mode = force_generic_plan {} AS {}"
        ).format(
            function_of(self.names),
            self.relation("content"),
            rows,
            SQL(SEARCH_PATH),
            settings,
            function_body(FunctionBody(self.names, self.ranking, self.content).text()),
        )


def _view(relation: Identifier, items: Sequence[Composable], state: Composable) -> Composed:
    return SQL("CREATE OR REPLACE VIEW {} AS SELECT {} FROM {} AS s").format(
        relation, SQL(", ").join(items), state
    )

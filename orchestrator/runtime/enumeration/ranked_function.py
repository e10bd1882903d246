"""The function that returns a range of the rows of a ranked view: a heap of candidates over sorted states.

`orchestrator/runtime/enumeration/ranked.py` explains the method.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from orchestrator.deltascript.capture.table import function_body
from orchestrator.deltascript.emit import order_list
from orchestrator.deltascript.names import Names
from orchestrator.deltascript.plan import (
    Part,
    RankedNode,
    Ranking,
    Sorted,
    StateView,
    direction,
)
from orchestrator.runtime.enumeration.gate import TOKEN, secret_of
from orchestrator.runtime.enumeration.heap import BODY


class Fields:
    """The names of the views over states of a ranked view, and of the fields of solutions.

    In the relations of nodes, `v<number>` is a variable and `w<term>` a term of the best completion. A candidate also
    has the terms of each node, `w<node>_<term>`, and the sums `total<term>`.
    """

    def __init__(self, names: Names, ranking: Ranking, content: StateView) -> None:
        """Take the names of the view, its ranking and its content."""
        self.names, self.ranking, self.content = names, ranking, content
        self.numbers = {name: f"v{number}" for number, name in enumerate(ranking.variables)}

    def relation(self, suffix: object) -> Identifier:
        """Return the name of a relation that the function of the view reads."""
        return Identifier("idivm_feed", f"r{self.names.id}_{suffix}")

    def own(self, node: RankedNode) -> list[str]:
        """Return the variables of a node that the nodes before it do not determine."""
        return [name for name, _ in node.columns if name not in node.group]

    def is_sum(self, term: int) -> bool:
        """Return whether several nodes have parts of a term."""
        return len(self.ranking.terms[term].nodes) > 1

    def sort_keys(self, node: RankedNode) -> list[Sorted]:
        """Return the columns by which the rows of a group are sorted."""
        variables = {column: self.numbers[name] for name, column in node.columns}
        names = [f"w{term}" for term in node.terms]
        names += [variables[item.column] for item in node.order[len(names) :]]
        return [replace(item, column=name) for name, item in zip(names, node.order, strict=True)]


class FunctionBody(Fields):
    """Writes the body of the function."""

    def _order(self) -> list[Sorted]:
        """Return the fields by which candidates are sorted: the terms, and then the keys of the nodes."""
        result = []
        for number, term in enumerate(self.ranking.terms):
            name = f"total{number}" if self.is_sum(number) else f"w{term.nodes[0]}_{number}"
            nullable = not self.is_sum(number)
            result.append(Sorted(name, term.descending, term.nulls_first, nullable))
        for node in self.ranking.nodes:
            result += self.sort_keys(node)[len(node.terms) :]
        return result

    def text(self) -> Composed:
        """Return the body."""
        solution = self.relation("solution")
        first = SQL("\n    IF NOT FOUND THEN RETURN; END IF;\n").join(
            self._first(number, SQL("best")) for number in range(len(self.ranking.nodes))
        )
        sums = SQL("\n").join(self._totals(SQL("best")))
        candidates = SQL("\n").join(map(self._candidate, range(len(self.ranking.nodes))))
        return SQL(BODY).format(
            token=TOKEN,
            number=Literal(self.names.id),
            secret=secret_of(self.names),
            solution=solution,
            first=first,
            sums=sums,
            candidates=candidates,
            row=self._row(),
            several=SQL("WHILE length > 0 LOOP")
            if self._with_ties
            else SQL("WHILE length > 0 AND number < skipped + size LOOP"),
            ended=self._ended(),
            sorted_rest=self._sorted_rest(),
            produced=SQL("        previous := best;")
            if self._with_ties
            else SQL("        EXIT WHEN number = skipped + size;"),
            above=self._precedes("added", "other"),
            right=self._precedes("other", "left_one"),
            below=self._precedes("other", "last_one"),
        )

    @property
    def _with_ties(self) -> bool:
        return self.ranking.excerpt is not None and self.ranking.excerpt.with_ties

    def _ended(self) -> Composed:
        """Return the statement that ends an excerpt with ties, at the first row that differs from the last."""
        if not self._with_ties:
            return SQL("").format()
        same = SQL(" AND ").join(
            SQL("best.{0} IS NOT DISTINCT FROM previous.{0}").format(Identifier(key.column))
            for key in self._order()[: len(self.ranking.terms)]
        )
        return SQL("        EXIT WHEN number >= size AND NOT ({});").format(same)

    def _sorted_rest(self) -> Composed:
        """Return the statement that sorts the remaining rows if a sum is infinite or NaN.

        Such sums are equal though their summands are not, so that the order of the views below is no order of rows.
        """
        totals = [number for number in range(len(self.ranking.terms)) if self.is_sum(number)]
        if not totals:
            return SQL("").format()
        special = SQL(" OR ").join(
            SQL("best.{} IN ('NaN', 'Infinity', '-Infinity')").format(Identifier(f"total{number}"))
            for number in totals
        )
        hidden = dict(zip(self.numbers, self.content.keys, strict=True))
        order = [
            (SQL(" + ").join(self._summands(number, hidden)), term)
            for number, term in enumerate(self.ranking.terms)
        ]
        items = [
            SQL("{}{}").format(value, SQL(direction(term.descending, term.nulls_first)))
            for value, term in order
        ]
        if self._with_ties:
            rows = SQL("FETCH FIRST (size - number) ROWS WITH TIES")
        else:
            rows = SQL("LIMIT skipped + size - greatest(number, skipped)")
            # The keys follow as in the order of candidates.
            variables = {key: name for name, key in self.numbers.items()}
            items += [
                SQL("n.{}{}").format(
                    Identifier(hidden[variables[key.column]]),
                    SQL(direction(key.descending, key.nulls_first)),
                )
                for key in self._order()[len(self.ranking.terms) :]
            ]
        return SQL(
            "        IF {} THEN\n"
            "        RETURN QUERY SELECT n.* FROM {} AS n ORDER BY {} OFFSET greatest(number, skipped) {};\n"
            "        RETURN;\n        END IF;"
        ).format(special, self.relation("content"), SQL(", ").join(items), rows)

    def _summands(self, number: int, columns: Mapping[str, str]) -> list[Composable]:
        """Return the summands of a term over the rows of the view, given the columns of the variables."""
        term = self.ranking.terms[number]
        [first, *others] = term.parts
        if not others and first.factor == "1" and first.default is None:
            return [SQL("n.{}").format(Identifier(columns[first.variable]))]
        return [
            _summand(part, SQL("n.{}").format(Identifier(columns[part.variable])))
            for part in term.parts
        ]

    def _totals(self, record: Composable) -> Iterator[Composed]:
        """Yield the statements that compute the sums of a solution.

        They are not derived from those of another solution: infinity cannot be subtracted.
        """
        for number, term in enumerate(self.ranking.terms):
            if not self.is_sum(number):
                continue
            summands = [
                _summand(part, SQL("{}.{}").format(record, Identifier(self.numbers[part.variable])))
                for part in term.parts
            ]
            yield SQL("    {}.{} := {};").format(
                record, Identifier(f"total{number}"), SQL(" + ").join(summands)
            )

    def _targets(self, number: int, record: Composable) -> tuple[Composed, Composed]:
        """Return the columns of a node that a lookup reads, and the fields of a candidate that get them."""
        node = self.ranking.nodes[number]
        variables = [self.numbers[name] for name in self.own(node)]
        pairs = [(name, name) for name in variables]
        pairs += [(f"w{term}", f"w{number}_{term}") for term in node.terms]
        columns = SQL(", ").join(SQL("n.{}").format(Identifier(name)) for name, _ in pairs)
        fields = (SQL("{}.{}").format(record, Identifier(name)) for _, name in pairs)
        return columns, SQL(", ").join(fields)

    def _group(self, number: int, record: Composable) -> list[Composed]:
        return [
            SQL("n.{0} = {1}.{0}").format(Identifier(self.numbers[name]), record)
            for name in self.ranking.nodes[number].group
        ]

    def _sorted(self, number: int) -> Composed:
        keys = self.sort_keys(self.ranking.nodes[number])
        return order_list(keys, "n")

    def _first(self, number: int, record: Composable) -> Composed:
        """Return the statement that looks up the first row of the group of a node. Every group has rows."""
        columns, fields = self._targets(number, record)
        conditions = self._group(number, record)
        return SQL("    SELECT {} INTO {} FROM {} AS n{} ORDER BY {} LIMIT 1;").format(
            columns,
            fields,
            self.relation(number),
            SQL(" WHERE {}").format(SQL(" AND ").join(conditions)) if conditions else SQL(""),
            self._sorted(number),
        )

    def _candidate(self, number: int) -> Composed:
        """Return the statements that add the candidate with the next row of a node."""
        node = self.ranking.nodes[number]
        record = SQL("added")
        completed = [
            self._first(place, record) for place in range(number + 1, number + 1 + node.below)
        ]
        return SQL(
            "    IF best.place <= {number} THEN\n    added := best;\n{following}\n    IF follows THEN\n{more}\n"
            "    added.place := {number};\n    fresh := fresh || added;\n    END IF;\n    END IF;"
        ).format(
            number=Literal(number),
            following=self._following(number),
            more=SQL("\n").join([*completed, *self._totals(record)]),
        )

    def _following(self, number: int) -> Composed:
        """Return the statement that looks up the row after a row in its group.

        A comparison of several columns in different directions, or with NULLs, is no range of an index. So the row is
        the first of those that are equal in as many columns as possible. If the row has NULLs, PostgreSQL plans the
        lookups for its values, because no index serves a comparison in which NULL may equal NULL.
        """
        keys = self._keys_of(number)
        _, fields = self._targets(number, SQL("added"))
        values = [SQL("best.{}").format(Identifier(name)) for _, name in keys]
        into = SQL(" INTO {}").format(fields)
        plain = SQL("    {};\n    follows := FOUND;").format(
            self._lookups(number, values, into, dynamic=False)
        )
        nullable = [value for (key, _), value in zip(keys, values, strict=True) if key.nullable]
        if not nullable:
            return plain
        group = self.ranking.nodes[number].group
        given = [
            *values,
            *(SQL("best.{}").format(Identifier(self.numbers[name])) for name in group),
        ]
        places = [SQL(f"${place}") for place in range(1, len(keys) + 1)]
        return SQL(
            "    IF num_nulls({}) = 0 THEN\n{}\n    ELSE\n    EXECUTE {} INTO {} USING {};\n"
            "    GET DIAGNOSTICS found_rows = ROW_COUNT;\n    follows := found_rows > 0;\n    END IF;"
        ).format(
            SQL(", ").join(nullable),
            plain,
            function_body(self._lookups(number, places, SQL(""), dynamic=True)),
            fields,
            SQL(", ").join(given),
        )

    def _keys_of(self, number: int) -> list[tuple[Sorted, str]]:
        """Return the columns by which the rows of a group are sorted, and the fields of candidates that hold them."""
        node = self.ranking.nodes[number]
        keys = self.sort_keys(node)
        names = [f"w{number}_{term}" for term in node.terms]
        return list(zip(keys, [*names, *(key.column for key in keys[len(names) :])], strict=True))

    def _lookups(
        self, number: int, values: Sequence[Composable], into: Composable, *, dynamic: bool
    ) -> Composed:
        columns, _ = self._targets(number, SQL(""))
        keys = [key for key, _ in self._keys_of(number)]
        group = self.ranking.nodes[number].group
        shared = self._group(number, SQL("best"))
        if dynamic:
            shared = [
                SQL("n.{} = {}").format(
                    Identifier(self.numbers[name]), SQL(f"${len(keys) + 1 + place}")
                )
                for place, name in enumerate(group)
            ]
        if not any(key.nullable for key in keys) and len({key.descending for key in keys}) == 1:
            listed = SQL(", ").join(SQL("n.{}").format(Identifier(key.column)) for key in keys)
            after = SQL("ROW({}) {} ROW({})").format(
                listed, SQL("<" if keys[0].descending else ">"), SQL(", ").join(values)
            )
            return SQL("SELECT {}{} FROM {} AS n WHERE {} ORDER BY {} LIMIT 1").format(
                columns,
                into,
                self.relation(number),
                SQL(" AND ").join([*shared, after]),
                self._sorted(number),
            )
        branches: list[Composed] = []
        for level in reversed(range(len(keys))):
            equal = [
                (_same if dynamic and key.nullable else _equal)(key, value)
                for key, value in zip(keys[:level], values, strict=False)
            ]
            for after in _after(keys[level], values[level], dynamic):
                conditions = SQL(" AND ").join([*shared, *equal, after])
                branches.append(
                    SQL(
                        "(SELECT {}, {} AS level FROM {} AS n WHERE {} ORDER BY {} LIMIT 1)"
                    ).format(
                        columns,
                        Literal(len(branches)),
                        self.relation(number),
                        conditions,
                        self._sorted(number),
                    )
                )
        return SQL("SELECT {}{} FROM (\n      {}\n    ) AS n ORDER BY level LIMIT 1").format(
            columns, into, SQL("\n      UNION ALL ").join(branches)
        )

    def _row(self) -> Composed:
        """Return the statement that returns the row of the view for a solution."""
        nullable = [
            self.numbers[name]
            for node in self.ranking.nodes
            for name, column in node.columns
            if any(item.column == column and item.nullable for item in node.order)
        ]
        pairs = list(zip(self.content.keys, self.numbers.values(), strict=True))

        def query(values: Sequence[Composable], same: bool) -> Composed:
            conditions = [
                (_same if same and name in nullable else _equal)(Sorted(key), value)
                for (key, name), value in zip(pairs, values, strict=True)
            ]
            return SQL("SELECT n.* FROM {} AS n WHERE {}").format(
                self.relation("content"), SQL(" AND ").join(conditions)
            )

        fields = [SQL("best.{}").format(Identifier(name)) for _, name in pairs]
        plain = SQL("        RETURN QUERY {};").format(query(fields, same=False))
        if not nullable:
            return plain
        places = [SQL(f"${place}") for place in range(1, len(pairs) + 1)]
        return SQL(
            "        IF num_nulls({}) = 0 THEN\n{}\n        ELSE\n        RETURN QUERY EXECUTE {} USING {};\n"
            "        END IF;"
        ).format(
            SQL(", ").join(SQL("best.{}").format(Identifier(name)) for name in nullable),
            plain,
            function_body(query(places, same=True)),
            SQL(", ").join(fields),
        )

    def _precedes(self, first: str, second: str) -> Composed:
        """Return whether one candidate comes before another."""
        condition = SQL("false").format()
        for key in reversed(self._order()):
            former, latter = (
                SQL("{}.{}").format(Identifier(record), Identifier(key.column))
                for record in (first, second)
            )
            before = SQL("{} {} {}").format(former, SQL(">" if key.descending else "<"), latter)
            same = SQL("{} = {}").format(former, latter)
            if key.nullable:
                null, value = (former, latter) if key.nulls_first else (latter, former)
                before = SQL("{} OR ({} IS NULL AND {} IS NOT NULL)").format(before, null, value)
                same = SQL("{} IS NOT DISTINCT FROM {}").format(former, latter)
            condition = SQL("({} OR ({} AND {}))").format(before, same, condition)
        return condition


def _summand(part: Part, column: Composed) -> Composed:
    """Return a part of a sum as an exact number, given its column."""
    value = SQL("{}::numeric").format(column)
    if part.default is not None:
        value = SQL("coalesce({}, {}::numeric)").format(value, Literal(part.default))
    return SQL("{} * {}::numeric").format(value, Literal(part.factor))


def _equal(key: Sorted, value: Composable) -> Composed:
    return SQL("n.{} = {}").format(Identifier(key.column), value)


def _same(key: Sorted, value: Composable) -> Composed:
    return SQL("(n.{0} = {1} OR (n.{0} IS NULL AND {1} IS NULL))").format(
        Identifier(key.column), value
    )


def _after(key: Sorted, value: Composable, dynamic: bool) -> Iterator[Composed]:
    """Yield the conditions for values that come after a value, in order; each is a range of an index."""
    column = Identifier(key.column)
    if key.nullable and key.nulls_first and dynamic:
        yield SQL("n.{} IS NOT NULL AND {} IS NULL").format(column, value)
    yield SQL("n.{} {} {}").format(column, SQL("<" if key.descending else ">"), value)
    if key.nullable and not key.nulls_first:
        more = SQL(" AND {} IS NOT NULL").format(value) if dynamic else SQL("")
        yield SQL("n.{} IS NULL{}").format(column, more)

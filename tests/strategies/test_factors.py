"""Changes of matrices kept up in factors, and outer products."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import psycopg
import pytest

from orchestrator.errors import UnsupportedError, UsageError

SIZE = 8
TABLES = "".join(
    f"CREATE TABLE {name} ({row} int, {other} int, p {kind}, PRIMARY KEY ({row}, {other}));"
    f"INSERT INTO {name} SELECT x, y, (x * {factor} + y * y) % 9 - 4"
    f" FROM generate_series(1, {SIZE}) AS x, generate_series(1, {SIZE}) AS y;"
    f"CREATE INDEX ON {name} ({other});"
    for name, row, other, kind, factor in (
        ("a1", "i", "j", "int", 5),
        ("a2", "j", "k", "int", 3),
        ("a3", "k", "l", "int", 7),
        ("b2", "j", "k", "numeric(9, 2)", 2),
    )
)
VECTORS = (
    "CREATE TABLE u (n int, x int); CREATE TABLE v (n int, x int);"
    f"INSERT INTO u SELECT n, n % 5 - 2 FROM generate_series(1, {SIZE}) AS n;"
    f"INSERT INTO v SELECT n, 1 + n % 3 FROM generate_series(1, {SIZE + 3}) AS n"
)


def product(middle="a2"):
    return (
        f"SELECT a1.i, a3.l, sum(a1.p * {middle}.p * a3.p) AS p, count(*) AS n FROM a1"
        f" JOIN {middle} USING (j) JOIN a3 USING (k) GROUP BY a1.i, a3.l"
    )


CHANGES = {
    "a row": "UPDATE {m} SET p = p + k WHERE j = 4",
    "columns": "UPDATE {m} SET p = p * 2 - j WHERE k IN (2, 8)",
    "a row that goes": "DELETE FROM {m} WHERE j = 7",
    "an outer product": "SELECT idivm.apply_outer('{m}', 'u', 'v')",
    "all at once": "UPDATE {m} SET p = p + j * k % 7",
    "little": "UPDATE {m} SET p = 0 WHERE j = k",
    "several tables": "UPDATE a1 SET p = p + 1 WHERE j = 3; UPDATE a3 SET p = 1 - p WHERE k < 5;"
    "SELECT idivm.apply_outer('{m}', 'v', 'u'); DELETE FROM a1 WHERE i = 2",
    "all goes": "DELETE FROM {m}",
    "rows that come": "INSERT INTO {m} SELECT j, k, 2 * j FROM generate_series(5, 6) AS j, generate_series(1, 40) AS k",
}


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize("middle", ["a2", "b2"])
def test_every_change_arrives_in_factors_or_not(orc, middle, monkeypatch, older):
    if older and middle == "a2":
        pytest.skip("older versions run the wider one")
    monkeypatch.setattr("orchestrator.strategies.viewtree.factors.MANY", 8)
    orc.execute(TABLES)
    orc.execute(VECTORS)
    kinds = {
        "kept": {"variable_order": "j - { i, k - l }"},
        "eager": {"maintain": "eager", "variable_order": "k - { l, j - i }"},
        "fixed": {"static": "a1, a3"},
    }
    for name, options in kinds.items() if middle == "a2" else [("plain", {})]:
        orc.create_view(name, product(middle), strategy="viewtree", factorizable=middle, **options)
    for what, change in CHANGES.items():
        orc.execute(change.format(m=middle))
        orc.refresh()
        different = {r.view: (r.missing_rows, r.surplus_rows) for r in orc.check() if not r.equal}
        assert different == {}, what


@pytest.mark.parametrize(
    ("change", "taken"),
    [
        ("UPDATE a2 SET p = p + 1 + k % 3 WHERE j = 4", True),
        ("UPDATE a2 SET p = p + 1 + j % 3 WHERE k = 4", True),
        ("SELECT idivm.apply_outer('a2', 'u', 'u')", True),
        ("UPDATE a2 SET p = p + j * j + k", False),
    ],
    ids=["row", "column", "outer product", "neither"],
)
def test_a_delta_that_is_few_products_is_taken_apart(orc, connect, monkeypatch, change, taken):
    monkeypatch.setattr("orchestrator.strategies.viewtree.factors.MANY", 8)
    orc.execute(TABLES)
    orc.execute(VECTORS)
    view = orc.create_view(
        "made", product(), strategy="viewtree", factorizable="a2", static="a1, a3"
    )
    orc.execute(change)
    program = f"idivm_state.refresh_{view.id}"
    [[body]] = orc.connection.execute(
        "SELECT prosrc FROM pg_proc WHERE oid = %s::regproc", [program]
    ).fetchall()
    # The program says what the variable of the delta's other form holds.
    variable = next(
        line.split()[0] for line in body.splitlines() if "a2_rest" in line and "[]" in line
    )
    assert variable
    altered = body.replace(
        "RETURN;", f"RAISE NOTICE 'listed %', coalesce(cardinality({variable}), 0); RETURN;"
    )
    assert altered != body
    notices = []
    orc.connection.add_notice_handler(lambda notice: notices.append(notice.message_primary))
    [[source]] = orc.connection.execute(
        "SELECT pg_get_functiondef(%s::regproc)", [program]
    ).fetchall()
    orc.connection.execute(source.replace(body, altered).encode())
    orc.refresh("made")
    [listed] = [int(notice.split()[1]) for notice in notices if notice.startswith("listed")]
    assert (listed == 0) == taken


def test_a_matrix_of_rank_one_is_told_exactly(orc):
    def factors(matrix):
        values = [str(x) for line in matrix for x in line]
        [[vectors]] = orc.connection.execute(
            "SELECT idivm.rank_one(%s::numeric[], %s)", [values, len(matrix)]
        ).fetchall()
        return vectors

    for u, v in (
        ([3, 0, -6], [4, 6, 0, 2]),
        (["0.25", "-1.5"], ["0.3", "7", "0"]),
        ([0, 0], [1, 2]),
        ([10**30, 7], [10**25 + 1, 3]),
    ):
        matrix = [[Fraction(x) * Fraction(y) for y in v] for x in u]
        written = [[format(float(x), "f") if x.denominator > 1 else x for x in r] for r in matrix]
        vectors = [Fraction(x) for x in factors(written)]
        multiplied = [[x * y for y in vectors[len(u) :]] for x in vectors[: len(u)]]
        assert multiplied == matrix
    assert factors([[1, 2], [2, 5]]) is None
    assert factors([[0, 1], [1, 0]]) is None


def test_an_outer_product_is_added_to_a_matrix(orc, connect):
    orc.execute(TABLES)
    orc.execute(VECTORS)

    def dense(query, shape):
        [result] = orc.execute(query)
        array = np.zeros(shape)
        for *place, x in result.rows:
            array[tuple(n - 1 for n in place)] = x
        return array

    shape = (SIZE, SIZE + 3)
    before = dense("SELECT j, k, p FROM a2", shape)
    u = dense("SELECT n, x FROM u", shape[:1])
    v = dense("SELECT n, x FROM v", shape[1:])
    [result] = orc.execute("SELECT idivm.apply_outer('a2', 'u', 'v')")
    assert result.rows[0][0] == np.count_nonzero(np.outer(u, v))
    assert (dense("SELECT j, k, p FROM a2", shape) == before + np.outer(u, v)).all()
    orc.execute(
        "CREATE TABLE w (n int, x int, y int); CREATE TABLE wide (a int PRIMARY KEY, b int)"
    )
    plain = connect()
    for call, said in (
        ("'wide', 'u', 'v'", "wide is not a matrix"),
        ("'u', 'u', 'v'", "u is not a matrix"),
        ("'a2', 'u', 'w'", "are not two vectors"),
        ("'a2', 'w', 'wide'", "are not two vectors"),
    ):
        with pytest.raises(psycopg.errors.WrongObjectType, match=said):
            plain.execute(f"SELECT idivm.apply_outer({call})")


def test_what_has_no_factors_is_refused(orc):
    orc.execute(TABLES)
    with pytest.raises(UnsupportedError, match="meet no other table"):
        orc.create_view("made", product(), strategy="viewtree", factorizable="a1")
    with pytest.raises(UsageError, match="factorizable names 'b2'"):
        orc.create_view("made", product(), strategy="viewtree", factorizable="b2")

"""Covariances and models over joins, maintained, against numpy."""

from __future__ import annotations

import random

import numpy as np
import psycopg
import pytest
from conftest import add_module

from orchestrator.runtime.migrate import take_module

pytestmark = pytest.mark.integration

TABLES = """
CREATE TABLE shops (shop int PRIMARY KEY, size float8 NOT NULL, age int);
CREATE TABLE goods (item int PRIMARY KEY, price numeric(8, 2), weight float8);
CREATE TABLE sold (shop int, item int, day int, units int, PRIMARY KEY (shop, item, day));
INSERT INTO shops SELECT g, 10 + g * 3.5, CASE WHEN g <> 3 THEN 40 - g * g % 11 END FROM generate_series(1, 6) AS g;
INSERT INTO goods SELECT g, 5 + g * g * 0.25, 1 + sin(g) FROM generate_series(1, 9) AS g;
INSERT INTO sold SELECT DISTINCT ON (s, i, d) s, i, d, (7 * g) % 23
FROM generate_series(1, 120) AS g, LATERAL (VALUES (1 + g % 6, 1 + g * 5 % 9, g * 7 % 4)) AS v (s, i, d)
"""

JOIN = "sold JOIN shops USING (shop) JOIN goods USING (item)"
FEATURES = ("size", "price", "units", "age", "weight")
COVAR = f"idivm.covar({', '.join(FEATURES)})"

CHANGES = (
    "UPDATE sold SET units = units + 1 WHERE shop = 2",
    "UPDATE goods SET price = price * 1.5 WHERE item < 4; UPDATE shops SET age = NULL WHERE shop = 1",
    "DELETE FROM sold WHERE item = 5; INSERT INTO sold VALUES (3, 5, 99, 7), (1, 1, 99, 1)",
    "UPDATE shops SET age = 30 WHERE age IS NULL; UPDATE goods SET weight = NULL WHERE item = 2",
    "UPDATE goods SET weight = 'NaN' WHERE item = 3",
    "UPDATE goods SET weight = 'Infinity' WHERE item = 3",
    "UPDATE goods SET weight = 2.5 WHERE item = 3; DELETE FROM shops WHERE shop = 6",
    "DELETE FROM sold",
    "INSERT INTO sold SELECT s, i, 1, s * i FROM generate_series(1, 5) AS s, generate_series(1, 9) AS i",
)


def rows(orc):
    [result] = orc.execute(f"SELECT {', '.join(f'{f}::float8' for f in FEATURES)} FROM {JOIN}")
    kept = [row for row in result.rows if None not in row]
    return np.array(kept, dtype=float).reshape(len(kept), len(FEATURES))


def value(orc, query):
    [result] = orc.execute(query)
    return result.rows[0][0]


def test_a_covariance_follows_every_change(orc):
    orc.execute(TABLES)
    whole = orc.create_view("whole", f"SELECT {COVAR} AS c FROM {JOIN}", strategy="viewtree")
    assert whole.strategy == "viewtree"
    orc.create_view(
        "grouped",
        f"SELECT shop, {COVAR} AS c, count(*) AS n FROM {JOIN} WHERE price > 6 GROUP BY shop",
        strategy="viewtree",
        maintain="eager",
    )
    for change in CHANGES:
        orc.execute(change)
        different = {r.view: (r.missing_rows, r.surplus_rows) for r in orc.check() if not r.equal}
        assert different == {}, change


def test_several_covariances_of_rows_that_an_index_finds(orc):
    orc.execute(TABLES)
    orc.execute(
        "CREATE TABLE visits (shop int, item int, minutes int NOT NULL, PRIMARY KEY (shop, item));"
        "CREATE INDEX ON visits (item); CREATE INDEX ON goods (weight);"
        "INSERT INTO visits SELECT s, i, s * i % 7 FROM generate_series(1, 6) AS s, generate_series(1, 9) AS i"
    )
    join = "visits JOIN shops USING (shop) JOIN goods USING (item)"
    view = orc.create_view(
        "v",
        f"SELECT idivm.covar(price, minutes, size) AS c, idivm.covar(minutes, age, minutes * 2) AS d,"
        f" idivm.covar(weight) AS e, count(*) AS n FROM {join} WHERE price > 6 AND minutes <> 3",
        strategy="viewtree",
    )
    assert view.strategy == "viewtree"
    assert not [
        line for line in orc.explain("v").plan.splitlines() if "visits[" in line and "*" in line
    ]
    for change in (
        "UPDATE visits SET minutes = minutes + 2 WHERE shop = 3",
        "UPDATE visits SET minutes = 9 WHERE item < 3; UPDATE goods SET price = price + item",
        "DELETE FROM visits WHERE item = 4; UPDATE shops SET age = age + 1; DELETE FROM goods WHERE item = 5",
        "INSERT INTO goods VALUES (5, 9.75, NULL), (50, 8, 1); INSERT INTO visits VALUES (2, 50, 3), (1, 4, 4)",
        "UPDATE shops SET size = 'NaN' WHERE shop = 1",
        "UPDATE visits SET shop = shop + 1 WHERE shop = 6; UPDATE shops SET size = 3 WHERE shop = 1",
        "DELETE FROM shops",
    ):
        orc.execute(change)
        orc.refresh()
        different = {r.view: (r.missing_rows, r.surplus_rows) for r in orc.check() if not r.equal}
        assert different == {}, change


def test_it_is_what_numpy_says(orc):
    orc.execute(TABLES)
    orc.create_view("v", f"SELECT {COVAR} AS c FROM {JOIN}", strategy="viewtree")
    orc.execute("UPDATE sold SET units = units + 3 WHERE day < 2; DELETE FROM sold WHERE item = 2")
    orc.refresh()
    data = rows(orc)
    n, m = data.shape
    assert value(orc, "SELECT (c).n FROM v") == n
    assert np.allclose(value(orc, "SELECT (c).s FROM v"), data.sum(axis=0), rtol=1e-9)
    products = (data.T @ data)[np.triu_indices(m)]
    assert np.allclose(value(orc, "SELECT (c).q FROM v"), products, rtol=1e-9)
    matrix = value(orc, "SELECT idivm.covariance_matrix(c) FROM v")
    assert np.allclose(matrix, np.cov(data.T), rtol=1e-8)
    matrix = value(orc, "SELECT idivm.correlation(c) FROM v")
    assert np.allclose(matrix, np.corrcoef(data.T), rtol=1e-8)


def test_a_model_is_a_view_and_follows_the_data(orc):
    orc.execute(TABLES)
    orc.create_view(
        "model", f"SELECT idivm.linreg({COVAR}, 3) AS weights FROM {JOIN}", strategy="viewtree"
    )
    for change in ("UPDATE goods SET price = price + item", "DELETE FROM sold WHERE shop = 4"):
        orc.execute(change)
        orc.refresh()
        data = rows(orc)
        design = np.column_stack([np.ones(len(data)), np.delete(data, 2, axis=1)])
        wanted, *_ = np.linalg.lstsq(design, data[:, 2], rcond=None)
        weights = value(orc, "SELECT weights FROM model")
        assert np.allclose(weights, wanted, rtol=1e-6, atol=1e-9)
        predicted = value(orc, "SELECT idivm.predict(weights, 20, 8.5, 35, 1.25) FROM model")
        assert np.isclose(predicted, wanted @ [1, 20, 8.5, 35, 1.25], rtol=1e-6)


def test_descent_from_the_last_model_comes_to_the_same(orc):
    orc.execute(TABLES)
    orc.create_view("v", f"SELECT {COVAR} AS c FROM {JOIN}", strategy="viewtree")
    query = "SELECT t.weights, t.iterations, idivm.linreg(c, 3, {0}) FROM v, idivm.train(c, %s, 3, {0}) AS t"
    model = None
    for change in CHANGES[:4]:
        orc.execute(change)
        orc.refresh()
        for ridge in ("0", "0.5"):
            run = orc.connection.execute
            weights, steps, wanted = run(query.format(ridge), [model]).fetchone()
            assert np.allclose(weights, wanted, rtol=1e-6, atol=1e-9)
            _, resumed, _ = run(query.format(ridge), [weights]).fetchone()
            assert resumed == 0 < steps
        model = weights
    assert value(orc, "SELECT (idivm.train(idivm.covar(size))).weights FROM shops") == [
        value(orc, "SELECT avg(size) FROM shops")
    ]


def test_a_feature_that_others_determine_gets_no_weight(orc):
    orc.execute("CREATE TABLE p (a float8, b float8, k float8, y float8)")
    orc.execute("INSERT INTO p SELECT g, 2 * g + 1, 5, 3 * g - 2 FROM generate_series(1, 20) AS g")
    weights = value(orc, "SELECT idivm.linreg(idivm.covar(a, b, k, y)) FROM p")
    assert weights[3] == 0
    assert np.isclose(weights[0] + weights[1] * 7 + weights[2] * 15, 19)
    assert value(orc, "SELECT idivm.linreg(idivm.covar(a, y)) FROM p WHERE a < 0") is None


def test_a_hundred_thousand_changes_do_not_drift(orc):
    orc.execute("CREATE TABLE p (k int PRIMARY KEY, g int NOT NULL, x float8 NOT NULL)")
    orc.execute("CREATE TABLE q (g int PRIMARY KEY, y float8 NOT NULL)")
    orc.execute("INSERT INTO q SELECT g, sin(g) * 50 FROM generate_series(0, 99) AS g")
    orc.execute("INSERT INTO p SELECT k, k % 100, cos(k) * 20 FROM generate_series(1, 2000) AS k")
    query = "SELECT idivm.covar(x, y) AS c FROM p JOIN q USING (g)"
    orc.create_view("v", query, strategy="viewtree")
    for step in range(25):
        orc.execute(
            f"UPDATE p SET x = x * 1.1 - {step} / 7.0, g = (g + k) % 100 WHERE k % 2 = {step % 2};"
            f"DELETE FROM p WHERE k % 2 = {step % 2} AND k % 3 > 0; UPDATE q SET y = y / 1.1 + g;"
            f"INSERT INTO p SELECT k, k % 97, tan(k + {step}) FROM generate_series(1, 2000) AS k"
            " ON CONFLICT (k) DO UPDATE SET x = excluded.x"
        )
        orc.refresh()
    [result] = orc.execute("SELECT x, y FROM p JOIN q USING (g)")
    data = np.array(result.rows)
    assert np.allclose(value(orc, "SELECT (c).s FROM v"), data.sum(axis=0), rtol=1e-9)
    products = (data.T @ data)[np.triu_indices(2)]
    assert np.allclose(value(orc, "SELECT (c).q FROM v"), products, rtol=1e-9)


def test_triples_in_c_are_those_in_plpgsql(dsn, module):
    rng = random.Random(3)

    def triple(m):
        return [rng.uniform(-9, 9) for _ in range((m + 1) * (m + 2) // 2)]

    cases = [
        ("SELECT idivm.triple_step(%s::float8[], %s, %s)", (start, triple(m), triple(n)))
        for m in range(4)
        for n in range(4)
        for start in (None, triple(m + n))
    ]
    rows = [[1.5, -2.0, 3e7], [None, 1.0, 1.0], [float("nan"), 1.0, 0.0], [0.0, float("inf"), 2.0]]
    cases += [
        ("SELECT idivm.triple_lift_step(%s::float8[], %s, %s::float8[])", (start, times, row))
        for row in rows
        for times in (-3, 0, 1)
        for start in (None, triple(3))
    ]
    places = "SELECT idivm.triple_products(%s::float8[], %s)"
    cases += [(places, (triple(4), chosen)) for chosen in ([1, 2, 3, 4], [3, 1], [4, 2, 1], [2])]
    summed = (
        "SELECT idivm.triple_sum(a, b), idivm.triple_lift(k, ARRAY[k, k / 3.0]) FROM (SELECT k,"
        " ARRAY[k, 2.5, k * k]::float8[] AS a, ARRAY[1, k, 0.1]::float8[] AS b"
        " FROM generate_series(-4, 9) AS k) AS r"
    )
    cases.append((summed, ()))
    equations = (
        [2.0, 0.5, 3.0, 0.5, 1.0, -1.0],
        [1.0, 1.0, 2.0, 1.0, 1.0, 2.0],
        [float("nan")] * 6,
    )
    for a in equations:
        cases += [("SELECT idivm.solved(%s::float8[], %s)", (a, ridge)) for ridge in (0, 0.25)]
        cases += [
            (
                "SELECT idivm.descended(%s::float8[], %s::float8[], %s, 1e-9, %s)",
                (a, start, r, steps),
            )
            for start in ([0.0, 0.0], [1.5, -1.0])
            for r in (0, 0.1)
            for steps in (3, 500)
        ]
    wrong = (
        "SELECT idivm.triple_step(NULL, ARRAY[1, 2]::float8[], ARRAY[1]::float8[])",
        "SELECT idivm.triple_step(ARRAY[1]::float8[], ARRAY[1, 2, 3]::float8[], ARRAY[1]::float8[])",
        "SELECT idivm.triple_step(NULL, ARRAY[1e300]::float8[], ARRAY[1e300]::float8[])",
    )

    def results():
        with psycopg.connect(dsn, autocommit=True) as connection:
            language = "SELECT lanname FROM pg_proc p JOIN pg_language l ON l.oid = prolang WHERE proname = %s"
            [[form]] = connection.execute(language, ["triple_step"]).fetchall()
            for query in wrong:
                with pytest.raises(psycopg.DataError):
                    connection.execute(query)
            return form, [connection.execute(query, given).fetchone() for query, given in cases]

    form, plain = results()
    assert form == "plpgsql"
    add_module(dsn, module)
    form, fast = results()
    assert form == "c"
    assert repr(fast) == repr(plain)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET idivm.accelerate = off")
        take_module(connection)
    assert results()[0] == "plpgsql"


def test_many_changes_do_not_drift(orc):
    orc.execute(TABLES)
    orc.create_view("v", f"SELECT {COVAR} AS c FROM {JOIN}", strategy="viewtree")
    rng = random.Random(7)
    for _ in range(20):
        orc.execute(
            f"UPDATE sold SET units = (units * {rng.randint(2, 9)} + item) % 97 WHERE day = {rng.randint(0, 3)};"
            f"UPDATE goods SET weight = weight * {rng.uniform(0.5, 1.6)} + 0.1;"
            f"DELETE FROM sold WHERE item = {rng.randint(1, 9)};"
            f"INSERT INTO sold SELECT s, {rng.randint(1, 9)}, {rng.randint(4, 10**6)}, s FROM generate_series(1, 6) AS s"
        )
        orc.refresh()
    data = rows(orc)
    products = (data.T @ data)[np.triu_indices(len(FEATURES))]
    assert np.allclose(value(orc, "SELECT (c).q FROM v"), products, rtol=1e-9)

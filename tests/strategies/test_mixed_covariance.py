"""Covariances of numbers and categories over joins, maintained, against numpy."""

from __future__ import annotations

import itertools

import numpy as np
import psycopg
import pytest
from harness import find_module

import orchestrator
from orchestrator.errors import IdivmError
from orchestrator.runtime.migrate import take_module

pytestmark = pytest.mark.integration

TABLES = """
CREATE TYPE colour AS ENUM ('red', 'green', 'blue');
CREATE TABLE shops (shop int PRIMARY KEY, town text, size float8 NOT NULL, open boolean);
CREATE TABLE goods (item int PRIMARY KEY, price numeric(8, 2), colour colour NOT NULL, kind varchar(9) NOT NULL);
CREATE TABLE sold (shop int, item int, day int, units int, PRIMARY KEY (shop, item, day));
INSERT INTO shops SELECT g, 'town ' || g % 3, 10 + sin(g) * 3.5, g % 4 > 0 FROM generate_series(1, 7) AS g;
INSERT INTO goods SELECT g, 5 + g * g * 0.25, (enum_range(NULL::colour))[1 + g % 3], CASE WHEN g > 5 THEN 'cup' ELSE '' END
FROM generate_series(1, 9) AS g;
INSERT INTO sold SELECT DISTINCT ON (s, i, d) s, i, d, (7 * g) % 23
FROM generate_series(1, 150) AS g, LATERAL (VALUES (1 + g % 7, 1 + g * 5 % 9, g * 7 % 4)) AS v (s, i, d);
"""

JOIN = "sold JOIN shops USING (shop) JOIN goods USING (item)"
CATEGORICAL = (True, True, False, True, False, False, True)
COVAR = "idivm.covar(town, open, size, idivm.categorical(colour), units, price, kind)"

CHANGES = (
    "UPDATE sold SET units = units + 1 WHERE shop = 2; UPDATE shops SET town = 'town 9' WHERE shop = 3",
    "UPDATE goods SET price = price * 1.5, colour = 'blue' WHERE item < 4; UPDATE shops SET open = NULL WHERE shop = 1",
    "DELETE FROM sold WHERE item = 5; INSERT INTO sold VALUES (3, 5, 99, 7), (1, 1, 99, 1), (2, 3, 99, NULL)",
    "UPDATE shops SET size = size / 3 WHERE shop > 2; DELETE FROM shops WHERE shop = 6; DELETE FROM goods WHERE item = 9",
    "UPDATE shops SET open = NOT coalesce(open, false); UPDATE goods SET kind = '\\\"1''2, ' WHERE item = 7",
)


def value(orc, query):
    [result] = orc.execute(query)
    return result.rows[0][0]


def follow(orc, change):
    orc.execute(change)
    orc.refresh()
    different = {r.view: (r.missing_rows, r.surplus_rows) for r in orc.check() if not r.equal}
    assert different == {}, change


def encoded(orc):
    """The rows, and the columns of their one-hot encoding by argument and category."""
    [result] = orc.execute(
        f"SELECT town, open::text, size, colour::text, units::float8, price::float8, kind FROM {JOIN}"
    )
    rows = [row for row in result.rows if None not in row]
    columns = {}
    for place, categorical in enumerate(CATEGORICAL, 1):
        values = [row[place - 1] for row in rows]
        for category in sorted(set(values)) if categorical else [None]:
            columns[place, category] = np.array(
                [v == category if categorical else v for v in values], dtype=float
            )
    return rows, columns


def as_numpy_says(orc):
    """Compares the view with numpy's sums over the rows; gives these, and their one-hot columns."""
    rows, columns = encoded(orc)
    data = np.column_stack(list(columns.values()))
    [names] = orc.execute("SELECT place, category FROM v, idivm.one_hot_columns(c)")
    assert names.rows == list(columns)
    assert value(orc, "SELECT (c).n FROM v") == len(rows)
    assert np.allclose(value(orc, "SELECT (idivm.one_hot(c)).s FROM v"), data.sum(axis=0), 1e-9)
    products = (data.T @ data)[np.triu_indices(data.shape[1])]
    assert np.allclose(value(orc, "SELECT (idivm.one_hot(c)).q FROM v"), products, 1e-9, 1e-9)
    correlation = value(orc, "SELECT idivm.correlation(c) FROM v")
    assert np.allclose(correlation, np.corrcoef(data.T), 1e-8, 1e-9)
    return rows, columns


def test_it_is_what_numpy_says_of_one_hot_columns(orc):
    orc.execute(TABLES)
    view = orc.create_view(
        "v",
        f"SELECT {COVAR} AS c, idivm.linreg({COVAR}, 5) AS m FROM {JOIN}",
        strategy="viewtree",
    )
    assert view.strategy == "viewtree"
    for change in CHANGES:
        follow(orc, change)
    rows, columns = as_numpy_says(orc)

    # One category of each argument follows from the others, and gets no weight: what is left is determined.
    model = value(orc, "SELECT m FROM v")
    weights = {
        (place, category): weight
        for place, held in zip((1, 2, 3, 4, 6, 7), model[1:], strict=True)
        for category, weight in (held.items() if isinstance(held, dict) else [(None, held)])
    }
    assert weights.keys() == columns.keys() - {(5, None)}
    used = [column for column in weights if weights[column] != 0]
    assert len(used) == len(weights) - sum(CATEGORICAL)
    design = np.column_stack([np.ones(len(rows)), *(columns[column] for column in used)])
    wanted, *_ = np.linalg.lstsq(design, columns[5, None], rcond=None)
    assert np.allclose([model[0], *(weights[column] for column in used)], wanted, 1e-6, 1e-9)
    predict = (
        "SELECT idivm.predict(m, town, open, size, idivm.categorical(colour), price, kind) AS p"
        f" FROM v, {JOIN} WHERE units IS NOT NULL AND open IS NOT NULL ORDER BY 1"
    )
    [predicted] = orc.execute(predict)
    assert np.allclose([p for (p,) in predicted.rows], sorted(design @ wanted), 1e-6)
    assert value(orc, "SELECT idivm.predict('[1, {\"a\": 2}]', idivm.categorical('b'))") is None


def test_mutual_information_and_the_tree_of_chow_and_liu(orc):
    orc.execute(TABLES)
    orc.create_view(
        "v",
        f"SELECT {COVAR} AS c, idivm.chow_liu({COVAR}) AS tree FROM {JOIN}",
        strategy="viewtree",
    )
    for change in CHANGES:
        follow(orc, change)
        _, columns = encoded(orc)
        information = value(orc, "SELECT idivm.mutual_information(c) FROM v")
        places = [place for place, categorical in enumerate(CATEGORICAL, 1) if categorical]
        for i, j in itertools.product(range(1, 8), repeat=2):
            if i not in places or j not in places:
                assert information[i - 1][j - 1] is None
                continue
            wanted = 0.0
            for category, other in itertools.product(
                (c for p, c in columns if p == i), (c for p, c in columns if p == j)
            ):
                p, q = columns[i, category].mean(), columns[j, other].mean()
                both = (columns[i, category] * columns[j, other]).mean()
                wanted += both * np.log(both / p / q) if both else 0.0
            assert np.isclose(information[i - 1][j - 1], wanted, 1e-9, 1e-12)
        tree = value(orc, "SELECT tree FROM v")
        weight = sum(information[i - 1][j - 1] for i, j in tree)
        pairs = list(itertools.combinations(places, 2))
        # As many edges as that reach all of them are a tree.
        best = max(
            sum(information[i - 1][j - 1] for i, j in edges)
            for edges in itertools.combinations(pairs, len(places) - 1)
            if {place for edge in edges for place in edge} == set(places)
        )
        assert np.isclose(weight, best)
        assert {place for edge in tree for place in edge} == set(places)


@pytest.mark.slow
def test_groups_filters_and_what_is_not_finite(orc):
    orc.execute(TABLES)
    for name, selected, tail, options in (
        ("grouped", f"kind, {COVAR} AS c, count(*) AS n", "WHERE price > 6 GROUP BY kind", {}),
        (
            "filtered",
            "shop, idivm.covar(size, town) FILTER (WHERE units > 5 AND open) AS c, idivm.covar(units, price)"
            " FILTER (WHERE kind = 'cup') AS d",
            "GROUP BY shop",
            {"maintain": "eager"},
        ),
        ("models", f"day, idivm.linreg({COVAR}, 3, 0.1) AS m", "GROUP BY day", {}),
        (
            "kept",
            "town, day, idivm.covar(kind, units, open, price) AS c",
            "GROUP BY town, day",
            {"representation": "factorized"},
        ),
    ):
        query = f"SELECT {selected} FROM {JOIN} {tail}"
        assert orc.create_view(name, query, strategy="viewtree", **options).strategy == "viewtree"
    for change in (
        *CHANGES,
        "UPDATE shops SET size = 'NaN' WHERE shop = 2; UPDATE shops SET size = '-Infinity' WHERE shop = 3",
        "UPDATE shops SET size = 1e100 WHERE shop IN (2, 3)",
        "UPDATE shops SET size = 0 WHERE shop IN (2, 3); UPDATE goods SET price = 0",
        "DELETE FROM sold",
        "INSERT INTO sold SELECT s, i, 1, s * i FROM generate_series(1, 5) AS s, generate_series(1, 9) AS i",
    ):
        follow(orc, change)


def test_arguments_are_told_apart_by_their_types(orc):
    orc.execute(TABLES)
    categorical = "(idivm.covar({})).categorical"
    for arguments, wanted in (
        ("units, price, shop, day::float4, kind", [False, False, False, False, True]),
        (
            "idivm.categorical(day), gen_random_uuid(), open, '2026-01-02'::date - current_date",
            [True, True, True, False],
        ),
        ("idivm.categorical('2026-01-02'::date)", [True]),
    ):
        assert value(orc, f"SELECT {categorical.format(arguments)} FROM {JOIN}") == wanted
    assert (
        value(orc, f"SELECT pg_typeof(idivm.covar(units, price))::text FROM {JOIN}")
        == "idivm.covariance"
    )
    with pytest.raises(IdivmError, match="there is no number 2 to predict"):
        orc.execute(f"SELECT idivm.linreg(idivm.covar(units, kind)) FROM {JOIN}")


def test_arguments_may_have_the_type_of_a_domain(orc):
    orc.execute(
        "CREATE DOMAIN word AS text CHECK (VALUE <> ''); CREATE DOMAIN code AS varchar(9);"
        " CREATE DOMAIN amount AS numeric; CREATE DOMAIN number AS int; CREATE DOMAIN ratio AS float8;"
        "CREATE TABLE d (id int PRIMARY KEY, w word, c code, a amount, n number, r ratio);"
        "INSERT INTO d SELECT i, i % 3, i % 2, i, i, i FROM generate_series(1, 9) i"
    )
    orc.create_view(
        "v",
        "SELECT idivm.covar(w, c, a, n, r) AS c, idivm.covar(idivm.categorical(w), idivm.categorical(c)) AS k FROM d",
    )
    assert value(orc, "SELECT (c).categorical FROM v") == [True, True, False, False, False]
    orc.execute("UPDATE d SET w = 'x', a = a + 1 WHERE id < 4; DELETE FROM d WHERE id = 9")
    orc.refresh()
    assert all(report.equal for report in orc.check())


def test_both_forms_are_the_same(dsn, module):
    features = (
        "ARRAY[1.50, 2, 'a''b'::text]::idivm.feature[]",
        "ARRAY[0, 1e30, 0.00]::idivm.feature[]",
        "ARRAY[ROW(NULL, 'x'), ROW(NULL, ''), ROW(3, NULL)]::idivm.feature[]",
        "ARRAY[ROW(NULL, 'x'), ROW('NaN', NULL), ROW(9223372036854775807, NULL)]::idivm.feature[]",
        "ARRAY[ROW(NULL, 'x'), ROW(NULL, 'é'), ROW(9223372036854775807, NULL)]::idivm.feature[]",
        "ARRAY[1, NULL, 2]::idivm.feature[]",
    )
    rows = ", ".join(f"({n}, {x})" for n, x in zip((1, -2, 3, 1, 2, 5), features, strict=True))
    values = f"(VALUES {rows}) AS r (n, x)"
    cases = (
        f"SELECT idivm.mixed_product(x, ARRAY[1, 4, 6])::text FROM {values}",
        f"SELECT idivm.mixed_lift(n, x, ARRAY[2, 3, 5])::text FROM {values} GROUP BY n % 2 ORDER BY n % 2",
        f"SELECT idivm.mixed_lift(n, x, ARRAY[2, 3, 5])::text FROM {values}, generate_series(1, 150)",
        "WITH e AS MATERIALIZED (SELECT n, idivm.mixed_product(x, ARRAY[1, 4, 6]) AS a,"
        f" idivm.mixed_product(x, ARRAY[2, 3, 9]) AS b FROM {values})"
        " SELECT idivm.mixed_times(l.a, r.b)::text, idivm.mixed_plus(l.a, r.a)::text,"
        " idivm.mixed_plus(l.a, idivm.mixed_multiple(r.a, -1))::text, idivm.mixed_multiple(l.a, r.n * 3)::text,"
        " idivm.mixed_total(ARRAY[l.a, r.b, l.b])::text,"
        " idivm.mixed_shown(l.n, idivm.mixed_multiple(r.a, l.n), 6)::text,"
        " idivm.mixed_sum(l.a, r.b, l.n * r.n) OVER (ORDER BY l.n, r.n)::text FROM e AS l, e AS r ORDER BY l.n, r.n",
        "SELECT idivm.mixed_sum(idivm.mixed_product(x, ARRAY[1, 4, 6]), idivm.mixed_product(x, ARRAY[2, 3, 9]), n)::text"
        f" FROM {values}, generate_series(1, 100)",
        "SELECT idivm.mixed_total('{}')::text, idivm.mixed_total(NULL)::text, idivm.mixed_plus(NULL, NULL)::text,"
        " idivm.mixed_sum(NULL, NULL, 1)::text, idivm.mixed_shown(0, NULL, 2)::text, idivm.mixed_shown(1, NULL, 2)::text",
    )

    def follow_in(form):
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(
                "SELECT set_config('idivm.accelerate', %s, false)", ["on" if form == "c" else "off"]
            )
            take_module(connection)
        with orchestrator.connect(dsn) as orc:
            language = "SELECT lanname FROM pg_proc AS p JOIN pg_language AS l ON l.oid = prolang WHERE proname = 'mixed_total'"
            assert value(orc, language) == form
            if not orc.views():
                orc.execute(TABLES)
                orc.create_view("v", f"SELECT {COVAR} AS c FROM {JOIN}", strategy="viewtree")
            assert all(report.equal for report in orc.check())
            for change in ("DELETE FROM sold WHERE day = 99", *CHANGES):
                follow(orc, change)
            as_numpy_says(orc)
            return [orc.execute(case)[0].rows for case in cases]

    find_module(dsn, module)
    plain = follow_in("plpgsql")
    assert follow_in("c") == plain
    assert follow_in("plpgsql") == plain

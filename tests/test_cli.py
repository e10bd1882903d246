"""The command line: what it prints for people and programs, and how it exits."""

import json

import pytest

from orchestrator.cli.main import main


@pytest.fixture
def idivm(dsn, capsys):
    """Runs the command line on a fresh database; gives status, output and errors."""

    def run(verb, *arguments):
        try:
            status = main([verb, "--dsn", dsn, *arguments])
        except SystemExit as stop:
            status = stop.code
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


@pytest.fixture
def shop(idivm):
    status, _, errors = idivm(
        "sql",
        "-c",
        "CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 10), (2, 20);"
        "CREATE VIEW total AS SELECT sum(n) AS s FROM t; UPDATE t SET n = 11 WHERE id = 1",
    )
    assert (status, errors) == (0, "")
    return idivm


def test_sql_prints_rows_and_messages(shop):
    status, out, _ = shop(
        "sql", "-c", "SELECT id, n AS number FROM t ORDER BY id; CREATE VIEW w AS SELECT n FROM t"
    )
    assert status == 0
    assert "number" in out
    assert "(2 rows)" in out
    assert "CREATE VIEW w: deferred, strategy id" in out


def test_sql_reads_a_file(shop, tmp_path):
    script = tmp_path / "script.sql"
    script.write_text("SELECT 'from a file' AS x;")
    assert "from a file" in shop("sql", str(script))[1]
    status, _, errors = shop("sql", str(tmp_path / "missing.sql"))
    assert status == 2
    assert "No such file" in errors


def test_what_ran_before_an_error_is_printed(shop):
    status, out, errors = shop("sql", "-c", "SELECT 42 AS answer; SELECT broken")
    assert status == 2
    assert "42" in out
    assert errors.startswith("idivm: ")
    assert len(errors.strip().splitlines()) == 1


def test_refresh_reports_each_view(shop):
    assert json.loads(shop("refresh", "--json")[1]) == [
        {
            "view": "total",
            "changed": 1,
            "seconds": pytest.approx(0, abs=60),
            "error": None,
            "recomputed": False,
            "waits_for": None,
        }
    ]
    assert "total" in shop("refresh", "total")[1]


def test_list_and_status(shop):
    (listed,) = json.loads(shop("list", "--json")[1])
    assert (listed["name"], listed["strategy"], listed["pending"], listed["sources"]) == (
        "total",
        "id",
        1,
        ["t"],
    )
    assert "stale by 1 change" in shop("status", "total")[1]
    shop("refresh")
    assert "up to date" in shop("status")[1]
    assert shop("status", "nowhere")[0] == 2


def test_list_of_nothing_says_how_to_begin(idivm):
    assert "CREATE VIEW" in idivm("list")[1]


def test_explain(shop):
    status, out, _ = shop("explain", "total")
    assert status == 0
    assert "captured:" in out
    assert "strategy id" in out
    assert "read Δ⁻" in shop("explain", "total", "--script")[1]
    assert "idivm.recompute_state(" in shop("explain", "total", "--sql")[1]
    assert "+ id: a change costs" in shop("explain", "total", "--why")[1]
    explained = json.loads(shop("explain", "total", "--json")[1])
    assert explained["strategy"] == "id"
    assert explained["plan"]["program"]["sources"][0]["columns"][0]["name"] == "id"


def test_a_query_is_explained_before_a_view_of_it_exists(shop):
    query = "SELECT id, max(n) AS most FROM t GROUP BY id"
    status, out, errors = shop("explain", "--query", query, "--why", "--plan", "--script")
    assert (status, errors) == (0, "")
    assert out.startswith("the query: strategy ")
    assert "t (id (key), n)" in out
    assert json.loads(shop("explain", "--json", "--query", f"{query};")[1])["view"] == "the query"
    assert "recomputes it: now()" in shop("explain", "--query", "SELECT id, now() FROM t")[1]
    assert "(line 1, column 20" in shop("explain", "--query", "SELECT 1 AS x FROM nowhere")[2]
    assert shop("explain")[0] == shop("explain", "total", "--query", query)[0] == 2
    assert len(json.loads(shop("list", "--json")[1])) == 1


def test_a_command_without_a_database_does_not_start_a_server(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("IDIVM_HOME", str(tmp_path / "home"))
    assert main(["list"]) == 2
    assert "idivm up starts it" in capsys.readouterr().err
    assert not (tmp_path / "home").exists()


def test_status_and_explain_name_an_index_whose_lack_is_dear(idivm):
    idivm(
        "sql",
        "-c",
        "CREATE TABLE big (id int PRIMARY KEY, g int, v int);"
        "INSERT INTO big SELECT i, i % 2000, i FROM generate_series(1, 40000) AS i; ANALYZE big",
    )
    _, _, errors = idivm(
        "sql", "-c", "CREATE VIEW most AS SELECT g, max(v) AS most FROM big GROUP BY g"
    )
    advice = 'CREATE INDEX CONCURRENTLY ON "public"."big" ("g")'
    assert advice in errors
    assert f"missing index:   {advice}; -- a change costs" in idivm("status", "most")[1]
    assert f"{advice}; -- a change costs" in idivm("explain", "most")[1]
    [index] = json.loads(idivm("status", "most", "--json")[1])[0]["missing_indexes"]
    assert (index["statement"], index["factor"] > 10) == (advice, True)
    assert json.loads(idivm("explain", "most", "--json")[1])["missing_indexes"] == [index]


def test_check_finds_a_difference(shop):
    assert shop("check")[0] == 0
    shop("sql", "-c", "UPDATE idivm_state.total_1 SET s = 99")
    status, out, _ = shop("check", "total")
    assert status == 1
    assert "DIFFERENT" in out
    assert "99" in out


def test_enumerate_prints_rows_as_they_are_found(shop):
    view = "CREATE VIEW n WITH (strategy = {}) AS SELECT p.n, q.id, count(*) AS m FROM t p JOIN t q USING (n) GROUP BY p.n, q.id"
    for strategy in ("id", "skew"):
        shop("sql", "-c", view.format(strategy))
        assert sorted(shop("enumerate", "n")[1].splitlines()) == ["11\t1\t1", "20\t2\t1"]
        assert shop("enumerate", "n", "--with", "n=20", "--json")[1] == "[20, 2, 1]\n"
        assert shop("enumerate", "n", "--limit", "1")[1].count("\n") == 1
        assert "has no value" in shop("enumerate", "n", "--with", "n")[2]
        assert shop("enumerate", "n", "--with", "unknown=1")[0] == 2
        shop("drop", "n")


def test_drop(shop):
    assert shop("drop", "total")[0] == 0
    assert shop("drop", "total")[0] == 2
    assert shop("drop", "total", "--if-exists")[0] == 0


def test_doctor_finds_a_disabled_trigger(shop):
    status, out, _ = shop("doctor")
    assert status == 0, out
    shop("sql", "-c", "ALTER TABLE t DISABLE TRIGGER USER")
    status, out, _ = shop("doctor")
    assert status == 1
    assert "fixed capture: triggers of t are missing or disabled" in out
    status, out, _ = shop("doctor", "--quick", "--json")
    assert status == 0, out
    assert all(finding["fine"] for finding in json.loads(out))


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], [], ["enumerate"], ["bench"], ["bench", "nonsense"], ["sql", "--nonsense"]],
)
def test_bad_usage_is_one_line_and_status_two(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_errors_are_json_where_json_was_asked_for(shop):
    status, out, errors = shop("explain", "nowhere", "--json")
    assert status == 2
    assert "nowhere" in json.loads(out)["error"]
    assert errors == ""

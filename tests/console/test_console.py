"""The console: what its pages show, and who may open them."""

import asyncio
import os
import re
import shutil
import subprocess
import threading

import pytest
from starlette.testclient import TestClient
from stepping import until
from textual.widgets import DataTable
from watching import watching

import orchestrator
from orchestrator.console.app import application
from orchestrator.console.guard import HEADERS
from orchestrator.console.top import Top
from orchestrator.errors import UsageError
from orchestrator.runtime.monitoring.address import require

URL = "http://localhost:9188"
EVIL = '<script>alert("x")</script>'


@pytest.fixture
def shop(orc):
    quoted = EVIL.replace('"', '""')
    orc.execute(
        f"""
        CREATE TABLE t (id int PRIMARY KEY, n int); CREATE TABLE e (a int, b int, PRIMARY KEY (a, b));
        CREATE VIEW "{quoted}" AS SELECT n % 2 AS g, 100 / n AS q FROM t WHERE '{EVIL}' <> '';
        CREATE VIEW above AS SELECT sum(q) FROM "{quoted}";
        CREATE VIEW triangles WITH (strategy = skew) AS
            SELECT count(*) FROM e r, e s, e t WHERE r.b = s.a AND s.b = t.a AND t.b = r.a
        """
    )
    return orc


@pytest.fixture
def source(dsn):
    with watching(dsn) as pages:
        yield pages


@pytest.fixture
def visitor(source):
    """Opens the console as somebody with the token, or without it."""

    def visit(*, token="secret", allow_refresh=False):
        app = application(source, "secret", "127.0.0.1", allow_refresh=allow_refresh)
        client = TestClient(app, base_url=URL, raise_server_exceptions=False)
        if token is not None:
            answer = client.get(f"/?token={token}&x=1", follow_redirects=False)
            if answer.status_code == 303:
                assert answer.headers["location"] == "/?x=1", "the token leaves the address"
        return client

    return visit


def test_only_the_token_and_the_own_site_open_the_console(shop, visitor):
    assert visitor(token=None).get("/").status_code == 403
    assert visitor(token="wrong").get("/static/console.js").status_code == 403
    client = visitor(allow_refresh=True)
    answer = client.get("/")
    assert answer.status_code == 200
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert HEADERS["Referrer-Policy"] == "same-origin", (
        "else browsers send forms with the origin null"
    )
    assert "'unsafe" not in HEADERS["Content-Security-Policy"]
    for host, status in {
        "evil.example": 421,
        "localhost.evil.example:9188": 421,
        "": 421,
        "127.0.0.1:9188": 200,
        "[::1]:9188": 200,
    }.items():
        assert client.get("/live", headers={"host": host}).status_code == status, host
    view = shop.view("above").id
    for headers in (
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:1"},
        {"sec-fetch-site": "cross-site"},
        {},
    ):
        assert client.post(f"/view/{view}/refresh", headers=headers).status_code == 403, headers
    assert client.get("/live", headers={"sec-fetch-site": "cross-site"}).status_code == 403


def test_pages_show_views_without_taking_names_for_markup(shop, visitor, source):
    shop.connection.execute("INSERT INTO t VALUES (1, 0), (2, 5); INSERT INTO e VALUES (1, 2)")
    with pytest.raises(orchestrator.RefreshError):
        shop.refresh()
    client = visitor()
    overview = client.get("/").text
    escaped = EVIL.replace("<", "&lt;").replace(">", "&gt;")
    assert overview.count("division by zero") == 1
    assert re.findall(r'class="chip ([\w-]+)">[a-z ]+ (\d+)<', overview) == [
        ("failed", "2"),
        ("fresh", "1"),
    ]
    assert "<svg" in overview and 'aria-label="tables and views"' in overview
    pages = [overview]
    for view in source.monitor.sample().views:
        answer = client.get(f"/view/{view.id}")
        assert answer.status_code == 200, answer.text
        pages.append(answer.text)
    for page in pages:
        assert "<script>" not in page
        assert not re.search(r' (on\w+|style)="', page), "the policy forbids both"
        assert set(re.findall(r'(?:src|href)="(https?:)?//', page)) == set()
    broken, triangles = (
        next(p for p in pages[1:] if f">{name} <" in p)
        for name in (escaped.replace('"', "&#34;&#34;").join(["&#34;", "&#34;"]), "triangles")
    )
    assert "The last refresh failed" in broken
    assert "Heavy values" in triangles and "Duration of the last refreshes" in triangles
    assert "<button>Refresh" not in triangles
    assert client.get("/view/999999").status_code == 404


def test_a_view_is_refreshed_only_if_that_was_allowed(shop, visitor):
    shop.connection.execute("INSERT INTO t VALUES (2, 5)")
    view = shop.views()[0]
    own = {"origin": URL}
    answer = visitor().post(f"/view/{view.id}/refresh", headers=own)
    assert answer.status_code == 403 and "--allow-refresh" in answer.text
    assert shop.view(view.relation).pending
    client = visitor(allow_refresh=True)
    assert "<button>Refresh" in client.get(f"/view/{view.id}").text
    assert client.post(f"/view/{view.id}/refresh", headers=own).status_code == 200
    assert not shop.view(view.relation).pending


def test_what_if_explains_a_query_and_creates_nothing(shop, visitor):
    client = visitor()

    def ask(query):
        answer = client.post("/what-if", data={"query": query}, headers={"origin": URL})
        assert answer.status_code == 200
        return answer.text

    before = [view.name for view in shop.views()]
    page = ask("SELECT n, count(*) FROM t GROUP BY n")
    assert "Strategy id" in page and "grouping: columns" in page and "is expected to touch" in page
    assert 'role="alert"' in ask(f"SELECT '{EVIL}' FROM missing") and "<script>" not in page
    assert "must be one statement" in ask("SELECT 1; DROP TABLE t")
    assert [view.name for view in shop.views()] == before


def test_serve_offers_the_console_and_a_browser_shows_it(shop, dsn, monkeypatch, tmp_path):
    monkeypatch.setenv("IDIVM_CONSOLE_TOKEN", "fixed")
    events, stop = [], threading.Event()
    with orchestrator.connect(dsn) as serving:
        thread = threading.Thread(
            target=serving.serve,
            kwargs={"console": "0", "stop": stop, "report": events.append},
        )
        thread.start()
        try:
            until(lambda: any(event.event == "console" for event in events))
            url = next(event.message for event in events if event.event == "console")
            assert re.fullmatch(r"http://localhost:\d+/\?token=fixed", url)
            browser = shutil.which("chromium") or shutil.which("chromium-browser")
            if browser is None:
                pytest.skip("there is no Chromium on this machine")
            command = [browser, "--headless", "--disable-gpu", "--enable-logging=stderr"]
            command += [
                f"--user-data-dir={tmp_path}",
                "--virtual-time-budget=5000",
                "--dump-dom",
                url,
            ]
            if os.getuid() == 0:
                command.insert(1, "--no-sandbox")
            done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        finally:
            stop.set()
            thread.join(60)
    assert "triangles" in done.stdout
    assert 'data-updates="' in done.stdout, "the script replaced the live part"
    assert "CONSOLE" not in done.stderr, done.stderr


def test_top_shows_refreshes_explains_and_pauses_views(shop, source):
    shop.connection.execute("INSERT INTO t VALUES (2, 5)")

    async def use():
        app = Top(source)

        async def settled():
            await app.workers.wait_for_complete()
            await pilot.pause()

        def row(name):
            return [str(cell) for cell in app.query_one(DataTable).get_row(f"public.{name}")]

        async with app.run_test(size=(160, 40)) as pilot:
            await settled()
            table = app.query_one(DataTable)
            assert row("triangles")[1:4] == ["fresh", "deferred", "skew"]
            assert str(table.get_row_at(0)[1]) == "behind", "problems come first"
            await pilot.press("s", "s", "s")
            assert str(table.get_row_at(0)[0]).startswith('"<script'), "by name"
            await pilot.press("r")
            await settled()
            assert str(table.get_row_at(0)[1]) == "fresh"
            await pilot.press("p")
            await settled()
            assert str(table.get_row_at(0)[1]) == "paused"
            await pilot.press("p")
            await settled()
            assert str(table.get_row_at(0)[1]) == "fresh"
            await pilot.press("e")
            await settled()
            assert "strategy id" in app.screen.text
            app.read()
            await settled()
            await pilot.press("escape", "slash", *"skew")
            await pilot.pause()
            assert table.row_count == 1
            await pilot.press("enter", "q")

    asyncio.run(use())


def test_a_missing_package_is_named_with_its_extra():
    with pytest.raises(UsageError, match=r"no_such_package.*pip install 'idivm\[console\]'"):
        require("The console", "console", "json", "no_such_package")

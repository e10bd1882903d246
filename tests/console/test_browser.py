"""The console in Chromium: what its pages look like, by keyboard, in light and dark, and for assistive tools."""

from contextlib import contextmanager
from dataclasses import replace

import pytest
from watching import watching

from orchestrator.bench.console.browser import chromium
from orchestrator.console.app import served
from orchestrator.errors import UsageError
from orchestrator.runtime.monitoring.address import Address
from orchestrator.runtime.monitoring.sample import Monitor

MANY = 200

pytestmark = pytest.mark.slow


class ManyViews(Monitor):
    """Shows each view many times, under names of their own."""

    def sample(self):
        sample = super().sample()
        copies = -(-MANY // len(sample.views))
        views = [
            replace(view, display=f"{view.display}_{number}")
            for number in range(copies)
            for view in sample.views
        ]
        return replace(sample, views=views[:MANY])


@pytest.fixture(scope="module")
def browser():
    try:
        with chromium() as started:
            yield started
    except UsageError as reason:
        pytest.skip(str(reason))


@pytest.fixture
def shop(orc):
    orc.execute(
        """
        CREATE TABLE t (id int PRIMARY KEY, n int);
        CREATE TABLE e (a int, b int, PRIMARY KEY (a, b));
        INSERT INTO t SELECT n, n FROM generate_series(1, 9) AS n;
        INSERT INTO e SELECT a, b FROM generate_series(1, 5) AS a, generate_series(1, 5) AS b;
        CREATE VIEW sums AS SELECT n % 2 AS g, sum(100 / n) AS q FROM t GROUP BY 1;
        CREATE VIEW above AS SELECT sum(q) FROM sums;
        CREATE VIEW triangles WITH (strategy = skew) AS
            SELECT count(*) FROM e r, e s, e t WHERE r.b = s.a AND s.b = t.a AND t.b = r.a
        """
    )
    return orc


@contextmanager
def console(dsn, monitor=Monitor):
    with (
        watching(dsn, monitor) as source,
        served(source, Address("127.0.0.1", 0), token=None, allow_refresh=True) as url,
    ):
        yield url


@contextmanager
def opened(browser, url, **options):
    """A page, on which no script may have failed, and nothing may have been kept back."""
    with browser.new_context(**options) as context:
        page = context.new_page()
        complaints = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: complaints.append(message.text))
        page.goto(url)
        yield page
        assert complaints == []


def accuse(page):
    """What axe calls serious or worse. The page's policy keeps injected scripts out, so another world runs it."""
    from axe_playwright_python.sync_playwright import Axe

    violations = Axe().run(page).response["violations"]
    return [
        (each["id"], node["html"])
        for each in violations
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_is_accessible_and_looks_right(browser, shop, dsn, scheme, tmp_path):
    branches = " UNION ALL ".join(f"SELECT id + {n} AS id FROM t WHERE n > {n}" for n in range(20))
    shop.create_view("wide", f"SELECT id, count(*) FROM ({branches}) AS u GROUP BY id")
    pages = ["/", "/what-if"]
    pages += [f"/view/{view.id}" for view in shop.views() if view.relation != "public.above"]
    with console(dsn) as url, opened(browser, url, color_scheme=scheme) as page:
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        for path in pages:
            page.goto(url.partition("/?")[0] + path)
            assert accuse(page) == [], path
            # The page itself never scrolls sideways: what is wide scrolls in its own frame.
            wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
            assert not page.evaluate(wide), path
            picture = page.screenshot(path=tmp_path / "page.png", full_page=True)
            assert len(picture) > 10_000
        nodes = page.locator("figure[aria-label=Plan] g.node").count()
        assert nodes >= 60, "the last page shows the wide view"
    red, green, blue = map(int, background[4:-1].split(","))
    assert (red + green + blue > 384) == (scheme == "light")


@pytest.mark.sampled(4)
def test_many_views_are_filtered_and_opened_by_keyboard(browser, shop, dsn):
    with console(dsn, ManyViews) as url, opened(browser, url) as page:
        rows = page.locator("#views tbody tr")
        assert rows.count() == MANY
        assert accuse(page) == []
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        page.keyboard.press("/")
        page.keyboard.type("triangles skew")
        visible = page.locator("#views tbody tr:not([hidden])")
        assert 0 < visible.count() < MANY
        # The live part is replaced, and the filter is applied again.
        shop.execute("INSERT INTO e VALUES (6, 1)")
        page.wait_for_selector("#live[data-updates='2']")
        assert 0 < page.locator("#views tbody tr:not([hidden])").count() < MANY
        while page.evaluate("document.activeElement.closest('#views') === null"):
            page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.tagName") != "A":
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.wait_for_url("**/view/*")
        assert page.locator("h1").inner_text().startswith("triangles")


def test_a_view_is_refreshed_and_a_query_explained(browser, shop, dsn):
    shop.execute("INSERT INTO t VALUES (10, 10)")
    [view] = [view for view in shop.views() if view.relation == "public.sums"]
    with console(dsn) as url, opened(browser, url) as page:
        page.goto(f"{url.partition('/?')[0]}/view/{view.id}")
        page.get_by_role("button", name="Refresh").click()
        page.wait_for_selector("text=The last 1 recorded refreshes")
        assert shop.check("sums")[0].equal
        page.get_by_role("link", name="What if").click()
        page.get_by_label("Query").fill("SELECT n, count(*) FROM t GROUP BY n")
        page.get_by_role("button", name="Explain").click()
        page.wait_for_selector("figure[aria-label=Plan] g.node")
        page.goto(f"{url.partition('/?')[0]}/what-if")
        page.get_by_label("Query").fill("SELECT nothing FROM t")
        page.get_by_role("button", name="Explain").click()
        assert "nothing" in page.get_by_role("alert").inner_text()

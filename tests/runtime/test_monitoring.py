"""Metrics, their dashboard and alerts, and the health check."""

import json
import re
import threading
import urllib.request
from pathlib import Path

import pytest
import yaml
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from stepping import until

import orchestrator
from orchestrator.catalog.search_path import pin
from orchestrator.cli.main import main
from orchestrator.errors import UsageError
from orchestrator.runtime.monitoring import metrics
from orchestrator.runtime.monitoring.sample import Monitor
from orchestrator.runtime.monitoring.traces import Traces
from orchestrator.runtime.serve import Event
from orchestrator.runtime.sessions import open_session

ROOT = Path(__file__).parents[2]


@pytest.fixture
def shop(orc):
    orc.execute(
        """
        CREATE TABLE t (id int PRIMARY KEY, n int); CREATE TABLE "it's" (id int PRIMARY KEY, n int);
        CREATE VIEW sums AS SELECT n % 2 AS g, sum(n) AS s FROM t GROUP BY g;
        CREATE VIEW above AS SELECT sum(s) AS s FROM sums;
        CREATE VIEW "a ""b\\" WITH (strategy = recompute) AS SELECT 100 / n AS q FROM "it's"
        """
    )
    return orc


@pytest.fixture
def monitor(dsn):
    def connect():
        connection = open_session(dsn)
        pin(connection)
        return connection

    watching = Monitor(connect)
    yield watching
    watching.close()


def fresh_sample(monitor):
    monitor.expire()
    return monitor.sample()


def values(text):
    """The value of each series, by name and labels."""
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.slow
def test_openmetrics_have_the_values_of_the_catalog(shop, dsn):
    events, stop = [], threading.Event()
    with orchestrator.connect(dsn) as serving:
        thread = threading.Thread(
            target=serving.serve,
            args=("40ms",),
            kwargs={"metrics": "0", "stop": stop, "report": events.append},
        )
        thread.start()
        try:
            until(lambda: any(event.event == "connected" for event in events))
            request = urllib.request.Request(
                next(event.message for event in events if event.event == "metrics"),
                headers={"Accept": "application/openmetrics-text; version=1.0.0"},
            )

            def scraped():
                with urllib.request.urlopen(request, timeout=30) as answer:
                    return values(answer.read().decode())

            assert scraped()["idivm_up",] == 1
            shop.connection.execute("INSERT INTO t VALUES (1, 5), (2, 4)")
            shop.connection.execute("""INSERT INTO "it's" VALUES (1, 0)""")
            broken = 'public."a ""b\\"'
            until(lambda: scraped().get(("idivm_view_errors_total", broken), 0) > 0)
            until(lambda: scraped()["idivm_view_changed_rows_total", "public.sums"] == 2)
            seen = scraped()
        finally:
            stop.set()
            thread.join(60)
    assert seen["idivm_serve_active",] == 1
    assert seen["idivm_view_state", "failed", broken] == 1
    assert seen["idivm_view_info", "deferred", broken, "recompute"] == 1
    assert seen["idivm_view_refresh_duration_seconds_bucket", "+Inf", "public.sums"] == 1
    assert seen["idivm_view_staleness_seconds_count", "public.sums"] == 1
    assert seen["idivm_view_pending_changes", "public.sums"] == 0
    assert seen["idivm_table_captured_statements_total", "public.t"] == 1
    assert ("idivm_table_log_bytes", 'public."it\'s"') in seen
    assert not any("idivm_state" in label for key in seen for label in key)
    with pytest.raises(UsageError, match="not an address"):
        shop.serve(metrics="nine")


def test_a_lost_connection_and_late_refreshes_are_survived(shop, monitor, connect):
    monitor.sample()
    late = connect(autocommit=False)
    late.execute("INSERT INTO t VALUES (1, 5)")
    late.execute("SELECT * FROM idivm.refresh('sums')")
    shop.connection.execute("""INSERT INTO "it's" VALUES (1, 1)""")
    shop.refresh('"a ""b\\"')
    fresh_sample(monitor)
    late.commit()
    shop.connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'idivm monitor'"
    )
    monitor.expire()
    lines = generate_latest(metrics.registry(monitor)).decode()
    assert "idivm_up 0.0" in lines
    sample = fresh_sample(monitor)
    counted = {name: counters for name, counters, _ in monitor.counted(sample.views)}
    assert counted["public.sums"].changed == 1
    assert counted['public."a ""b\\"'].recomputes == {"the strategy is recompute": 1}
    shop.execute("DROP VIEW above; DROP VIEW sums")
    fresh_sample(monitor)
    assert "public.sums" not in monitor._counters


def test_the_documentation_the_dashboard_and_the_alerts_name_existing_metrics(shop, monitor):
    shop.refresh()
    monitor.sample()
    shop.connection.execute("""INSERT INTO "it's" VALUES (1, 1)""")
    shop.refresh()
    fresh_sample(monitor)
    families = {f.name: f for f in metrics.ViewMetrics(monitor).collect()}
    endings = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"], "gauge": [""]}
    series = {name + end for name, f in families.items() for end in endings[f.type]}
    documented = re.findall(
        r"^\| `(idivm_\w+)` \| (\w+) ", (ROOT / "docs/metrics.md").read_text(), re.M
    )
    counters = {
        name + ("_total" if f.type == "counter" else ""): f.type for name, f in families.items()
    }
    assert dict(documented) == counters
    alerts = yaml.safe_load((ROOT / "docker/prometheus/alerts.yaml").read_text())
    rules = [rule for group in alerts["groups"] for rule in group["rules"]]
    assert all(rule["annotations"].keys() == {"summary", "description"} for rule in rules)
    board = json.loads((ROOT / "docker/grafana/dashboard.json").read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    for expression in [*asked, *(rule["expr"] for rule in rules)]:
        assert set(re.findall(r"\bidivm_\w+", expression)) <= series, expression
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_health_reports_without_changing_anything(shop, dsn, capsys):
    def health(*arguments):
        status = main(["doctor", "--health", "--dsn", dsn, "--json", *arguments])
        return status, {
            f["subject"]: f["sentence"]
            for f in json.loads(capsys.readouterr().out)
            if not f["fine"]
        }

    assert health() == (0, {})
    shop.connection.execute("""INSERT INTO t VALUES (1, 5); INSERT INTO "it's" VALUES (1, 0)""")
    with pytest.raises(orchestrator.RefreshError):
        shop.refresh('"a ""b\\"')
    assert "behind by 1 changes" in health("--max-lag", "1ms")[1]["view sums"]
    assert "view sums" not in health("--max-lag", "1h")[1]
    shop.connection.execute("ALTER TABLE t DISABLE TRIGGER ALL")
    status, wrong = health()
    assert status == 1
    assert wrong["capture"] == "triggers of t are missing or disabled: run idivm doctor"
    assert "division by zero" in wrong['view "a ""b\\"']
    assert "invalid" in wrong["view sums"]
    assert main(["doctor", "--max-lag", "1h", "--dsn", dsn]) == 2


def test_refreshes_become_spans():
    exporter = InMemorySpanExporter()
    traces = Traces(SimpleSpanProcessor(exporter))
    traces.note(Event("connected"))
    traces.note(Event("refreshed", "sums", changed=2, seconds=0.5, staleness=0.7))
    traces.note(Event("failed", "ratios", message="division by zero"))
    done, failed = exporter.get_finished_spans()
    assert done.end_time - done.start_time == 500_000_000
    assert done.attributes["idivm.view"] == "sums" and done.attributes["idivm.rows_changed"] == 2
    assert failed.status.description == "division by zero"

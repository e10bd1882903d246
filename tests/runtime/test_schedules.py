"""Schedules: views are refreshed at their times, by pg_cron where the owner may use it, otherwise by idivm serve.

pg_cron itself is not needed: `CRON` has its table and functions, with the signatures of its documentation.
"""

from __future__ import annotations

import threading
from datetime import datetime, timezone
from zoneinfo import ZoneInfo

import psycopg
import pytest
from psycopg.errors import InvalidParameterValue
from stepping import until

import orchestrator
from orchestrator.cli.main import main
from orchestrator.errors import UsageError
from orchestrator.frontend.schedules import parse_schedule

CRON = """
CREATE SCHEMA cron;
CREATE TABLE cron.job (
    jobid bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, schedule text NOT NULL, command text NOT NULL,
    nodename text NOT NULL DEFAULT 'localhost', nodeport int NOT NULL DEFAULT 5432,
    database text NOT NULL DEFAULT current_database(), username text NOT NULL DEFAULT current_user,
    active boolean NOT NULL DEFAULT true, jobname text);
ALTER TABLE cron.job ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON cron.job USING (username = current_user);
GRANT SELECT ON cron.job TO PUBLIC;
CREATE FUNCTION cron.schedule(job_name text, schedule text, command text) RETURNS bigint
    LANGUAGE sql SECURITY DEFINER AS
$$ INSERT INTO cron.job (jobname, schedule, command, username) VALUES (job_name, schedule, command, session_user) RETURNING jobid $$;
CREATE FUNCTION cron.unschedule(job_id bigint) RETURNS boolean
    LANGUAGE sql SECURITY DEFINER AS
$$ DELETE FROM cron.job WHERE jobid = job_id RETURNING true $$;
"""

TOTALS = "SELECT n % 2 AS odd, sum(n) AS s FROM t GROUP BY 1"
JOBS = "SELECT schedule, command, username, jobname FROM cron.job ORDER BY jobid"


def rows(connection, query):
    return connection.execute(query).fetchall()


TEXTS = {
    True: ("10 s", "5min", "1 day", "90 seconds", "2 hours", "off", "*/5 * * * *", "0 3 $ jan-mar mon", "1,2-9/3 0 1 * 7",
           "@daily"),
    False: ("0 s", "soon", "* * * *", "60 * * * *", "*/0 * * * *", "5/2 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *",
            "* * * * 8", "@reboot", "1.5 s"),
}  # fmt: skip


def test_a_schedule_is_an_interval_or_has_the_fields_of_cron(orc):
    for accepted, texts in TEXTS.items():
        for text in texts:
            if accepted:
                parse_schedule(text)
            else:
                with pytest.raises(UsageError, match="is not a schedule"):
                    parse_schedule(text)
        said = rows(
            orc.connection,
            f"SELECT t ~ idivm.schedule_pattern() FROM unnest('{{{','.join(map(repr_of, texts))}}}'::text[]) AS t",
        )
        assert said == [(accepted,)] * len(texts)
    times = {
        "10 s": "10 seconds", "60 s": "* * * * *", "5 min": "*/5 * * * *", "7 min": "* * * * *", "6 hours": "0 */6 * * *",
        "5 h": "0 * * * *", "1 day": "0 0 * * *", "90 s": None, "500 ms": None, "@weekly": "0 0 * * 0", "1 2 3 4 5": "1 2 3 4 5",
    }  # fmt: skip
    for text, expected in times.items():
        assert rows(orc.connection, f"SELECT idivm.cron_times('{text}')") == [(expected,)], text


def repr_of(text):
    return f'"{text}"'


def test_fields_of_cron_name_times_of_a_time_zone():
    schedule = parse_schedule("30 2 * * *")
    assert schedule is not None
    berlin = ZoneInfo("Europe/Berlin")
    after = datetime(2026, 3, 28, 12, tzinfo=timezone.utc)
    moments = []
    for _ in range(3):
        after = schedule.next(after, berlin)
        moments.append(after.isoformat())
    # On March 29, clocks go from 2 to 3 o'clock.
    assert [moment[5:16] for moment in moments] == ["03-29T01:30", "03-30T00:30", "03-31T00:30"]
    both = parse_schedule("0 0 1 * mon")
    assert both is not None
    days = []
    for _ in range(4):
        after = both.next(after)
        days.append(after.day)
    assert days == [1, 6, 13, 20]


@pytest.fixture
def shop(ordinary, connect):
    """The owner of a view in a database with a stand-in for pg_cron."""
    admin = connect(ordinary, user="postgres")
    admin.execute(CRON)
    with orchestrator.connect(ordinary) as orc:
        orc.notices = []
        orc.on_notice = orc.notices.append
        orc.execute(
            f"CREATE TABLE t (n int PRIMARY KEY); INSERT INTO t VALUES (1), (2); CREATE VIEW v AS {TOTALS}"
        )
        orc.admin = admin
        yield orc


def test_pg_cron_refreshes_the_views_of_a_role_that_may_use_it(shop, ordinary):
    connection, role = shop.connection, shop.connection.info.user
    assert rows(connection, "SELECT idivm.schedule('v', '10 s')") == [("idivm serve",)]
    assert shop.notices[-1] == (
        f"idivm serve follows the schedule of public.v, because the role {role} may not use the schema cron"
    )
    shop.admin.execute(f'GRANT USAGE ON SCHEMA cron TO "{role}"')
    assert rows(connection, "SELECT idivm.schedule('v', '10 s')") == [("pg_cron",)]
    [(times, command, username, _)] = rows(shop.admin, JOBS)
    assert (times, username) == ("10 seconds", role)
    assert rows(connection, "SELECT view::text, schedule, runner FROM idivm.schedules") == [
        ("v", "10 s", "pg_cron")
    ]
    # The command is what pg_cron runs. A rename does not disturb it.
    connection.execute("INSERT INTO t VALUES (3)")
    connection.execute("ALTER VIEW v RENAME TO w")
    connection.execute(command)
    assert rows(connection, "SELECT s FROM w ORDER BY odd") == [(2,), (4,)]
    assert main(["status", "w", "--dsn", ordinary]) == 0
    # Another schedule is another job; a paused view is left alone.
    shop.schedule("w", "0 3 * * *")
    [(times, command, _, _)] = rows(shop.admin, JOBS)
    assert times == "0 3 * * *"
    connection.execute("SELECT idivm.pause_view('w'); INSERT INTO t VALUES (5)")
    connection.execute(command)
    assert rows(connection, "SELECT pending_rows FROM idivm.status") == [(1,)]
    connection.execute("SELECT idivm.resume_view('w')")
    # A view replaced without the option has no schedule, and dropping a view ends its job.
    shop.execute("CREATE OR REPLACE VIEW w AS SELECT count(*) AS c FROM t")
    assert rows(connection, "SELECT runner FROM idivm.schedules") == []
    shop.schedule("w", "5 min")
    shop.unschedule("w")
    assert rows(shop.admin, JOBS) == []
    shop.schedule("w", "7 min")
    [(times, command, _, _)] = rows(shop.admin, JOBS)
    assert times == "* * * * *"
    connection.execute("DROP VIEW w")
    connection.execute(command)
    assert rows(shop.admin, JOBS) == []


def test_nobody_else_can_pass_for_pg_cron_or_schedule_a_view(shop, ordinary, connect):
    role = shop.connection.info.user
    shop.admin.execute(
        f'GRANT USAGE ON SCHEMA cron TO "{role}"; ALTER FUNCTION cron.schedule OWNER TO "{role}"'
    )
    shop.schedule("v", "10 s")
    assert rows(shop.admin, JOBS) == []
    assert "pg_cron is not installed" in shop.notices[-1]
    # Superusers get no jobs, as a job would run idivm's functions as the superuser.
    shop.admin.execute("ALTER FUNCTION cron.schedule OWNER TO postgres")
    shop.admin.execute("SELECT idivm.schedule('v', '20 s')")
    assert rows(shop.admin, JOBS) == []
    shop.admin.execute(f'CREATE ROLE "other_{role}"; GRANT USAGE ON SCHEMA idivm TO "other_{role}"')
    shop.admin.execute(
        f'GRANT SELECT ON ALL TABLES IN SCHEMA idivm TO "other_{role}"; SET ROLE "other_{role}"'
    )
    try:
        for statement in (
            "SELECT idivm.schedule('v', '1 s')",
            "SELECT idivm.unschedule('v')",
            "INSERT INTO idivm.cron_jobs (relation, job, times) VALUES ('v', 1, '* * * * *')",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="must be owner of view"):
                shop.admin.execute(statement)
    finally:
        shop.admin.execute(f'RESET ROLE; DROP OWNED BY "other_{role}"; DROP ROLE "other_{role}"')


def test_without_pg_cron_serve_refreshes_views_at_their_times(orc, dsn, capsys):
    said = []
    orc.on_notice = said.append
    orc.execute(
        f"CREATE TABLE t (n int PRIMARY KEY); CREATE VIEW often WITH (schedule = '20 ms') AS {TOTALS};"
        f"CREATE VIEW never WITH (schedule = '0 0 30 2 *') AS {TOTALS}; CREATE VIEW other WITH (staleness = '40ms') AS {TOTALS}"
    )
    assert said[0] == (
        "idivm serve follows the schedule of public.often, because pg_cron is not installed in this database"
    )
    with pytest.raises(UsageError, match="is not a schedule"):
        orc.schedule("other", "soon")
    with pytest.raises(InvalidParameterValue, match="write an interval, as in 10 s"):
        orc.connection.execute("SELECT idivm.schedule('other', 'soon')")
    with pytest.raises(UsageError, match="schedule is not available with maintain = eager"):
        orc.alter_view("often", maintain="eager")
    stop = threading.Event()
    with orchestrator.connect(dsn) as server:
        thread = threading.Thread(target=server.serve, args=("50ms",), kwargs={"stop": stop})
        thread.start()
        try:
            for number in (1, 2):
                orc.connection.execute(f"INSERT INTO t VALUES ({number})")
                for view in ("often", "other"):
                    until(
                        lambda view=view, n=number: (
                            rows(orc.connection, f"SELECT count(*) FROM {view}") == [(n,)]
                        )
                    )
            assert rows(orc.connection, "SELECT count(*) FROM never") == [(0,)]
        finally:
            stop.set()
            thread.join(60)
    assert [(t.view, t.schedule, t.runner) for t in orc.timings()] == [
        ("never", "0 0 30 2 *", "idivm serve"), ("often", "20 ms", "idivm serve")
    ]  # fmt: skip
    assert main(["schedule", "other", "1 day", "--dsn", dsn]) == 0
    assert main(["schedule", "--dsn", dsn]) == 0
    assert main(["status", "other", "--dsn", dsn]) == 0
    assert main(["unschedule", "never", "--dsn", dsn]) == 0
    assert main(["refresh", "--dsn", dsn]) == 0
    out = capsys.readouterr().out
    assert "idivm serve refreshes other: 1 day." in out
    assert "1 day, by idivm serve" in out
    assert [t.view for t in orc.timings()] == ["often", "other"]
    orc.drop_view("often")
    assert [t.view for t in orc.timings()] == ["other"]

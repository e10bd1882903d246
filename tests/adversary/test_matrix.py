"""The adversary's matrix: each kind of object below a view, with each mode and strategy.

Nothing of the attacker is called with the rights of another role, by views that are refused, by views that are
maintained, and by views below which code appears later.
"""

from __future__ import annotations

from contextlib import suppress

import psycopg
import pytest
from hostile import ENUM, HARMLESS, HOSTILE, LATER, TO_JSON, TO_TEXT, spy
from psycopg.errors import InsufficientPrivilege
from scene import Scene

from orchestrator.errors import IdivmError, RightsError, UnsupportedError

MODES = ("deferred", "eager", "on_commit", "on_read")

STRATEGIES = ("auto", "id", "tuple", "recursive", "viewtree", "skew", "recompute")


def created(scene: Scene, query: str, mode: str) -> list[str]:
    """Create a view for each strategy that takes the query, and return their names."""
    names = []
    for strategy in STRATEGIES:
        name = f"{mode}_{strategy}"
        try:
            scene.orc.create_view(
                *(name, query),
                maintain=mode,
                strategy=strategy,
                feed="off" if mode == "on_read" else "on",
            )
        except UnsupportedError:
            continue
        names.append(name)
    if mode == "on_read" and not names:
        pytest.skip("no strategy merges pending changes of this query in a read")
    assert len(names) >= 1
    return names


@pytest.mark.sampled(21)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", HOSTILE)
def test_code_of_an_untrusted_role_is_refused_and_not_run(
    scene: Scene, kind: str, mode: str
) -> None:
    objects, query = HOSTILE[kind]
    scene.as_mallory(objects)
    for strategy in STRATEGIES:
        with pytest.raises(RightsError, match=f"{scene.attacker}.* does not trust"):
            scene.orc.create_view("v", query, maintain=mode, strategy=strategy)
    assert scene.orc.views() == []
    assert scene.caught() == set()


@pytest.mark.sampled(9)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", HARMLESS)
def test_what_runs_in_the_attackers_own_writes_runs_as_the_attacker(
    high: Scene, kind: str, mode: str
) -> None:
    objects, query = HARMLESS[kind]
    high.as_mallory(objects)
    # Nobody but a superuser captures tables of a role without being a member of it.
    orc = high.orc
    names = created(high, query, mode)
    high.as_mallory("INSERT INTO mallory.x (id, n) VALUES (1, 1), (2, 2), (3, 3)")
    high.as_mallory(
        "BEGIN; UPDATE mallory.x SET n = n + 1 WHERE id < 3; DELETE FROM mallory.x WHERE id = 3; COMMIT"
    )
    orc.refresh()
    assert all(report.equal for report in orc.check())
    read(high, names)
    assert [
        finding for finding in orc.doctor() if not finding.fine and finding.subject != "java"
    ] == []
    assert high.caught() == set()


def read(scene: Scene, names: list[str]) -> None:
    """Read views in every way."""
    for name in names:
        scene.admin.execute(f"TABLE {name}")
        list(scene.orc.enumerate(name))
        scene.admin.execute(
            "SELECT (SELECT count(old) FROM idivm.changes(f.view, snapshot => true)),"
            " (SELECT count(old) + count(new) FROM idivm.changes(f.view, f.kept_from))"
            f" FROM idivm.feeds AS f WHERE f.view = '{name}'::regclass"
        )


@pytest.mark.sampled(8)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", LATER)
def test_code_that_comes_later_is_not_run(high: Scene, kind: str, mode: str) -> None:
    objects, expression, later = LATER[kind]
    high.as_mallory(f"{objects}; INSERT INTO mallory.x VALUES (1, 'a', 1), (2, 'b', 2)")
    orc = high.orc
    names = created(
        high, f"SELECT {expression} AS w, count(*) AS c FROM mallory.x GROUP BY 1", mode
    )
    high.as_mallory(later)
    high.as_mallory("SET constraint_exclusion = on")
    high.as_mallory("INSERT INTO mallory.x VALUES (3, 'a', 3)")
    high.as_mallory("UPDATE mallory.x SET n = n + 1, e = 'b'; DELETE FROM mallory.x WHERE id = 1")
    for name in names:
        high.admin.execute(f"GRANT SELECT ON {name} TO {high.attacker}")
        with suppress(psycopg.Error):
            high.as_mallory(f"TABLE {name}")
    assert high.caught() == set()
    for name in names:
        with pytest.raises(IdivmError, match="does not trust"):
            orc.refresh(name)
    assert all("does not trust" in (report.error or "") for report in orc.check())
    findings = {finding.subject: finding for finding in orc.doctor()}
    assert not any(findings[f"view {name}"].fine for name in names)
    if mode in ("eager", "on_commit"):
        assert {view.status for view in orc.views()} == {"invalid"}
    assert high.caught() == set()
    for name in names:
        orc.drop_view(name)
    assert high.caught() == set()


def test_a_reader_calls_no_cast_of_the_owner_of_a_type(high: Scene) -> None:
    high.as_mallory(f"{ENUM}; INSERT INTO mallory.x VALUES (1, 'a', 1), (2, 'b', 2)")
    high.as_mallory("CREATE TABLE mallory.y AS SELECT id, e FROM mallory.x")
    queries = {
        "listed": "SELECT e, count(*) AS c FROM mallory.x GROUP BY e",
        "walked": "SELECT x.e, x.n, y.id FROM mallory.x JOIN mallory.y ON y.e = x.e GROUP BY 1, 2, 3",
    }
    high.orc.create_view("listed", queries["listed"], feed="on")
    high.orc.create_view(
        *("walked", queries["walked"]), strategy="viewtree", representation="factorized"
    )
    high.as_mallory(
        f"{TO_JSON};{TO_TEXT};"
        + spy("to_e", "t text", "mallory.e", "'a'")
        + "CREATE CAST (text AS mallory.e) WITH FUNCTION mallory.to_e(text)"
    )
    for snapshot in ("true", "false"):
        with pytest.raises(InsufficientPrivilege, match=r"to_jsonb.* does not trust"):
            high.admin.execute(
                f"SELECT new FROM idivm.changes('listed', since => NULL, snapshot => {snapshot})"
            )
    assert sorted(high.orc.enumerate("walked")) == [("a", 1, 1), ("b", 2, 2)]
    assert high.caught() == set()

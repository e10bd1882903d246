"""The images and the compose file, as far as they can be judged without an engine."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from orchestrator.cli.main import build_parser

CHECKOUT = Path(__file__).resolve().parent.parent
DOCKER = CHECKOUT / "docker"
DOCKERFILES = sorted(DOCKER.glob("*.Dockerfile"))

PINNED = r"[a-z/-]+:v?\d+\.\d+[\w.-]*@sha256:[0-9a-f]{64}"

each_dockerfile = pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)


def instructions(dockerfile: Path) -> list[tuple[str, str]]:
    text = re.sub(r"\\\n", " ", dockerfile.read_text())
    lines = [line.split(maxsplit=1) for line in text.splitlines()]
    return [(words[0], words[1]) for words in lines if words and not words[0].startswith("#")]


ORCHESTRATOR = instructions(DOCKER / "orchestrator.Dockerfile")


def services() -> dict[str, dict[str, Any]]:
    loaded: dict[str, dict[str, Any]] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    return loaded["services"]


def dockerfile_of(service: dict[str, Any]) -> Path | None:
    """The Dockerfile of a service; those of other projects have images that are pinned by digest."""
    if "build" not in service:
        assert re.fullmatch(PINNED, service["image"]), service["image"]
        return None
    return (DOCKER / service["build"]["context"] / service["build"]["dockerfile"]).resolve()


@each_dockerfile
def test_hadolint_finds_nothing(dockerfile: Path) -> None:
    beside_python = str(Path(sys.executable).parent)
    hadolint = shutil.which("hadolint", path=beside_python) or shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("hadolint has no binary for this machine")
    done = subprocess.run([hadolint, "--no-color", dockerfile], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


@each_dockerfile
def test_base_images_are_pinned_by_tag_and_digest(dockerfile: Path) -> None:
    bases = [words.split()[0] for what, words in instructions(dockerfile) if what == "FROM"]
    assert bases
    for base in bases:
        assert re.fullmatch(PINNED, base), base


@each_dockerfile
def test_runs_as_a_numbered_user_with_a_health_check(dockerfile: Path) -> None:
    last_stage = "\n".join(map(" ".join, instructions(dockerfile))).rpartition("\nFROM ")[2]
    users = re.findall(r"^USER (\d+):\d+$", last_stage, re.MULTILINE)
    assert users and int(users[-1]) > 0
    assert re.search(r"^HEALTHCHECK .*CMD \[", last_stage, re.MULTILINE)


@each_dockerfile
def test_copies_only_what_the_context_lets_through(dockerfile: Path) -> None:
    ignore = dockerfile.with_name(f"{dockerfile.name}.dockerignore").read_text().split()
    assert ignore[0] == "*"
    let_through = [pattern[1:] for pattern in ignore if pattern.startswith("!")]
    copied = {
        source
        for what, words in instructions(dockerfile)
        if what == "COPY" and not words.startswith("--from")
        for source in words.split()[:-1]
    }
    assert copied == set(let_through)
    for source in copied:
        assert (CHECKOUT / source).exists(), source
    assert any(fnmatch("orchestrator/__pycache__", pattern) for pattern in ignore[1:])


def test_every_package_of_the_image_is_pinned() -> None:
    lines = (DOCKER / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    needed = [
        requirement
        for requirement in map(Requirement, requires("idivm") or [])
        if requirement.marker is None or requirement.name == "pyspark"
    ]
    assert {"psycopg", "pyspark"} <= {requirement.name for requirement in needed}
    for requirement in needed:
        assert requirement.specifier.contains(pins[requirement.name]), requirement
        if requirement.extras == {"binary"}:
            assert pins[f"{requirement.name}-binary"] == pins[requirement.name]


@pytest.mark.parametrize("name", services())
def test_services_are_confined_and_watched(name: str) -> None:
    service = services()[name]
    dockerfile = dockerfile_of(service)
    assert dockerfile is None or dockerfile in DOCKERFILES
    tag = service["image"].partition(":")[2]
    assert tag and tag != "latest"
    assert "privileged" not in service and service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "user" not in service, "the image says who runs it"
    own_check = service.get("healthcheck", {}).get("test", [None])[0] == "CMD"
    assert own_check or (
        dockerfile and any(what == "HEALTHCHECK" for what, _ in instructions(dockerfile))
    )
    # Nothing of the host but ports on its own loopback.
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
    assert not [volume for volume in service.get("volumes", []) if volume[0] in "./~"]


def test_the_compose_file_starts_what_it_says() -> None:
    ours = {"database", "orchestrator", "spark-master", "spark-worker"}
    assert set(services()) == {*ours, "prometheus", "grafana"}
    waits_for = services()["orchestrator"]["depends_on"]
    assert waits_for["database"] == {"condition": "service_healthy"}
    spark = {services()[name]["image"] for name in ("spark-master", "spark-worker")}
    assert spark == {services()["orchestrator"]["image"]}
    commands = [str(service.get("command")) for service in services().values()]
    commands += [
        words for path in DOCKERFILES for what, words in instructions(path) if what == "CMD"
    ]
    assert not [command for command in commands if "sleep" in command]


def test_serve_is_started_with_options_that_it_has_and_scraped_where_it_listens() -> None:
    [in_image] = [json.loads(words) for what, words in ORCHESTRATOR if what == "CMD"]
    unit = (CHECKOUT / "packaging" / "idivm.service").read_text()
    [started] = re.findall(r"^ExecStart=/opt/idivm/bin/(.*)$", unit, re.MULTILINE)
    command = services()["orchestrator"]["command"]
    for words in (command, in_image, started.split()):
        assert build_parser().parse_args(words[1:]).metrics is not None
    [scrape] = yaml.safe_load((DOCKER / "prometheus" / "prometheus.yaml").read_text())[
        "scrape_configs"
    ]
    port = command[command.index("--metrics") + 1].rpartition(":")[2]
    assert scrape["static_configs"] == [{"targets": [f"orchestrator:{port}"]}]


def test_every_file_that_a_service_gets_is_there_and_used() -> None:
    compose = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    for config in compose["configs"].values():
        text = (DOCKER / config["file"]).read_text()
        assert yaml.safe_load(text)
    used = [
        mount["source"] for service in services().values() for mount in service.get("configs", [])
    ]
    assert sorted(used) == sorted(compose["configs"])
    volumes = [v.partition(":")[0] for s in services().values() for v in s.get("volumes", [])]
    assert sorted(volumes) == sorted(compose["volumes"])


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    text = (CHECKOUT / "packaging" / "idivm.service").read_text()
    unit = tmp_path / "idivm.service"
    # systemd wants the program to exist.
    unit.write_text(text.replace("/opt/idivm/bin/idivm", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True
    )
    complaints = [line for line in done.stderr.splitlines() if "idivm" in line]
    assert complaints == []


def test_no_password_is_written_down() -> None:
    for service in services().values():
        for name, value in service.get("environment", {}).items():
            if "PASSWORD" in name:
                assert value.startswith("${IDIVM_PASSWORD:?")

"""`import idivm` gives what the package gives."""

from __future__ import annotations

import importlib.metadata

import pytest

import idivm
import orchestrator
from orchestrator.cli.main import main


def test_idivm_is_the_package_under_its_own_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert idivm.connect is orchestrator.connect
    assert dir(idivm) == sorted(orchestrator.__all__)
    with pytest.raises(AttributeError, match="no attribute 'conect'"):
        _ = idivm.conect
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"idivm {idivm.__version__}\n"
    assert idivm.__version__ == importlib.metadata.version("idivm")

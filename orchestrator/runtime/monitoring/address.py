"""Addresses at which `idivm` serves metrics and the console."""

from __future__ import annotations

from importlib.util import find_spec
from typing import NamedTuple

from orchestrator.errors import UsageError


class Address(NamedTuple):
    """A host and a port."""

    host: str
    port: int


def parse_address(text: str) -> Address:
    """Return the address that `[HOST:]PORT` means. Without a host, it is the loopback address.

    >>> parse_address("9187"), parse_address("[::1]:9187")
    (Address(host='127.0.0.1', port=9187), Address(host='::1', port=9187))
    """
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise UsageError(
            f"{text!r} is not an address; write [HOST:]PORT, as in 9187 or 0.0.0.0:9187."
        )
    return Address(host.strip("[]") or "127.0.0.1", int(port))


def require(feature: str, extra: str, *modules: str) -> None:
    """Raise an error that names the extra to install if a module is missing."""
    missing = [module for module in modules if not _is_installed(module)]
    if missing:
        raise UsageError(
            f"{feature} needs the Python package {', '.join(missing)}, which is not installed:"
            f" run pip install 'idivm[{extra}]'."
        )


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        # The package that contains the module is missing.
        return False

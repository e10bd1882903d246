#!/usr/bin/env python3
"""Print a bill of materials of an installed idivm as CycloneDX 1.6: every package that it needs here, with its version.

    python packaging/sbom.py [EXTRA...] > sbom.json

The environment is that of the Python which runs it. The same environment gives the same text.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import Any

from packaging.requirements import Requirement

ROOT = "idivm"


def canonical(name: str) -> str:
    """Return the name of a package as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def needed(package: Distribution, extras: Sequence[str]) -> Iterator[Requirement]:
    """Yield the requirements of a package that hold in this environment."""
    for text in package.requires or []:
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield requirement


def resolve(extras: Sequence[str]) -> dict[str, tuple[Distribution, set[str]]]:
    """Return each package that is needed, with the names of the packages that it needs itself."""
    found: dict[str, tuple[Distribution, set[str]]] = {}
    seen: set[tuple[str, tuple[str, ...]]] = set()
    waiting = [(ROOT, tuple(extras))]
    while waiting:
        name, wanted = waiting.pop()
        if (name, wanted) in seen:
            continue
        seen.add((name, wanted))
        package = distribution(name)
        needs = found.setdefault(name, (package, set()))[1]
        for requirement in needed(package, wanted):
            below = canonical(requirement.name)
            if below != name:
                needs.add(below)
            waiting.append((below, tuple(sorted(requirement.extras))))
    return found


def component(name: str, package: Distribution) -> dict[str, Any]:
    """Return a package as a component."""
    facts = package.metadata.json
    license_name = str(facts.get("license_expression") or facts.get("license") or "")
    entry = {
        "type": "application" if name == ROOT else "library",
        "bom-ref": f"pkg:pypi/{name}@{package.version}",
        "name": name,
        "version": package.version,
        "purl": f"pkg:pypi/{name}@{package.version}",
    }
    # Some packages put the whole text there.
    named = license_name and len(license_name) < 80
    return entry | ({"licenses": [{"license": {"name": license_name}}]} if named else {})


def bill(extras: Sequence[str]) -> dict[str, Any]:
    """Return the bill of materials."""
    found = resolve(extras)
    components = {name: component(name, package) for name, (package, _) in sorted(found.items())}
    references = {name: entry["bom-ref"] for name, entry in components.items()}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": components.pop(ROOT)},
        "components": list(components.values()),
        "dependencies": [
            {"ref": references[name], "dependsOn": sorted(references[below] for below in needs)}
            for name, (_, needs) in sorted(found.items())
        ],
    }


def main() -> int:
    """Print the bill of materials for the extras that the arguments name."""
    try:
        print(json.dumps(bill(sys.argv[1:]), indent=2))
    except PackageNotFoundError as error:
        sys.stderr.write(
            f"sbom: the package {error.name} is not installed; install idivm with these extras.\n"
        )
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

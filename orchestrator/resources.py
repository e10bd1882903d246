"""Where the files that travel with the package lie: in a wheel or in a checkout."""

from __future__ import annotations

from pathlib import Path


def resource_folder(name: str) -> Path:
    """The folder `migrations` or `sql`, from the installed package or from the checkout."""
    here = Path(__file__).resolve().parent
    packaged = here / "_data" / name
    return packaged if packaged.is_dir() else here.parent / name

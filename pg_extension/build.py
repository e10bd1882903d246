"""Build the extension from migrations/ and sql/functions/: python pg_extension/build.py OUTDIR.

The extension's version is the number of the last migration. One script installs it, and one updates to it from each
earlier version. Needs Python 3.10, nothing else.
"""

from __future__ import annotations

import argparse
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent

_GUARD = r"""\echo Use "{command}" to load this file. \quit
"""

_RECORD = """
INSERT INTO idivm.migrations (number, name, checksum)
VALUES ({number}, '{name}', '{checksum}');
"""

_DECLARE = """
SET LOCAL check_function_bodies = off;
"""

_DECLARED = """
UPDATE idivm.declarations SET checksum = '{checksum}';
"""

# All rows in the catalog are the user's and belong into a dump, except for the records of what was applied, which the
# restored extension brings itself.
_DUMP_MARKS = """
DO $marks$
DECLARE
    relation regclass;
BEGIN
    FOR relation IN
        SELECT d.objid::regclass
        FROM pg_depend AS d
        JOIN pg_extension AS e ON e.oid = d.refobjid AND e.extname = 'idivm'
        JOIN pg_class AS c ON c.oid = d.objid AND c.relkind IN ('r', 'S')
        WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_extension'::regclass
          AND d.deptype = 'e'
          AND d.objid NOT IN ('idivm.migrations'::regclass, 'idivm.declarations'::regclass)
    LOOP
        PERFORM pg_extension_config_dump(relation, '');
    END LOOP;
END
$marks$;
"""

# Without it, capture follows partitions at the next refresh.
_EVENTS = """
DO $events$
BEGIN
    IF (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN
        CALL idivm.watch_partitions();
    END IF;
END
$events$;
"""


@dataclass(frozen=True)
class Migration:
    """One file of `migrations/`."""

    number: int
    name: str
    text: str

    @property
    def sql(self) -> str:
        """What it does, and the record of that, as the program itself would write it."""
        digest = hashlib.sha256(self.text.encode()).hexdigest()
        return self.text + _RECORD.format(number=self.number, name=self.name, checksum=digest)


def read_migrations(folder: Path) -> list[Migration]:
    """The migrations in a folder, which must be numbered without a gap."""
    paths = sorted(path for path in folder.iterdir() if re.fullmatch(r"\d{4}_\w+\.sql", path.name))
    migrations = [
        Migration(int(path.name[:4]), path.stem, path.read_text(encoding="utf-8")) for path in paths
    ]
    if [one.number for one in migrations] != list(range(1, len(migrations) + 1)) or not migrations:
        raise SystemExit(f"The migrations in {folder} are not numbered 1, 2, 3, ... without a gap.")
    return migrations


def declared(functions: Path, ending: str) -> str:
    """What declares all routines, with the record of that, as the program itself would write it."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(functions.glob("*.sql")))
    digest = hashlib.sha256(text.encode()).hexdigest()
    return _DECLARE + text + ending + _DECLARED.format(checksum=digest)


def scripts(bootstrap: str, migrations: list[Migration], ending: str) -> dict[str, str]:
    """The extension's scripts by file name: the installation, and the update from each earlier version."""
    last = migrations[-1].number
    made = {
        f"idivm--{last}.sql": _GUARD.format(command=f"CREATE EXTENSION idivm VERSION '{last}'")
        + bootstrap
        + "".join(migration.sql for migration in migrations)
        + ending
    }
    for number in range(1, last):
        made[f"idivm--{number}--{last}.sql"] = (
            _GUARD.format(command=f"ALTER EXTENSION idivm UPDATE TO '{last}'")
            + "".join(migration.sql for migration in migrations[number:])
            + ending
        )
    return made


def build(target: Path, folder: Path, functions: Path) -> list[Path]:
    """Write the control file and the scripts, and remove scripts of an earlier build."""
    migrations = read_migrations(folder)
    bootstrap, routines, module = (
        (folder / name).read_text(encoding="utf-8")
        for name in ("bootstrap.sql", "declared.sql", "module.sql")
    )
    control = (HERE / "idivm.control").read_text(encoding="utf-8")
    files = {
        "idivm.control": f"{control}default_version = '{migrations[-1].number}'\n",
        **scripts(
            bootstrap, migrations, declared(functions, routines) + module + _EVENTS + _DUMP_MARKS
        ),
    }
    target.mkdir(parents=True, exist_ok=True)
    for path in target.glob("idivm--*.sql"):
        if path.name not in files:
            path.unlink()
    for name, text in files.items():
        (target / name).write_text(text, encoding="utf-8")
    return [target / name for name in files]


def main() -> None:
    """The command line; prints the files that it wrote."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", type=Path, metavar="OUTDIR")
    parser.add_argument("--migrations", type=Path, default=HERE.parent / "migrations")
    parser.add_argument("--functions", type=Path, default=HERE.parent / "sql" / "functions")
    options = parser.parse_args()
    for path in build(options.target, options.migrations, options.functions):
        print(path)


if __name__ == "__main__":
    main()

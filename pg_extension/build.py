"""Builds the extension from migrations/: python pg_extension/build.py OUTDIR.

The extension's version is the number of the last migration. Each version gets a script that
installs it, and one that updates to it from the version before. Needs Python 3.10, nothing else.
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

# No migration puts rows into the catalog: all rows in it are the user's, and all of them belong
# into a dump. But for the record of migrations, which the restored extension brings itself.
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
          AND d.deptype = 'e' AND d.objid <> 'idivm.migrations'::regclass
    LOOP
        PERFORM pg_extension_config_dump(relation, '');
    END LOOP;
END
$marks$;
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


def scripts(bootstrap: str, migrations: list[Migration], module: str) -> dict[str, str]:
    """The extension's scripts by file name: an installation of each version, and each update."""
    made = {}
    ending = module + _DUMP_MARKS
    install = bootstrap
    for migration in migrations:
        number = migration.number
        install += migration.sql
        made[f"idivm--{number}.sql"] = (
            _GUARD.format(command=f"CREATE EXTENSION idivm VERSION '{number}'") + install + ending
        )
        if number > 1:
            made[f"idivm--{number - 1}--{number}.sql"] = (
                _GUARD.format(command=f"ALTER EXTENSION idivm UPDATE TO '{number}'")
                + migration.sql
                + ending
            )
    return made


def build(target: Path, folder: Path) -> list[Path]:
    """Writes the control file and the scripts, and removes scripts of an earlier build."""
    migrations = read_migrations(folder)
    bootstrap = (folder / "bootstrap.sql").read_text(encoding="utf-8")
    module = (folder / "module.sql").read_text(encoding="utf-8")
    control = (HERE / "idivm.control").read_text(encoding="utf-8")
    files = {
        "idivm.control": f"{control}default_version = '{migrations[-1].number}'\n",
        **scripts(bootstrap, migrations, module),
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
    options = parser.parse_args()
    for path in build(options.target, options.migrations):
        print(path)


if __name__ == "__main__":
    main()

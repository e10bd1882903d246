"""The command that says from where changes are captured: `idivm capture`."""

from __future__ import annotations

import argparse
import dataclasses

from orchestrator.catalog.wal import WalStatus
from orchestrator.cli.output import ago, open_orchestrator, print_done, print_json, print_table
from orchestrator.errors import UsageError


def capture(options: argparse.Namespace) -> int:
    """Run `idivm capture`."""
    if options.table is not None:
        if options.way is None:
            raise UsageError(
                f"Say from where, as in: idivm capture {options.table} --from wal (or triggers)."
            )
        with open_orchestrator(options) as orchestrator:
            orchestrator.capture(options.table, options.way)
        source = "read from the WAL" if options.way == "wal" else "logged by triggers"
        print_done(
            options,
            f"Changes of {options.table} are {source}.",
            table=options.table,
            capture=options.way,
        )
        return 0
    with open_orchestrator(options) as orchestrator:
        tables, slot = orchestrator.captures(), orchestrator.wal_status()
    if options.json:
        print_json(
            {
                "tables": [dataclasses.asdict(table) for table in tables],
                "slot": None if slot is None else dataclasses.asdict(slot),
            }
        )
        return 0
    if tables:
        print_table(("table", "captured from"), [(item.table, item.capture) for item in tables])
    else:
        print("No view reads a table.")
    if slot is not None:
        print(sentence(slot))
    return 0


def sentence(slot: WalStatus) -> str:
    """Return what the slot keeps of the WAL.

    >>> sentence(WalStatus("idivm_5", "reserved", 2048, 1 << 20, 1 << 30, None))
    'The slot idivm_5 is reserved: 2 kB of the WAL are unread, and it keeps 1,024 kB of at most 1,048,576 kB.'
    """
    lag, kept, most = (
        "unknown" if size is None else f"{size // 1024:,} kB"
        for size in (slot.lag, slot.kept, slot.most)
    )
    read = f" It was last read {ago(slot.read_at)}." if slot.read_at else ""
    return (
        f"The slot {slot.slot} is {slot.state}: {lag} of the WAL are unread, and it keeps {kept} of at most {most}."
        f"{read}"
    )

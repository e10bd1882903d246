"""What tests/entry/test_frameworks.py runs in a copy of examples/django_shop, in a process of its own."""

import os
import sys
from io import StringIO
from pathlib import Path

import django
from django.core.management import call_command
from django.db import connection

import idivm


def run(*command: str) -> str:
    output = StringIO()
    call_command(*command, verbosity=1, stdout=output)
    return output.getvalue()


def plan() -> None:
    [report] = idivm.Orchestrator(connection).plan()
    assert (report.view, report.strategy) == ("shop_total", "id"), report


if __name__ == "__main__":
    sys.path.insert(0, str(Path.cwd()))
    os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
    django.setup()
    from shop.models import Order, Total

    script = run("sqlmigrate", "shop", "0001")
    assert 'SELECT idivm.create_view(\'"shop_total"\', \'SELECT "shop_order"."customer"' in script
    assert "100% test" in script
    run("migrate")
    assert "No changes" in run("makemigrations", "--check", "--dry-run")
    plan()
    for amount in (1, 5):
        Order.objects.create(customer="ann", amount=amount)
    assert [(row.customer, row.total) for row in Total.objects.all()] == [("ann", 5)]
    assert "100% test" in Total.view_query()
    run("migrate", "shop", "0001")
    assert Total.objects.get(pk="ann").total == 6
    plan()
    Total.refresh()
    assert "Unapplying shop.0001" in run("migrate", "shop", "zero")
    assert idivm.Orchestrator(connection).views() == []

"""Orders, and the total of each customer."""

from django.db import migrations, models

from idivm.django import CreateMaintainedView


def totals(apps):
    """Return the query of the view, from the models as they are at this migration."""
    orders = apps.get_model("shop", "Order").objects
    orders = orders.exclude(customer="100% test")
    return orders.values("customer").annotate(total=models.Sum("amount"))


class Migration(migrations.Migration):
    """Create the table and the view."""

    initial = True
    dependencies = []
    operations = [
        migrations.CreateModel(
            "Order",
            [
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("customer", models.TextField()),
                ("amount", models.DecimalField(decimal_places=2, max_digits=12)),
            ],
        ),
        CreateMaintainedView(
            "Total",
            totals,
            {"maintain": "eager"},
            fields=[
                ("customer", models.TextField(primary_key=True, serialize=False)),
                ("total", models.DecimalField(decimal_places=2, max_digits=14)),
            ],
        ),
    ]

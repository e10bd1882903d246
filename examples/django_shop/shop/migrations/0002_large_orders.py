"""Count large orders alone."""

from django.db import migrations

from idivm.django import ReplaceMaintainedView


class Migration(migrations.Migration):
    """Replace the query of the view."""

    dependencies = [("shop", "0001_initial")]
    operations = [
        ReplaceMaintainedView(
            "Total",
            "SELECT customer, sum(amount) AS total FROM shop_order WHERE amount > 1 GROUP BY customer",
        ),
    ]

"""Orders in a table, and the total of each customer in a maintained view."""

from django.db import models

from idivm.django import MaintainedView


class Order(models.Model):
    """An order of a customer."""

    customer = models.TextField()
    amount = models.DecimalField(max_digits=12, decimal_places=2)

    # Django adds this anyway; type checkers only know what is written.
    objects = models.Manager()


class Total(MaintainedView):
    """The total of a customer, up to date at the end of each statement."""

    customer = models.TextField(primary_key=True)
    total = models.DecimalField(max_digits=14, decimal_places=2)

    class Meta:
        """The query is a QuerySet; `idivm.django` leaves the rest to Django."""

        maintained_view = (
            Order.objects.exclude(customer="100% test")
            .values("customer")
            .annotate(total=models.Sum("amount"))
        )
        maintained_options = {"maintain": "eager"}

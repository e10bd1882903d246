"""Scans only what a plan reads."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.scan import Scan
from orchestrator.algebra.plan import Plan
from orchestrator.algebra.traversal import rewrite, walk


def narrow_scans(plan: Plan) -> Plan:
    """The plan whose scans keep the columns that something reads, and the best key.

    >>> from orchestrator.algebra.examples import running_example
    >>> wide = running_example("did").root.input
    >>> [str(column) for column in narrow_scans(Plan(wide, (), ())).root.columns]
    ['pid', 'device', 'part', 'did', 'category']
    """
    used = frozenset(plan.columns).union(*(one.references for one in walk(plan.root)))
    used |= {
        c for one in walk(plan.root) for s in one.scalars for q in s.subqueries for c in q.columns
    }

    def narrowed(operator: Operator) -> Operator:
        return operator.narrowed(used) if isinstance(operator, Scan) else operator

    return replace(plan, root=rewrite(plan.root, narrowed))

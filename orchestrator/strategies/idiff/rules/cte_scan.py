"""A reference to a common table expression whose result is stored once, for all references."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.algebra.operators.cte_scan import CteScan
from orchestrator.deltascript.leaves import StateScan
from orchestrator.engine.composer import Composer
from orchestrator.strategies.idiff.rules.stored import refer


@refer.register
def _(operator: CteScan, stored: StateScan, composer: Composer) -> StateScan:
    pairs = operator.shared.renamed(operator.outputs)
    # A column that is shown twice is represented by its first output, as in the IDs of the result above.
    names = dict(reversed(pairs))
    return replace(
        stored,
        alias=composer.symbols.fresh("s"),
        outputs=tuple((new, stored.called(old)) for old, new in pairs),
        ids=tuple(names[column] for column in stored.ids),
        known=operator.dependencies,
        known_keys=operator.keys,
        known_not_null=operator.not_null,
    )

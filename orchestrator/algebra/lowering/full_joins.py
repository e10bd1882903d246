"""R ⟗_φ S as R ⟕_φ S ∪ (S ▷_φ R) ⟕ ∅: the rows of R with their partners, then the other rows of S.

The last join has the condition FALSE: it pads with NULLs of the types and collations of R.
"""

from __future__ import annotations

from orchestrator.algebra.columns import Symbols
from orchestrator.algebra.operators.antisemijoin import Antisemijoin
from orchestrator.algebra.operators.full_join import FullJoin
from orchestrator.algebra.operators.left_join import LeftJoin
from orchestrator.algebra.operators.set_operation import Branch
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.scalar import FALSE


def without_full_join(join: FullJoin, symbols: Symbols) -> UnionAll:
    """Return a full join as a union.

    >>> from orchestrator.algebra.examples import DEVICE, DEVICES, DEVICES_PARTS, DID
    >>> from orchestrator.algebra.plan import Plan
    >>> from orchestrator.algebra.printer import print_plan
    >>> from orchestrator.algebra.scalar import Scalar
    >>> join = FullJoin(DEVICES, DEVICES_PARTS, Scalar.read("did = device", [DID, DEVICE]))
    >>> plan = without_full_join(join, Symbols())
    >>> print(print_plan(Plan(plan, ("did",), (DID,)), ids=False))
    view did (hidden: category, device, part)
    └─ ∪ → did category device part
       ├─ ⟕ did = device
       │  ├─ scan devices
       │  └─ scan devices_parts
       └─ ⟕ FALSE
          ├─ ▷ did = device
          │  ├─ scan devices_parts
          │  └─ scan devices
          └─ scan devices
    """
    pairs = LeftJoin(join.left, join.right, join.condition)
    others = LeftJoin(Antisemijoin(join.right, join.left, join.condition), join.left, FALSE)
    columns = join.columns
    return UnionAll((Branch(pairs, columns), Branch(others, columns)), columns, across=join.keys)

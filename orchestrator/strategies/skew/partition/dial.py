"""The dial: the state with the present ε of a view, if it is open, and what was observed of changes and reads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.values import Values
from orchestrator.algebra.scalar import Scalar, filled
from orchestrator.deltascript.leaves import StateScan
from orchestrator.deltascript.plan import TurnDial
from orchestrator.engine.composer import Composer
from orchestrator.engine.states import store


def threshold_of(base: Scalar, epsilon: Scalar) -> Scalar:
    """Return N^ε."""
    return filled("power(x::double precision, y)", x=base, y=epsilon)


_COUNTERS = (
    ("relations", "oid[]", "{}"),
    ("scanned", "oid[]", "{}"),
    ("changes", "bigint", "0"),
    ("steps", "double precision", "0"),
    ("scans", "double precision", "0"),
    ("passed", "interval", "0"),
    ("due", "timestamptz", "-infinity"),
)
"""The columns of a dial beside ε, as in `TurnDial`, their types, and their first values."""


@dataclass(frozen=True)
class Dial:
    """The state of a single row with ε and counters, and another one with the observations.

    Each refresh updates the counters, which are short. The observations are long, and change at times.
    """

    state: StateScan
    observations: StateScan
    composer: Composer

    @staticmethod
    def stored(start: Fraction, composer: Composer) -> Dial:
        """Store a dial that shows an ε at first."""

        def single_row(role: str, cells: Iterable[tuple[str, str, str]]) -> StateScan:
            columns, values = zip(
                *(
                    (Column(composer.symbols.fresh(name), kind), Scalar.read(f"'{text}'::{kind}"))
                    for name, kind, text in cells
                ),
                strict=True,
            )
            row = Values((values,), columns)
            return store(composer.name(role), row, (), composer, followed=False)

        epsilon = ("epsilon", "double precision", str(float(start)))
        return Dial(
            single_row("dial", (epsilon, *_COUNTERS)),
            single_row("observations", [("observed", "jsonb", "{}")]),
            composer,
        )

    @property
    def epsilon(self) -> Column:
        """The column with ε."""
        return self.state.columns[0]

    def turn(
        self,
        partition: tuple[str, str],
        read: Iterable[str],
        scanned: Iterable[str],
        degrees: Iterable[tuple[str, str, int]],
        widths: tuple[Fraction, Fraction],
    ) -> None:
        """Add the step that chooses ε by what is observed; the arguments are as in `TurnDial`."""
        delta, width = widths
        epsilon, *counted = map(self.state.called, self.state.columns)
        [observed] = map(self.observations.called, self.observations.columns)
        state, base = partition
        self.composer.steps.append(
            TurnDial(
                self.state.role,
                epsilon,
                tuple(counted),
                self.observations.role,
                observed,
                state,
                base,
                tuple(dict.fromkeys(read)),
                tuple(dict.fromkeys(scanned)),
                tuple(degrees),
                float(delta),
                float(width),
            )
        )

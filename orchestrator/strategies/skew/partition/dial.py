"""The dial: the state with the present ε of a view, if it is open, and what was observed of changes and reads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from orchestrator.algebra.columns import Column
from orchestrator.algebra.copies import copied
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.set_operation import Branch
from orchestrator.algebra.operators.values import Values
from orchestrator.algebra.scalar import Scalar, filled
from orchestrator.deltascript.leaves import StateScan
from orchestrator.deltascript.plan import TurnDial
from orchestrator.engine.composer import Composer
from orchestrator.engine.states import store


def threshold_of(base: Scalar, epsilon: Scalar) -> Scalar:
    """Return N^ε."""
    return filled("power(x::double precision, y)", x=base, y=epsilon)


@dataclass(frozen=True)
class Dial:
    """The state of a single row with ε and the observations."""

    state: StateScan
    composer: Composer

    @staticmethod
    def stored(start: Fraction, composer: Composer) -> Dial:
        """Store a dial that shows an ε at first."""
        columns = (
            Column(composer.symbols.fresh("epsilon"), "double precision"),
            Column(composer.symbols.fresh("observed"), "jsonb"),
        )
        row = (Scalar.read(f"{float(start)}::double precision"), Scalar.read("'{}'::jsonb"))
        dial = Values((row,), columns)
        return Dial(store(composer.name("dial"), dial, (), composer, followed=False), composer)

    @property
    def epsilon(self) -> Column:
        """The column with ε."""
        return self.state.columns[0]

    def turned(self, partition: StateScan, base: Column, threshold: Column) -> Branch:
        """Return the row 0 if the dial shows another ε than that of the threshold."""
        dial, of_dial = copied(self.state, self.composer.symbols)
        stored, of_state = copied(partition, self.composer.symbols)
        wanted = threshold_of(Scalar.column(of_state[base]), Scalar.column(of_dial[self.epsilon]))
        differs = filled("x <> y", x=of_state[threshold], y=wanted)
        more = Column(self.composer.symbols.fresh("more"), "bigint")
        rows = Selection(Join(dial, stored), differs)
        return Branch(Projection(rows, (Item(more, Scalar.read("0::bigint")),)), (more,))

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
        epsilon, observed = map(self.state.called, self.state.columns)
        state, base = partition
        self.composer.steps.append(
            TurnDial(
                self.state.role,
                epsilon,
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

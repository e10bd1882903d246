"""Facts that operators derive, where the fixtures' data alone would not tell a wrong one."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.algebra import (
    Branch,
    Column,
    DependentJoin,
    FunctionScan,
    Item,
    Join,
    LeftJoin,
    Limit,
    Plan,
    Projection,
    Scalar,
    Selection,
    Symbols,
    UnionAll,
)
from orchestrator.algebra.examples import (
    DEVICE,
    DEVICES,
    DEVICES_PARTS,
    DID,
    PART,
    PARTS,
    PID,
    PRICE,
    joined,
    running_example,
)
from orchestrator.algebra.rendering import to_text
from orchestrator.algebra.traversal import fold, unfold, walk


def test_components_of_the_key_determine_their_part() -> None:
    """Example 2.5 of the paper: pid → price and did → category in the join."""
    known = joined().dependencies
    assert known.imply([PID], [PRICE, PART]) and known.imply([DEVICE], [DID])
    assert not known.imply([DID], [PRICE])
    assert joined().keys == {frozenset({DEVICE, PART})} or len(joined().keys) == 1


def test_a_join_on_a_key_keeps_the_other_sides_key() -> None:
    single = Join(DEVICES_PARTS, PARTS, Scalar.read("part = pid", [PART, PID]))
    [key] = single.keys
    assert len(key) == 2, "one part for each row, so that the key does not grow"


def test_a_left_join_on_a_key_keeps_the_left_key() -> None:
    join = LeftJoin(DEVICES_PARTS, PARTS, Scalar.read("part = pid", [PART, PID]))
    assert join.keys == {frozenset({DEVICE, PART})}
    assert join.dependencies.imply([PART], [PID, PRICE])
    many = LeftJoin(PARTS, DEVICES_PARTS, Scalar.read("part = pid", [PART, PID]))
    assert not any(key <= {PID} for key in many.keys)


def test_a_constant_shortens_a_key() -> None:
    selection = Selection(DEVICES_PARTS, Scalar.read("device = 7", [DEVICE]))
    assert selection.keys == {frozenset({PART})}
    assert Limit(PARTS, (), Scalar.read("1")).keys == {frozenset()}


def test_values_that_only_compare_equal_determine_no_text() -> None:
    text = Column("shown")
    projection = Projection(
        Projection(PARTS, (Item.kept(PRICE),)),
        (Item.kept(PRICE), Item(text, Scalar.read("(price)::text", [PRICE]))),
    )
    assert not projection.dependencies.imply([PRICE], [text])
    exact = Projection(DEVICES, (Item.kept(DID), Item(text, Scalar.read("(did)::text", [DID]))))
    assert exact.dependencies.imply([DID], [text])


def test_a_union_determines_nothing_without_the_branch() -> None:
    out = (Column("id"), Column("of"))
    union = UnionAll((Branch(PARTS, (PID, PRICE)), Branch(DEVICES, (DID, DID))), out)
    assert not union.dependencies.items and not union.keys
    tagged = UnionAll(
        tuple(replace(b, columns=(*b.columns, b.columns[0])) for b in union.branches),
        (*out, Column("b")),
        Column("b"),
    )
    assert tagged.dependencies.imply([out[0], Column("b")], [out[1]])
    assert not tagged.dependencies.imply([out[0]], [out[1]])


def test_a_dependent_join_gives_its_columns_to_the_right_side() -> None:
    unnested = FunctionScan((Scalar.read("f(did)", [DID]),), "u", (Column("u"),))
    assert unnested.outer_columns == {DID}
    assert not DependentJoin(DEVICES, unnested).outer_columns
    assert Join(DEVICES, unnested).outer_columns == {DID}


def test_fold_visits_inputs_first() -> None:
    order: list[str] = []
    fold(joined(), lambda operator, _: order.append(operator.symbol))
    assert order == ["scan", "scan", "⋈", "scan", "σ", "⋈"]


def test_unfold_passes_down_what_was_given() -> None:
    seen: list[int] = []

    def divide(operator, depth):  # type: ignore[no-untyped-def]
        seen.append(depth)
        return operator, tuple(depth + 1 for _ in operator.children)

    assert unfold(joined(), 0, divide) == joined()
    assert seen == [0, 1, 2, 2, 1, 2]


def test_an_operator_equals_only_operators() -> None:
    for other in (None, 1, "scan", DEVICES):
        assert joined() != other and other != joined()
    assert joined() == joined()


def test_every_operator_is_rebuilt_from_its_inputs() -> None:
    for operator in walk(running_example().root):
        assert operator.with_children(operator.children) == operator


def test_sql_of_the_running_example() -> None:
    assert to_text(running_example()).split() == [
        "SELECT",
        "devices.did,",
        "parts.pid,",
        "parts.price",
        "FROM",
        "public.parts",
        "JOIN",
        "public.devices_parts",
        "ON",
        "devices_parts.pid",
        "=",
        "parts.pid",
        "JOIN",
        "public.devices",
        "ON",
        "devices_parts.did",
        "=",
        "devices.did",
        "WHERE",
        "devices.category",
        "=",
        "'phone'",
    ]


def test_sql_of_a_projection_below_a_grouped_key_is_a_derived_table() -> None:
    doubled = Column("doubled")
    projection = Projection(PARTS, (Item(doubled, Scalar.read("price * 2", [PRICE])),))
    assert to_text(Plan(projection, ("twice",), (doubled,))).split() == (
        ["SELECT", "parts.price", "*", "2", "AS", "twice", "FROM", "public.parts"]
    )


def test_symbols_fit_into_identifiers() -> None:
    symbols = Symbols()
    long = "x" * 80
    assert [len(symbols.fresh(long)), len(symbols.fresh(long))] == [63, 63]

"""ID inference, rule by rule (papers/idivm.txt, table 1)."""

from __future__ import annotations

from orchestrator.algebra import (
    Aggregate,
    Antisemijoin,
    Branch,
    Column,
    Distinct,
    FullJoin,
    Grouping,
    Item,
    Join,
    LeftJoin,
    Numbered,
    Operator,
    Plan,
    Projection,
    Recursion,
    Scalar,
    Scan,
    ScanColumn,
    Selection,
    Semijoin,
    Symbols,
    Table,
    UnionAll,
    Unsupported,
    Values,
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
    extended_example,
    joined,
    running_example,
)
from orchestrator.algebra.ids import ids_of, infer_ids

NOTE = Column("note", "text", "text_ops", exact=True)
NOTES = Scan(Table(9, "public", "notes"), "notes", (ScanColumn(NOTE, 1, "note"),))


def identified(operator: Operator) -> tuple[Plan, list[str]]:
    """The extended plan of an operator, and its IDs."""
    plan = infer_ids(Plan(operator, (), ()))
    assert isinstance(plan, Plan), plan
    return plan, [str(column) for column in ids_of(plan.root)]


def refused(operator: Operator) -> Unsupported:
    refusal = infer_ids(Plan(operator, (), ()))
    assert isinstance(refusal, Unsupported)
    return refusal


def test_scan_has_its_key() -> None:
    assert identified(DEVICES_PARTS)[1] == ["device", "part"]


def test_rows_without_a_key_are_numbered() -> None:
    plan, ids = identified(Selection(NOTES, Scalar.read("note = 'x'", [NOTE])))
    assert ids == ["idivm_row", "idivm_nth"]
    [numbered] = plan.root.children
    assert numbered == Numbered.of(NOTES, Symbols())
    assert infer_ids(plan) == plan and ids_of(NOTES) == ()


def test_selection_and_projection_keep_ids() -> None:
    selected = Selection(PARTS, Scalar.read("price > 1", [PRICE]))
    assert identified(selected)[1] == ["pid"]
    plan, ids = identified(Projection(selected, (Item.kept(PRICE),)))
    assert ids == ["pid"]
    assert [str(column) for column in plan.root.columns] == ["price", "pid"]


def test_projection_takes_an_equal_column_for_a_missing_id() -> None:
    same = Join(PARTS, DEVICES_PARTS, Scalar.read("part = pid", [PART, PID]))
    plan, ids = identified(Projection(same, (Item.kept(PART), Item.kept(DEVICE))))
    assert ids == ["part", "device"]
    assert plan.root.columns == (PART, DEVICE)


def test_product_has_the_ids_of_both_sides() -> None:
    assert identified(Join(PARTS, DEVICES))[1] == ["pid", "did"]


def test_join_counts_equal_ids_once() -> None:
    assert identified(joined())[1] == ["pid", "device"]


def test_running_examples() -> None:
    assert identified(running_example().root)[1] == ["pid", "did"]
    assert identified(extended_example().root)[1] == ["did"]


def test_semijoin_and_antisemijoin_have_the_left_ids() -> None:
    condition = Scalar.read("device = did", [DEVICE, DID])
    for kind in (Semijoin, Antisemijoin):
        assert identified(kind(DEVICES, DEVICES_PARTS, condition))[1] == ["did"]


def test_outer_joins_have_both_ids_although_they_may_be_null() -> None:
    condition = Scalar.read("device = did", [DEVICE, DID])
    plan, ids = identified(LeftJoin(DEVICES, DEVICES_PARTS, condition))
    assert ids == ["did", "device", "part"]
    assert plan.root.not_null == {DID}
    plan, ids = identified(FullJoin(DEVICES, DEVICES_PARTS, condition))
    assert ids == ["did", "device", "part"] and not plan.root.not_null


def test_grouping_has_its_columns() -> None:
    total = Aggregate(Column("total"), Scalar.read("sum(price)", [PRICE]))
    assert identified(Grouping(PARTS, (), (total,)))[1] == []
    assert identified(Grouping(joined(), (DID, PRICE), (total,)))[1] == ["did", "price"]


def test_duplicate_elimination_becomes_grouping() -> None:
    plan, ids = identified(Distinct(Projection(PARTS, (Item.kept(PRICE),))))
    assert ids == ["price"] and isinstance(plan.root, Grouping)


def test_union_adds_the_number_of_the_branch() -> None:
    out = Column("id")
    union = UnionAll((Branch(PARTS, (PID,)), Branch(DEVICES, (DID,))), (out,))
    plan, ids = identified(union)
    assert ids == ["id", "b"]
    assert [str(column) for column in plan.hidden] == ["id", "b"]


def test_union_carries_ids_that_a_branch_does_not_show() -> None:
    out = Column("price")
    constant = Projection(DEVICES, (Item(Column("zero"), Scalar.read("0")),))
    union = UnionAll((Branch(PARTS, (PRICE,)), Branch(constant, (Column("zero"),))), (out,))
    plan, ids = identified(union)
    assert ids == ["pid_2", "b"], "both IDs are integers and share a column"
    wider = UnionAll((*union.branches, Branch(DEVICES_PARTS, (DEVICE,))), (out,))
    assert identified(wider)[1] == ["pid_2", "part_2", "b"], "a price changes, so it is no ID"
    assert infer_ids(plan) == plan


def test_union_shows_an_id_beside_a_constant() -> None:
    constant = Projection(DEVICES, (Item(Column("zero"), Scalar.read("0")),))
    branches = (Branch(PARTS, (PID,)), Branch(constant, (Column("zero"),)))
    ids = identified(UnionAll(branches, (Column("id"),)))[1]
    assert ids == ["id", "did_2", "b"]


def test_rows_written_out_are_numbered() -> None:
    column = Column("a")
    single = Values(((Scalar.read("1"),),), (column,))
    assert identified(single)[1] == []
    assert identified(Values((*single.rows, *single.rows), (column,)))[1] == ["row"]


def test_recursion_that_keeps_duplicates_is_numbered() -> None:
    out = Column("a")
    recursion = Recursion("r", Branch(PARTS, (PID,)), Branch(DEVICES, (DID,)), (out,), all=True)
    _, ids = identified(recursion)
    assert ids == ["idivm_row", "idivm_nth"]
    plan, ids = identified(Recursion("r", recursion.base, recursion.step, (out,)))
    assert ids == ["a"] and plan.root.keys == {frozenset({out})}

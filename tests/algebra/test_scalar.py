"""Scalar expressions: equality, references, substitution, subqueries."""

from __future__ import annotations

from sqlglot import exp

from orchestrator.algebra import TRUE, Column, Scalar, Selection, Subquery, conjunction
from orchestrator.algebra.examples import DEVICE, DEVICES_PARTS, DID, PART

INNER = Selection(DEVICES_PARTS, Scalar.read("device = did", [DEVICE, DID]))
HOLE = exp.Parameter(this=exp.Literal.number(1))
SOME = Scalar.of(exp.Exists(this=HOLE), [], (Subquery(INNER, (PART,)),))
A, B = Column("a"), Column("b")


def test_a_scalar_hands_out_copies_of_its_tree() -> None:
    scalar = Scalar.read("a + 1", [A])
    scalar.tree.set("this", exp.Literal.number(7))
    assert scalar == Scalar.read("a + 1", [A])


def test_equal_texts_over_different_columns_are_the_same_only_by_symbol() -> None:
    assert Scalar.read("a", [A]) == Scalar.read("a", [Column("a", "integer")])
    assert Scalar.read("a", [A]) != Scalar.read("a", [])


def test_references_reach_into_subqueries() -> None:
    assert SOME.references == {DID} and not SOME.columns
    assert INNER.outer_columns == {DID}


def test_substitution_reaches_into_subqueries() -> None:
    changed = SOME.substitute({DID: Scalar.read("a + 1", [A])})
    assert changed.references == {A}
    assert changed != SOME and SOME.references == {DID}


def test_conjunction_keeps_subqueries_apart() -> None:
    both = conjunction([SOME, Scalar.read("a = 1", [A]), SOME.substitute({DID: Scalar.column(B)})])
    assert both.sql == "EXISTS($1) AND a = 1 AND EXISTS($2)"
    assert [query.correlated for query in both.subqueries] == [{DID}, {B}]
    assert both.conjuncts[0] == SOME
    assert both.conjuncts[2].subqueries[0].correlated == {B}


def test_conjunction_of_nothing_is_true() -> None:
    assert conjunction([]) == TRUE == conjunction([TRUE, TRUE])


def test_conjunction_does_not_mix_with_or() -> None:
    either = Scalar.read("a OR b", [A, B])
    assert conjunction([either, either]).sql == "(a OR b) AND (a OR b)"


def test_as_column_sees_through_parentheses_only() -> None:
    assert Scalar.read("((a))", [A]).as_column == A
    assert Scalar.read("(a)::integer", [A]).as_column is None
    assert Scalar.read("1").as_column is None

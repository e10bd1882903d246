"""What conditions establish, and which expressions never are NULL."""

from __future__ import annotations

import pytest

from orchestrator.algebra import Column, Scalar
from orchestrator.algebra.predicates import facts, never_null

A = Column("a", "integer", "integer_ops", exact=True)
B = Column("b", "bigint", "integer_ops", exact=True)
N = Column("n", "numeric", "numeric_ops 1700")
T = Column("t", "text", "text_ops", exact=True)
R = Column("r", "pair", "record_ops 1")
BOX = Column("box", "box")
OUTER = Column("elsewhere", "integer", "integer_ops", exact=True)
INPUTS = (A, B, N, T, R, BOX)

FACTS = {
    # condition: equal pairs, constants, columns that are not NULL
    "a = b": (["a b"], [], ["a", "b"]),
    "(a = b) AND (t = 'x'::text)": (["a b"], ["t"], ["a", "b", "t"]),
    "a = n": ([], [], ["a", "n"]),
    "a = elsewhere": ([], ["a"], ["a"]),
    "a = (b + 1)": ([], [], ["a"]),
    "a = a": ([], [], ["a"]),
    "box = '(0,0),(1,1)'::box": ([], [], ["box"]),
    "(a = 1) OR (b = 2)": ([], [], []),
    "NOT (a = 1)": ([], [], ["a"]),
    "NOT (a = ANY ('{1}'::integer[]))": ([], [], []),
    "NOT (ROW(a, b) = ROW(1, 2))": ([], [], []),
    "a IS NULL": ([], ["a"], []),
    "a IS NOT NULL": ([], [], ["a"]),
    "(NOT (a IS NULL))": ([], [], ["a"]),
    "r IS NULL": ([], [], []),
    "a IS DISTINCT FROM b": ([], [], []),
    "a <> 1": ([], [], ["a"]),
    "t ~~ 'x%'::text": ([], [], ["t"]),
    "t !~ 'x'::text": ([], [], ["t"]),
    "a = ANY ('{1,2}'::integer[])": ([], [], ["a"]),
    "a <> ALL ('{}'::integer[])": ([], [], []),
    "ROW(a, b) = ROW(1, 2)": ([], [], []),
    "a OPERATOR(public.=) b": ([], [], []),
    "COALESCE(a, 1) = 1": ([], [], []),
}


@pytest.mark.parametrize("condition", FACTS)
def test_facts(condition: str) -> None:
    known = facts(Scalar.read(condition, [*INPUTS, OUTER]), INPUTS)
    equal = [" ".join(sorted(map(str, pair))) for pair in known.equal]
    constant = sorted(map(str, known.constant))
    assert (equal, constant, sorted(map(str, known.not_null))) == FACTS[condition]


NEVER_NULL = {
    "a": True,
    "b": False,
    "a + 1": True,
    "a + b": False,
    "-a": True,
    "a > 1": True,
    "a = ANY ('{1,NULL}'::integer[])": False,
    "a = ALL ('{1,NULL}'::integer[])": False,
    "ROW(a, b) = ROW(1, 2)": False,
    "(a > 1) AND (b > 1)": False,
    "NOT (a > 1)": True,
    "b IS NULL": True,
    "b IS NOT TRUE": True,
    "COALESCE(b, a)": True,
    "COALESCE(b, NULL::integer)": False,
    "GREATEST(b, a)": True,
    "NULLIF(a, 1)": False,
    "CASE WHEN b > 1 THEN a ELSE 0 END": True,
    "CASE WHEN b > 1 THEN a END": False,
    "'x'::text": True,
    "NULL::text": False,
    "(a)::text": False,
    "t || 'x'::text": False,
    "lower(t)": False,
    "public.coalesce(a)": False,
    "'(0,0)'::point + '(1,1)'::point": False,
}


@pytest.mark.parametrize("expression", NEVER_NULL)
def test_never_null(expression: str) -> None:
    scalar = Scalar.read(expression, INPUTS)
    assert never_null(scalar, {A, T}) == NEVER_NULL[expression]

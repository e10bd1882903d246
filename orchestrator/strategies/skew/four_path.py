"""The 4-path count over heavy and light parts (papers/ivm-eps-counting-triangles.txt, appendix G).

R(A), S(A, B), T(B, C) and U(C) are joined in a row. S is divided on A and T on C, and both together on B: a
value of B is heavy if S and T together have many rows with it, so the heavy part of one never joins the
light part of the other. The plan has four cases. The paper divides S and T on B separately and has sixteen.

- B is heavy: there are few values of B. The join of R and S, and the join of T and U, are stored for each.
- B is light and A heavy: S and T are joined for pairs (A, C), and each C has few pairs. After the join with
  U, a change of R only looks up the few heavy values of A.
- B and A are light and C is heavy: as before, from the other side.
- All are light: the join of R and S, and the join of T and U, are stored for each B.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import permutations

from orchestrator.algebra.unsupported import Unsupported
from orchestrator.strategies.skew.counts import plan_of, rule, through, where
from orchestrator.strategies.skew.exponents import Exponents
from orchestrator.strategies.skew.partition.split import Split
from orchestrator.strategies.skew.triangle import HEAVY, LIGHT, Division, SkewPlan, joined
from orchestrator.strategies.viewtree.hypergraph import Hypergraph, Variables


def four_path(graph: Hypergraph, exponents: Exponents) -> SkewPlan | Unsupported:
    """Return the plan of R(A), S(A, B), T(B, C), U(C), or why a query does not have that form.

    >>> from orchestrator.strategies.skew.show import plan_text
    >>> edges = {"R": "A", "S": "AB", "T": "BC", "U": "C"}
    >>> print(plan_text(four_path(Hypergraph.of(edges), Exponents(Fraction(1, 4)))))
    divided at N^1/4, the rows of heavy values and those of light ones:
      S, T by B
      S by B, A: S_hh[A, B] *, S_hl[A, B] *, S_lh[A, B] *, S_ll[A, B] *
      T by B, C: T_hh[B, C] *, T_hl[B, C] *, T_lh[B, C] *, T_ll[B, C] *
      R whole: R[A] *
      U whole: U[C] *
    stored besides:
      V@A(R, S_h)[B] *, kept after a change of R in O(N^3/4), of S_h in O(1)
      V@C(T_h, U)[B] *, kept after a change of T_h in O(1), of U in O(N^3/4)
      V@B(S_lh, T_l)[A, C] *, kept after a change of S_lh in O(N^1/4), of T_l in O(N^1/4)
      V@C(S_lh, T_l, U)[A] *, kept after a change of V@B(S_lh, T_l)[A, C] in O(N^1/4), of U in O(N^3/4)
      V@B(S_ll, T_lh)[A, C] *, kept after a change of S_ll in O(N^1/4), of T_lh in O(N^1/4)
      V@A(R, S_ll, T_lh)[C] *, kept after a change of V@B(S_ll, T_lh)[A, C] in O(N^1/4), of R in O(N^3/4)
      V@A(R, S_ll)[B] *, kept after a change of R in O(N^1/4), of S_ll in O(1)
      V@C(T_ll, U)[B] *, kept after a change of T_ll in O(1), of U in O(N^1/4)
    a change of R adds to V(R, S, T, U)[] *:
      - h h -: δR ⋈ S_h[A, B] ⋈ V@C(T_h, U)[B] in O(N^3/4)
      - lh l -: δR ⋈ V@C(S_lh, T_l, U)[A] in O(1)
      - ll lh -: δR ⋈ V@B(S_ll, T_lh)[A, C] ⋈ U[C] in O(N^3/4)
      - ll ll -: δR ⋈ S_ll[A, B] ⋈ V@C(T_ll, U)[B] in O(N^1/4)
    a change of S adds to V(R, S, T, U)[] *:
      - h h -: δS_h ⋈ R[A] ⋈ V@C(T_h, U)[B] in O(1)
      - lh l -: δS_lh ⋈ R[A] ⋈ T_l[B, C] ⋈ U[C] in O(N^1/4)
      - ll lh -: δS_ll ⋈ R[A] ⋈ T_lh[B, C] ⋈ U[C] in O(N^1/4)
      - ll ll -: δS_ll ⋈ R[A] ⋈ V@C(T_ll, U)[B] in O(1)
    a change of T adds to V(R, S, T, U)[] *:
      - h h -: δT_h ⋈ U[C] ⋈ V@A(R, S_h)[B] in O(1)
      - lh l -: δT_l ⋈ U[C] ⋈ S_lh[A, B] ⋈ R[A] in O(N^1/4)
      - ll lh -: δT_lh ⋈ U[C] ⋈ S_ll[A, B] ⋈ R[A] in O(N^1/4)
      - ll ll -: δT_ll ⋈ U[C] ⋈ V@A(R, S_ll)[B] in O(1)
    a change of U adds to V(R, S, T, U)[] *:
      - h h -: δU ⋈ T_h[B, C] ⋈ V@A(R, S_h)[B] in O(N^3/4)
      - lh l -: δU ⋈ V@B(S_lh, T_l)[A, C] ⋈ R[A] in O(N^3/4)
      - ll lh -: δU ⋈ V@A(R, S_ll, T_lh)[C] in O(1)
      - ll ll -: δU ⋈ T_ll[B, C] ⋈ V@A(R, S_ll)[B] in O(N^1/4)
    """
    row = _row(graph)
    if row is None or graph.free - row[1]:
        return Unsupported("it is no count over four tables in a row", where(graph))
    (r, s, t, u), everywhere = row
    schemas = graph.schemas
    a, b, c = schemas[r], schemas[s] & schemas[t], schemas[u]
    together_on_b = Split("_".join(sorted(b)), (s, t), b)
    division_of = {
        r: Division(r, a, ()),
        s: Division(s, schemas[s], (b, a), (together_on_b,)),
        t: Division(t, schemas[t], (b, c), (together_on_b,)),
        u: Division(u, c, ()),
    }
    divisions = [division_of[name] for name, _ in graph.edges]
    first, second, third, last = division_of[r], division_of[s], division_of[t], division_of[u]
    end, start = last.whole, first.whole
    s_h, s_lh, s_ll = map(second.part, (HEAVY, LIGHT + HEAVY, LIGHT + LIGHT))
    t_h, t_l, t_lh, t_ll = map(third.part, (HEAVY, LIGHT, LIGHT + HEAVY, LIGHT + LIGHT))
    at_a, at_b, at_c = (variables - everywhere for variables in (a, b, c))
    before, after = joined(graph, b, (start, s_h), at_a), joined(graph, b, (t_h, end), at_c)
    from_a = joined(graph, a | c, (s_lh, t_l), at_b)
    to_a = joined(graph, a, (from_a, end), at_c)
    from_c = joined(graph, a | c, (s_ll, t_lh), at_b)
    to_c = joined(graph, c, (from_c, start), at_a)
    left, right = joined(graph, b, (start, s_ll), at_a), joined(graph, b, (t_ll, end), at_c)
    few, many, least, none = (
        exponents.light(s),
        exponents.heavy(s),
        exponents.least,
        Fraction(0),
    )
    rules = {
        r: (
            rule(divisions, first, (s_h, after), many),
            through(divisions, first, (s_lh, t_l, end), to_a),
            rule(divisions, first, (from_c, end), many),
            rule(divisions, first, (s_ll, right), few),
        ),
        s: (
            rule(divisions, second, (start, after), none, s_h),
            rule(divisions, second, (start, t_l, end), few, s_lh),
            rule(divisions, second, (start, t_lh, end), least, s_ll),
            rule(divisions, second, (start, right), none, s_ll),
        ),
        t: (
            rule(divisions, third, (end, before), none, t_h),
            rule(divisions, third, (end, s_lh, start), least, t_l),
            rule(divisions, third, (end, s_ll, start), few, t_lh),
            rule(divisions, third, (end, left), none, t_ll),
        ),
        u: (
            rule(divisions, last, (t_h, before), many),
            rule(divisions, last, (from_a, start), many),
            through(divisions, last, (start, s_ll, t_lh), to_c),
            rule(divisions, last, (t_ll, left), few),
        ),
    }
    upkeep = {
        (before, start): many,
        (before, s_h): none,
        (after, t_h): none,
        (after, end): many,
        (from_a, s_lh): few,
        (from_a, t_l): least,
        (to_a, from_a): few,
        (to_a, end): many,
        (from_c, s_ll): least,
        (from_c, t_lh): few,
        (to_c, from_c): few,
        (to_c, start): many,
        (left, start): few,
        (left, s_ll): none,
        (right, t_ll): none,
        (right, end): few,
    }
    views = (before, after, from_a, to_a, from_c, to_c, left, right)
    ordered = {division.atom: rules[division.atom] for division in divisions}
    single = replace(exponents, double=False)
    return plan_of(graph, single, "a 4-path count", divisions, ordered, views, upkeep)


def _row(graph: Hypergraph) -> tuple[tuple[str, ...], Variables] | None:
    """Return the atoms in the order of the path, and the variables that all atoms have."""
    if len(graph.edges) != 4:
        return None
    everywhere = frozenset.intersection(*(schema for _, schema in graph.edges))
    own = {name: schema - everywhere for name, schema in graph.edges}
    for names in permutations(own):
        a, s, t, c = map(own.__getitem__, names)
        b = s & t
        if a and b and c and s == a | b and t == b | c and not (a & b or b & c or a & c):
            return names, everywhere
    return None

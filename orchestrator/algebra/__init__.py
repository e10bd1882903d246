"""Immutable relational algebra: operators, schemas, keys and functional dependencies."""

from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.operators.antisemijoin import Antisemijoin
from orchestrator.algebra.operators.base import Identified, Operator, SortKey
from orchestrator.algebra.operators.cte_scan import CteScan
from orchestrator.algebra.operators.dependent_join import DependentJoin
from orchestrator.algebra.operators.difference import Difference
from orchestrator.algebra.operators.distinct import Distinct
from orchestrator.algebra.operators.distinct_on import DistinctOn
from orchestrator.algebra.operators.full_join import FullJoin
from orchestrator.algebra.operators.function_scan import FunctionScan
from orchestrator.algebra.operators.group import Aggregate, Grouping
from orchestrator.algebra.operators.grouping_sets import GroupingSets
from orchestrator.algebra.operators.intersect import Intersection
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.left_join import LeftJoin
from orchestrator.algebra.operators.limit import Limit
from orchestrator.algebra.operators.numbered import Numbered
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.recursive import Recursion, RecursiveScan
from orchestrator.algebra.operators.scan import Reference, Scan, ScanColumn, Table
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.semijoin import Semijoin
from orchestrator.algebra.operators.set_operation import Branch
from orchestrator.algebra.operators.sort import Sort
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.operators.values import Values
from orchestrator.algebra.operators.window import Window
from orchestrator.algebra.plan import Plan
from orchestrator.algebra.scalar import TRUE, Scalar, Subquery, conjunction
from orchestrator.algebra.unsupported import Unsupported

__all__ = [
    "TRUE",
    "Aggregate",
    "Antisemijoin",
    "Branch",
    "Column",
    "CteScan",
    "DependentJoin",
    "Difference",
    "Distinct",
    "DistinctOn",
    "FullJoin",
    "FunctionScan",
    "Grouping",
    "GroupingSets",
    "Identified",
    "Intersection",
    "Item",
    "Join",
    "LeftJoin",
    "Limit",
    "Numbered",
    "Operator",
    "Plan",
    "Projection",
    "Recursion",
    "RecursiveScan",
    "Reference",
    "Scalar",
    "Scan",
    "ScanColumn",
    "Selection",
    "Semijoin",
    "Sort",
    "SortKey",
    "Subquery",
    "Symbols",
    "Table",
    "UnionAll",
    "Unsupported",
    "Values",
    "Window",
    "conjunction",
]

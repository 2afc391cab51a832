"""Cases of primitives/reduction.py."""

from tests.cases.case import Case

CASES: list[Case] = []

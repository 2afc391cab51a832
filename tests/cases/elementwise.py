"""Cases of primitives/elementwise.py."""

from tests.cases.case import Case

CASES: list[Case] = []

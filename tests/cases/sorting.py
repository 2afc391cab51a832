"""Cases of primitives/sorting.py."""

from tests.cases.case import Case

CASES: list[Case] = []

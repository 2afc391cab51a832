"""Cases of primitives/indexing.py."""

from tests.cases.case import Case

CASES: list[Case] = []

"""Cases of primitives/contraction.py."""

from tests.cases.case import Case

CASES: list[Case] = []

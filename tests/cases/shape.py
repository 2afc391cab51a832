"""Cases of primitives/shape.py."""

from tests.cases.case import Case

CASES: list[Case] = []

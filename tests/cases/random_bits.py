"""Cases of primitives/random_bits.py."""

from tests.cases.case import Case

CASES: list[Case] = []

"""Cases of primitives/convolution.py."""

from tests.cases.case import Case

CASES: list[Case] = []

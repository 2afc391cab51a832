"""More random loops as kernels: see tests/matrix/test_loop_programs.py."""

from __future__ import annotations

import pytest

from tests.matrix.test_loop_programs import SEEDS, check


@pytest.mark.parametrize("seed", range(SEEDS, 40))
def test_more_random_loops(seed: int):
    check(seed)

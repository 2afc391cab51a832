"""The long tables of several devices, on eight virtual ones of CPU."""

from __future__ import annotations

from tests.parity import test_explicit_axes, test_ours_inside_shard_map, test_pmap, test_shard_map
from tests.parity.test_on_eight_devices import run_on_eight


def test_explicit_axes_on_eight_virtual_devices():
    n = len(test_explicit_axes.CASES)
    run_on_eight([str(test_explicit_axes.__file__)], 2 * n - test_explicit_axes.USUAL, "-m", "sweep")


def test_the_other_rows_on_eight_virtual_devices():
    """Those that the default run leaves out."""
    twice = [test_pmap.CASES, test_shard_map.CASES]
    inside = test_ours_inside_shard_map
    count = (
        sum(len(rows) // 2 * 2 for rows in twice) + len(inside.CASES) // 2 * 4 + len(inside.DERIVATIVES) // 2
    )
    files = [str(module.__file__) for module in (test_pmap, test_shard_map, inside)]
    run_on_eight(files, count, "-m", "sweep")

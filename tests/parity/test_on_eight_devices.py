"""The tests of several devices, on eight virtual ones of CPU.

A process has the devices it was started with, so what these files hold for eight runs in another.
To run one of them alone:
`XLA_FLAGS=--xla_force_host_platform_device_count=8 pytest tests/parity/test_pmap.py`
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sized
from typing import Any

import pytest

from tests.parity import (
    test_explicit_axes,
    test_ours_inside_shard_map,
    test_pmap,
    test_shard_map,
    test_spmd_axis_name,
)


def half(rows: Sized) -> int:
    """The number of rows that `alternately` leaves to the default run."""
    return (len(rows) + 1) // 2


COUNTS = {
    test_shard_map: half(test_shard_map.CASES) * 2 + len(test_shard_map.RULES) + 12,
    test_spmd_axis_name: len(test_spmd_axis_name.CASES) * 2 + 3,
    test_explicit_axes: test_explicit_axes.USUAL + 7,
}
MORE_COUNTS = {
    test_pmap: half(test_pmap.CASES) * 2 + 14,
    test_ours_inside_shard_map: half(test_ours_inside_shard_map.CASES) * 4
    + half(test_ours_inside_shard_map.DERIVATIVES)
    + len(test_ours_inside_shard_map.LIBRARIES) * len(test_ours_inside_shard_map.JITS)
    + 1,
}


def run_on_eight(files: list[str], count: int, *options: str) -> None:
    """Run test files in a process with eight devices; `count` of their tests must pass."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    env["XLA_FLAGS"] = f"{env['XLA_FLAGS']} --xla_force_host_platform_device_count=8"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, *files]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert f"{count} passed" in done.stdout


@pytest.mark.parametrize(
    "counts", [pytest.param(COUNTS, marks=pytest.mark.smoke), MORE_COUNTS], ids=["shardings", "maps"]
)
def test_on_eight_virtual_devices(counts: dict[Any, int]):
    run_on_eight([str(module.__file__) for module in counts], sum(counts.values()))

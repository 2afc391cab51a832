"""The long tables of several devices, on eight virtual ones of CPU."""

from __future__ import annotations

from tests.parity import test_explicit_axes
from tests.parity.test_on_eight_devices import run_on_eight


def test_explicit_axes_on_eight_virtual_devices():
    n = len(test_explicit_axes.CASES)
    run_on_eight([str(test_explicit_axes.__file__)], 2 * n - test_explicit_axes.USUAL, "-m", "sweep")

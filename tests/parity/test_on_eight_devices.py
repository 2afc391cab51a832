"""The tests of several devices, on eight virtual ones of CPU.

A process has the devices it was started with, so what these files hold for eight runs in another.
To run one of them alone:
`XLA_FLAGS=--xla_force_host_platform_device_count=8 pytest tests/parity/test_pmap.py`
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SHARDINGS = ["test_shard_map.py", "test_spmd_axis_name.py", "test_explicit_axes.py"]
MAPS = ["test_pmap.py", "test_ours_inside_shard_map.py"]


@pytest.mark.parametrize(
    ("files", "at_least"),
    [pytest.param(SHARDINGS, 24, marks=pytest.mark.smoke), pytest.param(MAPS, 38, marks=pytest.mark.rest)],
    ids=["shardings", "maps"],
)
def test_on_eight_virtual_devices(files: list[str], at_least: int):
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    env["XLA_FLAGS"] = f"{env['XLA_FLAGS']} --xla_force_host_platform_device_count=8"
    paths = [str(Path(__file__).with_name(name)) for name in files]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *paths]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed
    assert int(passed[1]) >= at_least

"""Tests of several devices: eight of CPU, in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys


def passes_on_eight(file: str, count: int) -> None:
    """Run a file of tests on eight virtual devices, where so many must pass."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    env["XLA_FLAGS"] = f"{env['XLA_FLAGS']} --xla_force_host_platform_device_count=8"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", file]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert f"{count} passed" in done.stdout

"""The doctor: print versions and devices, and compare every operation with the reference on each.

`python -m functrans` runs it. In: streams and devices. Out: text, and whether all checks pass.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TextIO

import jax

from functrans import caching, errors
from functrans.inspect.compare import compare
from functrans.inspect.operation_samples import Sample, samples
from functrans.inspect.page import columns
from functrans.inspect.staged import output_stream
from functrans.ir.program import Program
from functrans.ir.source import brief_with_type, here
from functrans.ir.tracebacks import boundary
from functrans.passes.rewrite import children_first
from functrans.records import NamedTuple
from functrans.typing import Device

_PACKAGES = ("functrans", "jax", "jaxlib", "numpy", "scipy", "ml_dtypes", "opt_einsum")
_WIDTH = 30  # width of the progress bar


class Row(NamedTuple):
    """An operation on a device: its worst error over the samples that use it, in ULPs, the limit,
    and the problem ("" if none)."""

    operation: str
    ulps: float
    limit: float
    problem: str


@boundary
def doctor(
    output: TextIO | None = None,
    devices: Sequence[Device] | None = None,
    chosen: Sequence[Sample] | None = None,
) -> bool:
    """Check the installation: print versions, compare every operation on each device, list caches.

    Arguments:
      output: text stream; left out: the terminal.
      devices: devices to check; left out: the first device of each kind that JAX sees.
      chosen: samples (inspect/operation_samples.py); left out: all.

    Returns: whether all checks pass.

    Raises:
      InvalidArgument: `output` is not a stream, or an entry of `devices` not a device.

    Example:
      >>> import io, functrans as ft
      >>> text = io.StringIO()
      >>> ft.doctor(text, chosen=[])
      True
    """
    stream = output_stream(output, "doctor")
    if devices is None:  # the first of each kind
        devices = list({(d.platform, d.device_kind): d for d in reversed(_all_devices())}.values())[::-1]
    for device in devices:
        if not isinstance(device, jax.Device):
            raise errors.InvalidArgument(
                f"doctor: devices must be a list of jax.Devices, one is {brief_with_type(device)}, {here()}\n"
                "Write devices=ft.devices('cpu')."
            )
    stream.write(_versions())
    chosen = list(samples()) if chosen is None else chosen
    well = True
    for device in devices:
        stream.write(f"\n{device.platform}: {device.device_kind}\n")
        rows, seconds = _examine(device, chosen, stream)
        bad = [r for r in rows if r.problem]
        well = well and not bad
        stream.write(_table(rows) + "\n")
        verdict = f"{len(bad)} of {len(rows)} operations failed" if bad else "all passed"
        stream.write(f"{len(rows)} operations in {seconds:.0f} s: {verdict}\n")
    cells = [tuple(map(str, row)) for row in caching.report() if row.hits or row.misses]
    caches = columns(("cache", "entries", "limit", "hits", "misses", "evictions"), cells)
    stream.write(f"\n{caches}\n")
    return well


def _versions() -> str:
    lines = [f"Python {platform.python_version()} on {platform.platform()}"]
    for name in _PACKAGES:
        try:
            lines.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            lines.append(f"{name} is not installed as a package")
    shown = ", ".join([f"{d.platform}:{d.id} ({d.device_kind})" for d in _all_devices()])
    return "\n".join([*lines, f"devices: {shown}"]) + "\n"


def _all_devices() -> list[Any]:
    """Return the devices of the default platform, and the CPU."""
    found = list(jax.devices())
    if all(d.platform != "cpu" for d in found):
        found += jax.devices("cpu")
    return found


def _examine(device: Any, chosen: Sequence[Sample], stream: TextIO) -> tuple[list[Row], float]:
    """Return one row per operation that the samples use, and the time in seconds."""
    start = time.monotonic()
    rows: dict[str, Row] = {}
    with jax.default_device(device):
        for i, (name, function, operands) in enumerate(chosen):
            _progress(stream, i, len(chosen), name)
            for row in _rows(name, function, operands):
                known = rows.get(row.operation)
                if known is None or (bool(row.problem), row.ulps) > (bool(known.problem), known.ulps):
                    rows[row.operation] = row
    _progress(stream, len(chosen), len(chosen), "")
    return sorted(rows.values()), time.monotonic() - start


def _rows(name: str, function: Any, operands: tuple[Any, ...]) -> list[Row]:
    """Compare one sample; return a row per operation that it uses."""
    try:
        report = compare(function, passes=())(*operands)
    except Exception as error:  # any error of the backend is reported as the problem
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        return [Row(name, float("inf"), 0.0, f"{type(error).__name__}: {first:.60}")]
    worst = {f.primitive: f for f in reversed(report.worst)}
    rows = []
    for operation in operations_of(report.program):
        found = worst.get(operation)
        ulps, limit = (found.ulps, found.limit) if found else (0.0, 0.0)
        problem = f"inaccurate in sample {name!r}" if found and ulps > limit else ""
        rows.append(Row(operation, ulps, limit, problem))
    if not report.ok and not any(r.problem for r in rows):
        where = report.first.primitive if report.first else name
        rows.append(Row(where, float("inf"), 0.0, report.verdict))
    return rows


def operations_of(program: Program) -> list[str]:
    names = [e.primitive.name for p in children_first(program) for e in p.equations]
    return list(dict.fromkeys(names))


def _progress(stream: TextIO, done: int, total: int, name: str) -> None:
    """Redraw the progress bar; do nothing if the stream is not a terminal."""
    if not stream.isatty():
        return
    full = _WIDTH * done // max(total, 1)
    bar = "#" * full + "." * (_WIDTH - full)
    stream.write(f"\r[{bar}] {done}/{total} {name:28.28}")
    stream.write("\r" + " " * (_WIDTH + 45) + "\r" if done == total else "")
    stream.flush()


def _table(rows: Sequence[Row]) -> str:
    """Format the rows: problems first, then the largest errors; exact operations in one line."""
    shown = sorted([r for r in rows if r.ulps], key=lambda r: (not r.problem, -r.ulps))
    cells = [(r.operation, r.ulps, r.limit, r.problem) for r in shown]
    exact = [r.operation for r in rows if not r.ulps]
    text = columns(("operation", "worst ULP", "expected", ""), cells)
    return text + f"\nexact: {', '.join(exact)}"

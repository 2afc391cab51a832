"""What every test may rely on, and which tests run when nothing is said.

The tests compile much and run little. So LLVM optimizes nothing in them, and XLA:CPU writes its loops
by its older emitters, which also write what is inside one of our kernels: half the time. XLA's own
passes, which see what we emit, are not affected; `XLA_FLAGS= pytest` runs as users do, and so do the
sweeps, but for the threads that compile a program. What is compiled is kept in
`.test_cache/`, by JAX's persistent cache, for the next run. One MLIR context serves many programs: JAX
makes one for each, of all its dialects, in a third of such a run's time.
"""

import gc
import os
import platform
import threading
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any
from zlib import crc32

os.environ.setdefault("FUNCTRANS_TRACEBACK", "full")  # a failing test shows where
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy's: two workers fill two cores

import jax
import jaxlib
import pytest
from jax._src.interpreters import mlir

import functrans as ft
from functrans.trace import state
from tests.support.reporting import described
from tests.support.versions import ONE_PART, QUICK_FLAGS

gc.disable()  # while tests are collected
HERE = Path(__file__).parent
_ran = count(1)
_TABLE, _LONG = 4, 12  # rows from which on half of them wait, or two thirds
_KEPT = 250  # tests whose compiled programs are held: some 15 MB each


def _keep_compilations() -> None:
    """For this process and those that tests start. A folder for each pair of versions: a key of
    JAX's tells versions apart, but nothing would ever delete those of old ones."""
    root = os.environ.get("FUNCTRANS_TEST_CACHE", str(HERE.parent / ".test_cache"))
    versions = f"{jax.__version__}-{jaxlib.__version__}-{platform.machine()}"
    settings = {
        "jax_compilation_cache_dir": str(Path(root, versions)),
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
        "jax_persistent_cache_enable_xla_caches": "none",
    }
    for name, value in settings.items():
        os.environ.setdefault(name.upper(), str(value))
        jax.config.update(name, value)


_keep_compilations()
_new_context = mlir.make_ir_context
_contexts = threading.local()  # one for each thread, since nothing locks it


def _kept_context() -> Any:
    """A new one for a program that is lowered inside of another: its module would go into that."""
    if mlir.ir.Context.current is not None:
        return _new_context()
    if not hasattr(_contexts, "mlir"):
        _contexts.mlir = _new_context()
    return _contexts.mlir


mlir.make_ir_context = _kept_context


@pytest.fixture(autouse=True)
def nothing_left_active():
    yield
    left, state.innermost, state.provenance = state.innermost, None, None
    assert left is None, "the test left a trace active"
    assert not jax.config.jax_enable_x64, "the test left 64-bit types enabled"


@pytest.fixture(autouse=True)
def bounded_memory():
    yield
    if next(_ran) % _KEPT == 0:
        ft.clear_caches()
        _contexts.__dict__.clear()
        _freeze()


def _freeze() -> None:
    """What is left now stays: the collector need not look through it again and again."""
    gc.unfreeze()  # what was left before may have become garbage
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    if report.failed and call.excinfo is not None:
        report.sections.append(("what failed", described(item, call.excinfo)))
    return report


def pytest_configure(config: pytest.Config) -> None:
    flags = ONE_PART if _are_sweeps(config) else QUICK_FLAGS
    os.environ.setdefault("XLA_FLAGS", flags)  # read when the first program is compiled


def _are_sweeps(config: pytest.Config) -> bool:
    """Return whether sweeps are asked for, by their marker or a path."""
    by_marker = "sweep" in config.option.markexpr.replace("not sweep", "")
    return by_marker or any("sweep" in arg for arg in config.args)


def pytest_collection_finish() -> None:
    """What is traced makes many objects: 700 of them are no reason to collect."""
    _freeze()
    gc.set_threshold(20_000)
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What stands in `sweep/` is marked so, and part of the rows of tables `rest`. Sweeps and heavy tests
    run when they are asked for: by their marker (`-m sweep`, `-m heavy`) or, a sweep, by its path; the `rest`
    also when a path or a keyword is given. Of files that are marked `smoke` as a whole, that run leaves out
    what is `long`."""
    for item in items:
        if item.path.is_relative_to(HERE / "sweep"):
            item.add_marker(pytest.mark.sweep)
    _mark_rest(items)
    asked = config.option.markexpr
    unasked = {m for m in ("rest", "sweep", "heavy") if m not in asked}
    if config.option.keyword or config.args != config.getini("testpaths"):
        unasked.discard("rest")
    if _are_sweeps(config):
        unasked.discard("sweep")
    if "smoke" in asked:
        unasked.add("long")
    left_out = {item for item in items if any(item.get_closest_marker(m) for m in unasked)}
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


def _mark_rest(items: list[pytest.Item]) -> None:
    """Mark every second row of each table, of a long one two of three, by its name, so that a new row moves
    no other. Sweeps are tables of their own."""
    rows: dict[pytest.Item, tuple[str, bool]] = {}
    for item in items:
        if hasattr(item, "callspec") and not item.get_closest_marker("heavy"):
            rows[item] = item.nodeid.partition("[")[0], item.get_closest_marker("sweep") is not None
    lengths = Counter(rows.values())
    for item, table in rows.items():
        share = 1 if lengths[table] < _TABLE else 2 if lengths[table] < _LONG else 3
        every = item.get_closest_marker("every")
        if crc32(item.nodeid.encode()) % (every.args[0] if every else share):
            item.add_marker(pytest.mark.rest)

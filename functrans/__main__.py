"""`python -m functrans` checks the installation and compares all operations with their references.
`python -m functrans run SCRIPT` runs a script or module as Python does, with `jax.jit` taken over.

The script sees what it would see without functrans: `sys.argv`, `__name__`, `sys.path[0]`, its own
tracebacks and exit code. The script itself imports JAX, so environment variables that it sets before
that take effect. At the end the report of `take_over`, if not empty, is written to standard error.
"""

import argparse
import builtins
import os
import runpy
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import SourceFileLoader
from types import CodeType, ModuleType, TracebackType
from typing import Any

import functrans
from functrans import interop
from functrans.loading import when_imported

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep


def run(words: Sequence[str]) -> None:
    """Run the script or module given after `python -m functrans run`."""
    about = "Run an unchanged JAX script with ft.jit in place of the outermost jax.jit."
    parser = argparse.ArgumentParser(
        prog="python -m functrans run",
        description=about,
        epilog="FUNCTRANS_TAKE_OVER=0 in the environment runs it with JAX alone.",
        usage="%(prog)s [-h] [--explain] [--keep-memory] (SCRIPT | -m MODULE) [ARGUMENTS ...]",
    )
    explained = "report at the end what became of each function"
    parser.add_argument("--explain", action="store_true", help=explained)
    kept = "call ft.keep_memory() when the script has imported JAX"
    parser.add_argument("--keep-memory", action="store_true", help=kept)
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, help="a module to run")
    parser.add_argument("script", nargs="?", help="a script to run")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the script")
    given = parser.parse_args(words)
    if not given.module and given.script is None:
        parser.error("expected a script, or -m and a module")
    if given.script is not None and not os.path.exists(given.script):
        parser.error(f"can't open file {given.script!r}")
    _take_over_later(given.explain)
    if given.keep_memory:
        when_imported("jax", lambda: functrans.keep_memory())  # not JAX now
    try:
        if given.module:
            sys.argv[:] = given.module
            runpy.run_module(given.module[0], run_name="__main__", alter_sys=True)
        else:
            sys.argv[:] = [given.script, *given.arguments]
            _run_script(given.script)
    except BaseException:
        sys.excepthook = _without_ours(sys.excepthook)
        raise


def _run_script(path: str) -> None:
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    if os.path.isdir(path):
        runpy.run_path(path, run_name="__main__")
        return
    main = ModuleType("__main__")
    main.__file__ = os.path.abspath(path)
    main.__loader__ = _Script("__main__", main.__file__)
    main.__dict__.update(__builtins__=builtins, __annotations__={}, __cached__=None)
    sys.modules["__main__"] = main
    main.__loader__.exec_module(main)


class _Script(SourceFileLoader):
    """A loader for a script that writes no bytecode cache."""

    def get_code(self, _name: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def _take_over_later(explain: bool) -> None:
    """Take over when the program, after importing JAX, first calls `jax.jit`."""

    def take_over() -> None:
        interop.take_over(explain=explain)

    if os.environ.get("FUNCTRANS_TAKE_OVER") != "0":
        when_imported("jax", lambda: interop.jit_callers.when_first_asked(take_over))


def _without_ours(show: Callable[..., None]) -> Callable[..., None]:
    """Wrap an exception hook so that it drops our outer frames from the traceback."""

    def shown(kind: Any, error: BaseException, tb: TracebackType | None) -> None:
        while tb is not None and tb.tb_frame.f_code.co_filename.startswith((_OURS, "<frozen ")):
            tb = tb.tb_next
        show(kind, error.with_traceback(tb), tb)

    return shown


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        run(sys.argv[2:])  # before JAX is imported: the script may configure it
        sys.exit()
    about = "Show what is installed, and compare every operation with its reference on each device."
    parser = argparse.ArgumentParser(prog="python -m functrans", description=about)
    told = "doctor is the default; for run, see: python -m functrans run --help"
    parser.add_argument("command", nargs="?", choices=("doctor", "run"), help=told)
    parser.parse_args()
    sys.exit(0 if functrans.doctor() else 1)

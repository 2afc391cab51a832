"""`take_over`: make a JAX program's `jax.jit` mean `ft.jit`.

In: a program that uses only JAX. Out: the same program, with its outermost jitted functions traced,
optimized and compiled by functrans, and a report of those that are not.

Every call of `jax.jit`, under any name (`from jax import jit` before or after, a
`functools.partial`, a library's decorator), ends in one function of a JAX module, `make_jit`, which
it looks up each time. Only that attribute is replaced: `jax.jit` stays the same object, and one
assignment restores it. The caller is read from the frame that called `jax.jit`: functions that JAX
or functrans jit for themselves stay JAX's, and so do functions that were jitted before.

    called                          what runs
    while nothing is traced         `ft.jit` of the function
    while JAX or functrans traces   JAX's function, so the outer trace sees its operations
    after an error of ours only     JAX's function, from then on

An error before anything ran may be ours or the program's. A `raise` or `assert` in the program's
own files is the program's. After any other error JAX's function is called. If it fails too, the
program sees JAX's error; else the function stays JAX's from then on, and the report says why. No
computation runs twice: errors at run time (in a callback, or NaN checks) are propagated, and so are
errors while jit is disabled.
"""

from __future__ import annotations

import atexit
import inspect
import os
import site
import sys
import sysconfig
import weakref
from collections import Counter
from collections.abc import Callable
from dis import opmap
from types import CodeType, FrameType, FunctionType
from typing import Any, TextIO

import jax
from jax._src import pjit
from jax._src.core import trace_state_clean
from jax._src.sharding_impls import UnspecifiedValue

from functrans.api.compilation import Jitted
from functrans.api.jit import jit
from functrans.api.retracing import codes
from functrans.caching import cached
from functrans.errors import FunctransError
from functrans.flags import flags
from functrans.interop.jit_callers import is_programs
from functrans.ir.program import Program
from functrans.ir.source import is_users, line_of, text_of
from functrans.ir.tracebacks import boundary, frames, hide_frames, raised_at
from functrans.passes.explanation import Report, changes, measured, reported
from functrans.passes.pipeline import DEFAULT, chosen
from functrans.pytrees.functions import function_name

_make_jit = pjit.make_jit  # JAX's
_OPTIONS = set(inspect.signature(jit).parameters)
_RAISE = opmap["RAISE_VARARGS"]
_RUNNING = (jax.errors.JaxRuntimeError, FloatingPointError)  # errors at run time


class PjitFunction(Jitted[..., Any]):
    """A function that the program jitted: ours while nothing is traced, else JAX's. Attributes not
    defined here are those of JAX's function: its `trace` shows and exports JAX's operations. The class
    has JAX's class name, which libraries check.

    ours   : the function to call while nothing is traced; None: always JAX's
    theirs : JAX's jitted function
    """

    __slots__ = ("_function", "_jitted", "_make", "ours", "theirs")

    ours: Any
    theirs: Any
    _jitted: Any

    def __new__(cls, fun: Any, theirs: Any, function: Function, make: Callable[[], Any]) -> Any:
        made: Any = None

        def run(*args: Any, **kwargs: Any) -> Any:
            try:
                ours = made.ours
                if ours is None or not trace_state_clean():
                    return theirs(*args, **kwargs)
                try:
                    return ours(*args, **kwargs)
                except Exception as error:
                    if _is_programs(error):
                        raise
                    failed = error
                return made.tried(failed, theirs, args, kwargs)
            except Exception as error:
                hide_frames(error)
                raise

        made = super().__new__(cls, run, fun, jit)
        made.theirs, made._function, made._make = theirs, function, make
        made.ours, made._jitted = made._first, None
        return made

    def _first(self, *args: Any, **kwargs: Any) -> Any:
        return self.begun()(*args, **kwargs)

    def begun(self) -> Any:
        """Return the function to call while nothing is traced; made on first use."""
        if self._jitted is None and self.ours is not None:
            self._function.called = True
            self.ours = self._jitted = self._make()
        return self.ours or self.theirs

    def tried(self, error: Exception, ask: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """After an error of ours, call JAX's function, or a method `ask` of it. If that succeeds,
        use JAX's from then on; if not, its error is raised."""
        answer = ask(*args, **kwargs)
        self.ours = self._jitted = None
        self._function.refuse(why(error), self.__wrapped__)
        return answer

    @boundary
    def lower(self, *args: Any, **kwargs: Any) -> Any:
        if self.ours is None or not trace_state_clean():
            return self.theirs.lower(*args, **kwargs)
        try:
            return self.begun().lower(*args, **kwargs)
        except Exception as error:
            if _is_programs(error):
                raise
            failed = error
        return self.tried(failed, self.theirs.lower, args, kwargs)

    def clear_cache(self) -> None:
        """Clear the caches of JAX's function and of ours."""
        self.theirs.clear_cache()
        if self._jitted is not None:
            self._jitted.clear_cache()

    def _cache_size(self) -> int:
        ours = 0 if self._jitted is None else self._jitted.cache_size()
        return ours + self.theirs._cache_size()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.theirs, name)

    def __repr__(self) -> str:
        return repr(self.theirs)

    def __reduce__(self) -> Any:  # unpickled in another process, it is JAX's function
        return _itself, (self.theirs,)


def _itself(x: Any) -> Any:
    return x


class TakeOver:
    """The context manager that `take_over` returns; its `str` is the report.

    functions : a `Function` record for each function jitted since
    """

    def __init__(self, explain: bool, output: TextIO | None):
        self.functions: list[Function] = []
        self._explain = explain
        self._output = output
        self._by_place: dict[Any, Function] = {}
        self._made: weakref.WeakSet[Any] = weakref.WeakSet()

    def __enter__(self) -> TakeOver:
        return self

    def __exit__(self, *exc: object) -> None:
        self.give_back()

    def give_back(self) -> None:
        """Restore `jax.jit`, also in the functions that were taken over, and write the report."""
        if self not in _active:
            return
        _active.remove(self)
        if not _active:
            pjit.make_jit = _make_jit
        atexit.unregister(self.give_back)
        for made in list(self._made):
            made.ours = None
        if self._explain or any(f.refused for f in self.functions):
            (self._output or sys.stderr).write(f"{self}\n")

    def __str__(self) -> str:
        called = [f for f in self.functions if f.called]
        refused = [f for f in called if f.refused]
        n = len(called) - len(refused)
        head = f"functrans took over {n} of {len(called)} jitted functions"
        shown = called if self._explain else refused
        return "\n".join([head + ":" * bool(shown), *[f.text(self._explain) for f in shown]])

    __repr__ = __str__

    def jitted(self, fun: Any, theirs: Any, options: dict[str, Any]) -> PjitFunction:
        """Return the object that the program gets instead of JAX's jitted function."""
        key = record_of(fun)
        function = self._by_place.get(key)
        if function is None:
            function = self._by_place[key] = Function(*key)
            self.functions.append(function)

        def make() -> Any:
            obstacle = function.refusal_of(fun) or _obstacle(options)
            if obstacle:
                function.refuse(obstacle, fun)
                return None
            given: dict[str, Any] = {
                name: None if isinstance(x, UnspecifiedValue) else x
                for name, x in options.items()
                if name in _OPTIONS
            }
            if self._explain:
                given["passes"] = [_watching(function)]
            try:
                return jit(fun, **given)
            except FunctransError as error:
                function.refuse(why(error), fun)
                return None

        made = PjitFunction(fun, theirs, function, make)
        self._made.add(made)
        return made


_active: list[TakeOver] = []


def take_over(*, explain: bool = False, output: TextIO | None = None) -> TakeOver:
    """Make the outermost `jax.jit` of this program mean `ft.jit`, in its libraries too.

    JAX's own function still runs for functions that JAX jits for itself, that were jitted before,
    that are called while another function is traced, or on which `ft.jit` fails and `jax.jit` does
    not. The last kind is reported at the end, on standard error. All arguments of `jax.jit` and the
    methods of jitted functions work as before; `trace` and `jax.export` use JAX's function. The
    environment variable `FUNCTRANS_TAKE_OVER=0` turns it off.

    `python -m functrans run SCRIPT` does this for an unmodified script. For pytest, put this in a
    `conftest.py`:

        import functrans as ft

        ft.interop.take_over()

    Arguments:
      explain: report at the end, for every function, whether it was taken over, its equations
        before and after the passes, the rewrites, and its estimated FLOPs and bytes.
      output: text stream for the report; left out: standard error.

    Returns:
      A context manager that restores `jax.jit` on exit. Without a `with` statement it lasts until
      its `give_back()` is called or the program ends. Its `str` is the report.

    Example:
      >>> import functrans as ft, jax, jax.numpy as jnp
      >>> with ft.interop.take_over() as taken:
      ...     double = jax.jit(lambda x: jnp.sin(x) + jnp.sin(x))
      ...     print(double(0.5))
      0.9588511
      >>> print(taken)
      functrans took over 1 of 1 jitted functions
    """
    taken = TakeOver(explain, output)
    if os.environ.get("FUNCTRANS_TAKE_OVER") != "0":
        _active.append(taken)
        pjit.make_jit = _made_jit
        atexit.register(taken.give_back)
    return taken


def _made_jit(fun: Callable[..., Any], **options: Any) -> Any:
    """Replace JAX's `make_jit` while a take-over is active."""
    theirs = _make_jit(fun, **options)
    return _active[-1].jitted(fun, theirs, options) if is_programs(sys._getframe(1)) else theirs


def _obstacle(options: dict[str, Any]) -> str:
    """Return why a function with these options must stay JAX's; "" if it can be ours."""
    if jax.process_count() > 1:
        return "the program runs in several processes"
    if options.get("use_resource_env"):
        return "pjit reads the mesh around its call"
    unknown = [name for name in options.keys() - _OPTIONS if options[name]]
    return f"ft.jit has no option {', '.join(sorted(unknown))}" if unknown else ""


def _watching(function: Function) -> Callable[[Program], Program]:
    """Return a pass that runs all default passes and records their report."""

    def passes(program: Program) -> Program:
        function.reports.append(reported(program, chosen(DEFAULT)))
        return function.reports[-1].after

    return passes


def _is_programs(error: Exception) -> bool:
    """Return whether the error is certainly the program's own, or was raised at run time."""
    if isinstance(error, _RUNNING) or flags.jax_disable_jit:
        return True
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, FunctransError):
            return False
        seen = seen.__context__
    last = raised_at(error)
    if last is None or not is_own(last.tb_frame.f_code):
        return False
    return last.tb_frame.f_code.co_code[last.tb_lasti] == _RAISE


# --- what became of each function -----------------------------------------------------------------

_INSTALLED = tuple(
    [
        os.path.join(path, "")
        for path in {
            *[sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")],
            *site.getsitepackages(),
            site.getusersitepackages(),
        }
    ]
)
_WIDTH = 200  # maximal length of a reason
_KINDS = 5  # kinds of rewrites shown per pass


class Function:
    """A function of the program, or all functions made at one location with one name.

    place   : the user's line
    called  : whether it was called, or lowered, while nothing was traced
    refused : why it stays JAX's; "" if it is ours
    reports : what the passes did to each program, if `explain` is set
    """

    def __init__(self, name: str, place: str):
        self.name = name
        self.place = place
        self.called = False
        self.refused: str = ""
        self.reports: list[Report] = []
        self._refused: weakref.WeakSet[Any] = weakref.WeakSet()

    def refuse(self, why: str, fun: Any) -> None:
        """Record that it stays JAX's, also when the same function is jitted again."""
        self.refused = self.refused or why
        if fun.__class__ is FunctionType:
            self._refused.add(fun)

    def refusal_of(self, fun: Any) -> str:
        """Return why a function was refused before, or ""."""
        return self.refused if fun.__class__ is FunctionType and fun in self._refused else ""

    def text(self, explain: bool) -> str:
        """Return its lines of the report."""
        lines = [f"    {self.name}, {self.place}"]
        if self.refused:
            lines.append(f"        run by JAX: {self.refused}")
        elif explain:
            lines.append("        taken over")
        for report, n in Counter(map(_told, self.reports)).items():
            lines += [f"        {line}" for line in report.split("\n")]
            lines[-1] += f" ({n} times)" if n > 1 else ""
        return "\n".join(lines)


def _told(report: Report) -> str:
    """Summarize a report: the sizes, and the number of rewrites of each kind."""
    n, flops, moved = changes(measured(report.before), measured(report.after))
    lines = [f"equations {n}, FLOPs {flops}, bytes {moved}"]
    for step in report.steps:
        found = Counter([what for what, _ in step.rewrites]).most_common()
        if found:
            more = ["..."] if len(found) > _KINDS else []
            kinds = [f"{n} x {what}" for what, n in found[:_KINDS]] + more
            lines.append(f"    {step.name}: {', '.join(kinds)}")
    return "\n".join(lines)


def record_of(fun: Any) -> tuple[str, str]:
    """Return the name of a function that is being jitted, and its location: where the program
    defines it, or else the innermost program line on the stack."""
    *_, code = None, *codes(fun)
    line = 0 if code is None else code.co_firstlineno
    if code is None or not is_own(code):
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and not is_own(frame.f_code):
            frame = frame.f_back
        if frame is not None:
            code, line = frame.f_code, frame.f_lineno
    return function_name(fun), "<unknown>" if code is None else _shown(code, line)


def why(error: Exception) -> str:
    """Return an error as one line, with the innermost program line of its traceback."""
    said = (str(error).strip().split("\n")[0])[:_WIDTH].rstrip(".,: ").removesuffix(", at")
    text = f"{type(error).__name__}: {said}"
    own = [(tb.tb_frame.f_code, tb.tb_lasti, "") for tb in frames(error) if is_own(tb.tb_frame.f_code)]
    return f"{text}, at {_shown(own[-1][0], line_of(own[-1]))}  {text_of(own[-1])}" if own else text


def is_own(code: CodeType) -> bool:
    """Return whether the code is in the program itself, not in a library."""
    return _is_own_file(code.co_filename)


@cached("files of the user's", 4096)
def _is_own_file(name: str) -> bool:
    return is_users(compile("", name, "exec")) and not name.startswith((*_INSTALLED, "<frozen ", "<string>"))


def _shown(code: CodeType, line: int) -> str:
    name = code.co_filename
    near = os.path.relpath(name) if os.path.isabs(name) else name
    return f"{name if near.startswith('..') else near}:{line}"

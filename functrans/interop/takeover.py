"""`take_over`: a program's own `jax.jit` means ours.

In: a program that knows JAX alone. Out: the same program, whose outermost jitted functions are
traced, rewritten and compiled by us, and a report of those that are not.

Every call of `jax.jit`, by whatever name the function was kept (`from jax import jit` before or
after, a `functools.partial`, a decorator of a library), ends in one function of JAX's own module,
`make_jit`, which it looks up there each time. Only that entry is exchanged: no name that someone
holds is searched for, `jax.jit` stays the same object, and all is given back by one assignment. Who
asks is read from the frame that called `jax.jit`: what JAX jits for itself, and what we do, stays
JAX's. So do functions that were jitted before.

    called                          what runs
    while nothing is traced         `ft.jit` of the function
    while JAX or functrans traces   JAX's function, as ever: the trace around it sees its operations
    after an error of ours alone    JAX's function, from then on

An error before anything ran may be ours or the program's. A `raise` or `assert` of the program's
own files is the program's. After any other one JAX's function is called: if it fails too, JAX's
error is what the program sees, else the function is JAX's from then on and the report says why. No
computation is run twice: what is raised while a program runs (a callback's error, a NaN that is
looked for) is handed on, and so is what is raised while jit is disabled.
"""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from collections.abc import Callable
from dis import opmap
from types import TracebackType
from typing import Any, TextIO

import jax
from jax._src import pjit
from jax._src.core import trace_state_clean
from jax._src.sharding_impls import UnspecifiedValue

from functrans.api.compilation import Jitted
from functrans.api.jit import jit
from functrans.errors import FunctransError
from functrans.flags import flags
from functrans.interop.jit_callers import is_programs
from functrans.interop.takeover_report import Function, is_own, record_of, why
from functrans.ir.program import Program
from functrans.ir.tracebacks import boundary, hide_frames
from functrans.passes.explain import reported
from functrans.passes.pipeline import DEFAULT, chosen

_make_jit = pjit.make_jit  # JAX's
_OPTIONS = {
    "in_shardings", "out_shardings", "static_argnums", "static_argnames", "donate_argnums",
    "donate_argnames", "keep_unused", "device", "backend", "compiler_options",
}  # fmt: skip
_OF_NO_MATTER = {"inline", "use_resource_env"}  # where nothing is traced
_RAISE = opmap["RAISE_VARARGS"]
_RUNNING = (jax.errors.JaxRuntimeError, FloatingPointError)  # what is raised while a program runs


class PjitFunction(Jitted[..., Any]):
    """A function that the program jitted: ours where nothing is traced, else JAX's, of which it has
    everything that is not said here. The class has the name of JAX's, by which libraries know it.

    ours   : what is called where nothing is traced; None: JAX's, as everywhere
    theirs : JAX's
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

        made = super().__new__(cls, run, fun)
        made.theirs, made._function, made._make = theirs, function, make
        made.ours, made._jitted = made._first, None
        return made

    def _first(self, *args: Any, **kwargs: Any) -> Any:
        return self.begun()(*args, **kwargs)

    def begun(self) -> Any:
        """What is called where nothing is traced, made when it is first needed."""
        if self._jitted is None and self.ours is not None:
            self._function.called = True
            self.ours = self._jitted = self._make()
        return self.ours or self.theirs

    def tried(self, error: Exception, ask: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """What JAX answers to a question on which we failed. If it does, it is asked from then on;
        the program's own errors are JAX's then."""
        answer = ask(*args, **kwargs)
        self.ours = self._jitted = None
        self._function.refuse(why(error), self.__wrapped__)
        return answer

    @boundary
    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """As JAX's."""
        if self.ours is None or not trace_state_clean():
            return self.theirs.lower(*args, **kwargs)
        try:
            return self.begun().lower(*args, **kwargs)
        except Exception as error:
            if _is_programs(error):
                raise
            failed = error
        return self.tried(failed, self.theirs.lower, args, kwargs)

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        """JAX's: it shows the operations of the program, and is what is exported."""
        return self.theirs.trace(*args, **kwargs)

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """JAX's."""
        return self.theirs.eval_shape(*args, **kwargs)

    def clear_cache(self) -> None:
        """As JAX's."""
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

    def __reduce__(self) -> Any:  # in another process it is JAX's
        return _itself, (self.theirs,)

    def __copy__(self) -> PjitFunction:
        return self

    def __deepcopy__(self, _memo: Any) -> PjitFunction:
        return self


def _itself(x: Any) -> Any:
    return x


class TakeOver:
    """What `take_over` returns: a context manager; its text is the report.

    functions : a `Function` for each function that was jitted since
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
        """Let `jax.jit` be JAX's again, in the functions that were taken over too, and say what
        there is to say."""
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
        """What the program gets in place of JAX's function."""
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
            given = {name: _given(x) for name, x in options.items() if name in _OPTIONS}
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
    """Let the outermost `jax.jit` of this program mean `ft.jit`, in its libraries too.

    What JAX jits for itself stays JAX's, and so does what was jitted before, what is called while
    something else is traced, and what `ft.jit` fails on where `jax.jit` would not. If there is any
    of the last kind, it is told at the end, on standard error. All arguments of `jax.jit` and the
    methods of its functions stay as they are; `trace` and what `jax.export` makes are JAX's own.
    The environment variable `FUNCTRANS_TAKE_OVER=0` turns it off.

    `python -m functrans run SCRIPT` does this for a script that is not to be changed. For tests
    under pytest it stands in a `conftest.py`:

        import functrans as ft

        ft.interop.take_over()

    Arguments:
      explain: tell at the end of every function whether it was taken over, its equations before and
        after the passes, which rewrites there were, its estimated FLOPs and bytes.
      output: text stream for that; left out: standard error.

    Returns:
      A context manager, at whose end `jax.jit` is JAX's again. Called by itself it lasts until its
      `give_back()`, or until the program ends. Its text is the report.

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
    """JAX's `make_jit`, while it is taken over."""
    theirs = _make_jit(fun, **options)
    return _active[-1].jitted(fun, theirs, options) if is_programs(sys._getframe(1)) else theirs


def _given(x: Any) -> Any:
    return None if isinstance(x, UnspecifiedValue) else x


def _obstacle(options: dict[str, Any]) -> str:
    """Why a function with these options is JAX's; "" if it can be ours."""
    if jax.process_count() > 1:
        return "the program runs in several processes"
    if options.get("use_resource_env"):
        return "pjit reads the mesh around its call"
    unknown = [name for name in options.keys() - _OPTIONS - _OF_NO_MATTER if options[name]]
    return f"ft.jit has no option {', '.join(sorted(unknown))}" if unknown else ""


def _watching(function: Function) -> Callable[[Program], Program]:
    """All passes, noting what they do."""

    def passes(program: Program) -> Program:
        function.reports.append(reported(program, chosen(DEFAULT)))
        return function.reports[-1].after

    return passes


def _is_programs(error: Exception) -> bool:
    """Is it surely an error of the program's, or of its computation?"""
    if isinstance(error, _RUNNING) or flags.jax_disable_jit:
        return True
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, FunctransError):
            return False
        seen = seen.__context__
    last: TracebackType | None = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None or not is_own(last.tb_frame.f_code):
        return False
    return last.tb_frame.f_code.co_code[last.tb_lasti] == _RAISE

"""The `jax.jit` callables of a function: one with default compiler options, and another if its
program should be compiled with other options (passes/compiler_options.py).

The options depend on the program, but JAX takes them before tracing. So the first trace of a
function uses the defaults. If its program needs other options, `compiler_options.Other` aborts that
trace; the program is handed to the callable with these options, which later calls try first.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

import jax
from jax import jit as jax_jit  # the program may exchange the name in JAX's module
from jax.stages import Lowered, Traced

from functrans.api.static_arguments import StaticArguments
from functrans.backends import xla
from functrans.ir.program import Program
from functrans.passes import compiler_options
from functrans.pytrees.functions import function_name, update_wrapper
from functrans.typing import PyTree

_P = ParamSpec("_P")
_Q = ParamSpec("_Q")
_R = TypeVar("_R")
_S = TypeVar("_S")

_jax_eval_shape: Any = jax.eval_shape
_SWITCHES = 8  # limit per function whose signatures need different options; then the last is kept


class Shared:
    """State shared by all calls of `jit` on one function with the same options, so that `jit(f)(x)`
    in a loop traces once.

    entry(name) : the function that `jax.jit` traces, for one set of compiler options
    chooses     : whether to choose by program; not if the user set options or a device
    preferred   : the option set of the function's last program
    """

    def __init__(
        self, statics: StaticArguments, make: Callable[[str, Shared], Any], nested: Any, chooses: bool
    ):
        self.statics = statics
        self.nested = nested
        self.chooses = chooses
        self.preferred = compiler_options.DEFAULT
        self.switches = 0
        self._make = make
        self._entries: dict[str, Any] = {}

    def entry(self, name: str) -> Any:
        """Return the function that is traced with this option set; made once per set."""
        if name not in self._entries:
            self._entries[name] = self._make(name, self)
        return self._entries[name]

    def wanted(self, program: Program, name: str) -> str:
        """Return the option set for a program traced with the set `name`; if it differs, the caller
        aborts the trace."""
        if not self.chooses or self.switches >= _SWITCHES or compiler_options.local.fixed:
            return name
        return compiler_options.choice(program)


class Jitted(functools.partial[_R], Generic[_P, _R]):
    """The callable that `jit` returns. Its methods also accept `ShapeDtypeStruct`s for
    arrays. They are slots, not function attributes, which `functools.wraps` would copy to wrappers.
    As a `functools.partial`, it costs little more to call than a function.

    with_options : the transformation with its options; applied to the function when unpickled
    """

    __slots__ = (
        "cache_size",
        "clear_cache",
        "eval_shape",
        "jit_options",
        "jitted_function",
        "lower",
        "program",
        "trace",
        "with_options",
    )

    cache_size: Callable[[], int]
    clear_cache: Callable[[], None]
    eval_shape: Callable[..., PyTree]
    jit_options: Any  # api.jit.How
    jitted_function: Callable[_P, _R]
    lower: Callable[..., Lowered]
    program: Callable[..., Program]
    trace: Callable[..., Traced]
    with_options: Callable[[Callable[_P, _R]], Any]

    def __new__(
        cls, call: Callable[..., Any], fun: Callable[_P, _R], with_options: Callable[..., Any]
    ) -> Self:
        made = super().__new__(cls, call)
        update_wrapper(made, fun)
        call.__name__ = function_name(fun)  # for libraries that look into a `functools.partial`
        made.jitted_function, made.with_options = fun, with_options
        return made

    if TYPE_CHECKING:

        def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R: ...

    @overload
    def __get__(self, owner: None, kind: type[Any] | None = None) -> Self: ...
    @overload
    def __get__(
        self: Jitted[Concatenate[_S, _Q], _R], owner: _S, kind: type[Any] | None = None
    ) -> Callable[_Q, _R]: ...
    def __get__(self, owner: object, kind: type[Any] | None = None) -> Any:
        return self if owner is None else MethodType(self, owner)

    def __repr__(self) -> str:
        return f"<jitted {self.jitted_function!r}>"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _memo: Any) -> Self:  # as of a function
        return self

    def __reduce__(self) -> Any:
        return self.with_options, (self.jitted_function,)

    def _cache_size(self) -> int:  # the name in JAX
        return self.cache_size()


@functools.wraps(_jax_eval_shape)
def _eval_shape(fun: Any, *args: Any, **kwargs: Any) -> Any:
    """Ask a jitted function, which knows its static arguments. JAX asks objects of its own class."""
    if isinstance(fun, Jitted):
        return fun.eval_shape(*args, **kwargs)
    return _jax_eval_shape(fun, *args, **kwargs)


_jax: Any = jax
_jax.eval_shape = _eval_shape


class Compiled:
    """A function compiled by `jax.jit`. Call it by a dispatcher of `base` whose misses call `call`.
    `given`: options that are passed to JAX."""

    __slots__ = ("_all", "_fun", "_given", "_shared", "base")

    def __init__(self, fun: Any, shared: Shared, given: dict[str, Any]):
        self._fun, self._shared, self._given = fun, shared, given
        self._all: dict[str, Any] = {}
        self.base: Any = self._jitted(compiler_options.DEFAULT)

    def _jitted(self, name: str) -> Any:
        if name not in self._all:
            given = dict(self._given)
            if compiler_options.SETS[name]:
                given["compiler_options"] = compiler_options.SETS[name]
            made: Any = jax_jit(self._shared.entry(name), **given)
            made.jitted_function = self._fun  # keeps it alive: `Shared` holds it weakly
            made.miss = xla.cache_miss(made)
            self._all[name] = made
        return self._all[name]

    def call(self, *args: Any, **kwargs: Any) -> tuple[Any, Any, bool]:
        """Call the function, compiled if need be, and return what JAX's `cache_miss` returns. Inside
        another jitted function, whose options decide, it has the default ones."""
        while True:
            jitted = self._jitted(self._shared.preferred) if xla.is_outermost() else self.base
            try:
                try:
                    return jitted.miss(*args, **kwargs)
                except compiler_options.Other as other:
                    return self.switched(other, lambda jitted: jitted.miss, args, kwargs)
            except RuntimeError as error:
                if not xla.without_kernel(error):
                    raise
                self.clear_cache()

    def switched(
        self, other: compiler_options.Other, ask: Callable[[Any], Callable[..., Any]], args: Any, kwargs: Any
    ) -> Any:
        """Switch to the right option set after an aborted trace, and repeat the call `ask`."""
        right = self.base
        if xla.is_outermost():
            self._shared.preferred = other.name
            self._shared.switches += 1
            right = self._jitted(other.name)
        compiler_options.local.staged = other.staged
        try:
            return ask(right)(*args, **kwargs)
        finally:
            compiler_options.local.staged = None

    def lower(self, *args: PyTree, **kwargs: PyTree) -> Lowered:
        """Lower as `jax.jit` does, with the options for the program."""
        try:
            lowered = self._jitted(self._shared.preferred).lower(*args, **kwargs)
        except compiler_options.Other as other:
            lowered = self.switched(other, lambda jitted: jitted.lower, args, kwargs)
        return xla.recompiling(lowered, lambda: self._cleared().lower(*args, **kwargs))

    def trace(self, *args: PyTree, **kwargs: PyTree) -> Traced:
        """Trace as `jax.jit` does, with the default options."""
        with compiler_options.fixed():
            traced = self.base.trace(*args, **kwargs)
        return xla.relowering(traced, lambda: self._cleared().trace(*args, **kwargs))

    def eval_shape(self, *args: PyTree, **kwargs: PyTree) -> PyTree:
        """Return the result types as `jax.jit` does."""
        with compiler_options.fixed():
            return self.base.eval_shape(*args, **kwargs)

    def _cleared(self) -> Self:
        self.clear_cache()
        return self

    def clear_cache(self) -> None:
        """Clear the caches of all the callables."""
        for made in self._all.values():
            made.clear_cache()

    def cache_size(self) -> int:
        """Return the number of compiled signatures."""
        return sum([made._cache_size() for made in self._all.values()])

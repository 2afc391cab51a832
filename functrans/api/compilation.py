"""What `jax.jit` makes of a function: one callable by default, and one more where its program is
compiled with other options (backends/compiler_options.py).

Which options a program wants is known when it is traced, but JAX wants them before. So the first
trace of a function starts with the default; where its program wants others, `options.Other` ends
it, and the program found goes to the function with these options, which later calls ask first.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from jax import jit as jax_jit  # the program may exchange the name in JAX's module
from jax.stages import Lowered, Traced

from functrans.api.static_arguments import StaticArguments
from functrans.backends import compiler_options, xla
from functrans.ir.program import Program
from functrans.typing import PyTree

_P = ParamSpec("_P")
_Q = ParamSpec("_Q")
_R = TypeVar("_R")
_S = TypeVar("_S")

_SWITCHES = 8  # of a function whose signatures want different options; then they all keep the last


class Shared:
    """What all calls of `jit` on one function with the same options have in common, so that
    `jit(f)(x)` in a loop traces once.

    entry(name) : what `jax.jit` traces, for a set of options
    chooses     : may the program choose? Not if the user does, or for another device
    preferred   : the set that the function's last program wanted
    """

    def __init__(
        self,
        statics: StaticArguments,
        make: Callable[[str, Shared], Any],
        nested: Any,
        chooses: bool,
    ):
        self.statics = statics
        self.nested = nested
        self.chooses = chooses
        self.preferred = compiler_options.DEFAULT
        self.switches = 0
        self._make = make
        self._entries: dict[str, Any] = {}

    def entry(self, name: str) -> Any:
        """The function that is traced, once for each set."""
        if name not in self._entries:
            self._entries[name] = self._make(name, self)
        return self._entries[name]

    def wanted(self, program: Program, name: str) -> str:
        """The set for a program that is traced for the set `name`; another one ends the trace."""
        if not self.chooses or self.switches >= _SWITCHES or compiler_options.local.fixed:
            return name
        return compiler_options.choice(program)


class Jitted(functools.partial[_R], Generic[_P, _R]):
    """What `jit` and `pmap` return: a call with the signature of the function, and methods that
    speak of itself, which take types (`ShapeDtypeStruct`) for arrays too. They are no attributes
    of a function, which `functools.wraps` and JAX's would give to what is made of it; to call it
    costs hardly more than a function."""

    __slots__ = (
        "cache_size", "clear_cache", "eval_shape", "jitted_function", "lower", "program", "trace",
    )  # fmt: skip

    cache_size: Callable[[], int]
    clear_cache: Callable[[], None]
    eval_shape: Callable[..., PyTree]
    jitted_function: Callable[_P, _R]
    lower: Callable[..., Lowered]
    program: Callable[..., Program]
    trace: Callable[..., Traced]

    def __new__(cls, call: Callable[..., Any], fun: Callable[_P, _R]) -> Self:
        made = super().__new__(cls, call)
        functools.update_wrapper(made, fun)
        made.jitted_function = fun
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


class Compiled:
    """A function as `jax.jit` compiles it; `run` is to be called, `given` are JAX's own options."""

    __slots__ = ("_all", "_fun", "_given", "_shared", "base", "run")

    def __init__(self, fun: Any, shared: Shared, given: dict[str, Any]):
        self._fun, self._shared, self._given = fun, shared, given
        self._all: dict[str, Any] = {}
        self.base: Any = self._jitted(compiler_options.DEFAULT)
        self.run: Any = self._with(shared.preferred)

    def _jitted(self, name: str) -> Any:
        if name not in self._all:
            given = dict(self._given)
            if compiler_options.SETS[name]:
                given["compiler_options"] = compiler_options.SETS[name]
            made: Any = jax_jit(self._shared.entry(name), **given)
            made.jitted_function = self._fun  # what is shared knows it weakly
            self._all[name] = made
        return self._all[name]

    def _with(self, name: str) -> Any:
        """To be called: in someone else's function, whose options count, it is the default's."""
        if name == compiler_options.DEFAULT:
            return self.base
        made, base = self._jitted(name), self.base
        return lambda *args, **kwargs: (made if xla.is_outermost() else base)(*args, **kwargs)

    def switched(
        self,
        other: compiler_options.Other,
        ask: Callable[[Any], Callable[..., Any]],
        args: Any,
        kwargs: Any,
    ) -> Any:
        """What is asked of the right function, after a trace for a wrong one."""
        right = self.base
        if xla.is_outermost():
            self._shared.preferred = other.name
            self._shared.switches += 1
            self.run = self._with(other.name)
            right = self._jitted(other.name)
        compiler_options.local.staged = other.staged
        try:
            return ask(right)(*args, **kwargs)
        finally:
            compiler_options.local.staged = None

    def lower(self, *args: PyTree, **kwargs: PyTree) -> Lowered:
        """As `jax.jit`'s, with the options that the program wants."""

        def again() -> Lowered:
            self.clear_cache()
            return self.lower(*args, **kwargs)

        try:
            lowered = self._jitted(self._shared.preferred).lower(*args, **kwargs)
        except compiler_options.Other as other:
            lowered = self.switched(other, lambda jitted: jitted.lower, args, kwargs)
        return xla.recompiling(lowered, again)

    def trace(self, *args: PyTree, **kwargs: PyTree) -> Traced:
        """As `jax.jit`'s, with its default options."""

        def again() -> Traced:
            self.clear_cache()
            return self.trace(*args, **kwargs)

        with compiler_options.fixed():
            return xla.relowering(self.base.trace(*args, **kwargs), again)

    def eval_shape(self, *args: PyTree, **kwargs: PyTree) -> PyTree:
        """As `jax.jit`'s."""
        with compiler_options.fixed():
            return self.base.eval_shape(*args, **kwargs)

    def clear_cache(self) -> None:
        """As `jax.jit`'s."""
        for made in self._all.values():
            made.clear_cache()

    def cache_size(self) -> int:
        """How many signatures are compiled."""
        return sum([made._cache_size() for made in self._all.values()])

"""What `jit` makes of a function: the function that `jax.jit` traces, and the callables of `jax.jit`: one
with default compiler options, and another if its program should be compiled with other options
(passes/compiler_options.py).

The options depend on the program, but JAX takes them before tracing. So the first trace of a
function uses the defaults. If its program needs other options, `compiler_options.Other` aborts that
trace; the program is handed to the callable with these options, which later calls try first.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

import jax
from jax import jit as jax_jit  # the program may exchange the name in JAX's module
from jax.stages import Lowered, Traced

from functrans import errors, runtime
from functrans import pytrees as tree
from functrans.api import retracing
from functrans.api.arguments import Apart
from functrans.api.static_arguments import StaticArguments
from functrans.backends import xla
from functrans.caching import Cache, exactly
from functrans.flags import flags
from functrans.ir.program import Program, hoist_constants
from functrans.ir.types import ArrayType
from functrans.jax_trace import is_checked_map, settings
from functrans.passes import compiler_options, redundancy
from functrans.primitives.calls.jit import axes_in_loops, speaks_of_others_axes
from functrans.primitives.calls.jit import jit as jit_call
from functrans.primitives.distributed.sharding import typed_by_jax
from functrans.pytrees.functions import FlatFunction, function_name, update_wrapper
from functrans.records import NamedTuple
from functrans.trace import AnyTracer, Tracer, at_once, stage, state, typeof
from functrans.tracer import is_active, is_high_level, not_an_array
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

    preparation : how its programs are optimized and lowered
    chooses     : whether to choose compiler options by program; not if the user set options or a device
    preferred   : the option set of the function's last program
    cache       : signature -> program, captured values, treedef of the result; for other functions' traces
    """

    def __init__(self, statics: StaticArguments, inline: bool, preparation: xla.Preparation, chooses: bool):
        self.statics = statics
        self.inline = inline
        self.preparation = preparation
        self.chooses = chooses
        self.preferred = compiler_options.DEFAULT
        self.switches = 0
        self.serial: int = next(retracing.serials)
        self.cache: Cache = Cache("jitted functions as programs", 1024)
        self._entries: dict[str, _Entry] = {}

    def entry(self, name: str) -> _Entry:
        """Return the function that `jax.jit` traces with this option set; made once per set."""
        if name not in self._entries:
            self._entries[name] = _Entry(self, name)
        return self._entries[name]

    def key(self, static: Any, in_tree: Any, types: tuple[ArrayType, ...]) -> Any:
        return exactly(static), in_tree, types, state.axes, settings()

    def nested(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function while another one is traced: one equation that holds the program, which is
        traced once per signature."""
        fun = self.statics.fun
        if self.inline or flags.jax_disable_jit:
            return fun(*args, **kwargs)
        static, dynamic = self.statics.split(args, kwargs)
        self.statics.check(static)
        leaves, in_tree = tree.flatten(dynamic)
        try:
            types = tuple([typeof(x) for x in leaves])
        except errors.NotAnArray:
            if any([isinstance(x, jax.Ref) for x in leaves]):
                return fun(*args, **kwargs)
            raise
        key = self.key(static, in_tree, types)
        found = self.cache.get(key)
        if found is None or not _still_active(found[1]):
            retracing.record(self.serial, self.statics, args, kwargs, True)
            try:
                program, out_tree = self.statics.traced(static, in_tree, types)
            except errors.OutsideReference:
                return fun(*args, **kwargs)
            found = (*hoist_constants(program), out_tree)
            if not speaks_of_others_axes(program):
                self.cache.replace(key, found)  # replaces an entry whose trace has ended
        program, captured, out_tree = found
        outs = jit_call(*captured, *leaves, program=program)
        return tree.unflatten(out_tree, outs)


class _Entry:
    """The function that `jax.jit` traces, for one set of compiler options. It traces the user's
    function to a program and binds that as one JAX equation. It shows the user's signature, but
    does not hold the default values.
    """

    def __init__(self, shared: Shared, name: str):
        self.options = name
        self.shared: Shared = weakref.proxy(shared)  # which holds this entry
        update_wrapper(self, shared.statics.fun, updated=())
        del self.__wrapped__  # type: ignore[attr-defined]  # it would keep the function alive

    @property
    def __signature__(self) -> Any:
        return self.shared.statics.signature

    @property
    def __code__(self) -> Any:
        """That of the user's function, whose place JAX's messages tell."""
        found = retracing.codes(self.shared.statics.fun)
        if not found:
            raise AttributeError("__code__")
        return found[-1]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        shared = self.shared
        fun = shared.statics.fun
        if flags.jax_disable_jit:  # jax.jit then calls this without tracing
            return fun(*args, **kwargs)
        if xla.is_looking_for_nans():
            made = shared.statics.staged(args, kwargs)
            xla.stop_at_first_nan(made.program, made.leaves)
        leaves, in_tree = tree.flatten((args, kwargs))
        arrays = [x for x in leaves if _is_array(x)]
        if any([d.__class__ is not int for x in arrays for d in x.shape]):
            return fun(*args, **kwargs)  # sizes are symbols of jax.export: JAX traces it alone
        local = compiler_options.local
        staged, local.staged = local.staged, None
        if staged is None:
            staged = self._staged(args, kwargs, leaves, in_tree, arrays)
            if is_checked_map() and axes_in_loops(staged.program):
                return fun(*args, **kwargs)  # over which axes its results vary, only JAX's rules know
            prepared = xla.prepared(staged.program, shared.preparation)
            free = shared.chooses and shared.switches < _SWITCHES and not local.fixed
            wanted = compiler_options.choice(prepared) if free else self.options
            if wanted != self.options and not staged.references:  # refs belong to this JAX trace
                raise compiler_options.Other(wanted, staged)
        operands = [*staged.captured, *arrays]
        kept = [operands[i] for i in staged.kept]
        outs = xla.run_program(staged.program, kept, shared.preparation)
        for reference in staged.references:
            reference[...] = outs.pop()
        return tree.unflatten(staged.out_tree, outs)

    def _staged(self, args: Any, kwargs: Any, leaves: list[Any], in_tree: Any, arrays: list[Any]) -> _Staged:
        """Trace the function, unless that was done where another function calls it; or keep it for those."""
        shared = self.shared
        static, dynamic = shared.statics.split(args, kwargs)
        given, structure = tree.flatten(dynamic)
        shares = not shared.inline and all(map(_is_array, given)) and not typed_by_jax(arrays)
        key = shared.key(static, structure, tuple([typeof(x) for x in given])) if shares else None
        found: Any = shared.cache.get(key) if shares else None
        references: list[Any] = []
        if found is None or not _are_concrete(found[1]):
            retracing.record(shared.serial, shared.statics, args, kwargs, False)
            *found, references = _traced(shared.statics.fun, leaves, in_tree, arrays)
            program, captured, out_tree = found
            alone = references or not _are_concrete(captured) or speaks_of_others_axes(program)
            if shares and not alone:
                shared.cache.replace(key, tuple(found))
        program, captured, out_tree = found
        program, kept = redundancy.without_unused_inputs(program)
        captured = tuple([x[...] if isinstance(x, jax.Ref) else x for x in captured])
        return _Staged(program, captured, kept, out_tree, references)


class _Staged(NamedTuple):
    """A program, its captured constants, the indices of the operands (constants, then arguments)
    that it uses, the treedef of its result, and the outer references (`new_ref`) that its last
    outputs are written to, in reverse order."""

    program: Program
    captured: tuple[Any, ...]
    kept: Sequence[int]
    out_tree: Any
    references: list[Any]


def _traced(fun: Any, leaves: list[Any], in_tree: Any, arrays: list[Any]) -> tuple[Any, ...]:
    """Return the program with its constants as operands, their values, the treedef of its result, and
    the outer references that its last outputs are written to."""
    flat = FlatFunction(fun, in_tree)
    for x in leaves:
        if is_high_level(x):
            raise errors.NotAnArray(not_an_array(x, "argument"))
    apart = Apart(leaves, lambda x: not _is_array(x))
    written: list[Any] = []

    def of_arrays(*arrays: Any) -> list[Any]:
        return flat(*apart(arrays))

    def with_references(*arrays: Any) -> list[Any]:
        used = state.innermost.references = {}
        outs = of_arrays(*arrays)
        written.extend([r for r in used.values() if r.is_written])
        return [*outs, *[r.value for r in reversed(written)]]

    name, program = function_name(fun), None
    if typed_by_jax(arrays):
        with suppress(errors.OutsideReference):
            program = runtime.stage_by_jax(of_arrays, arrays, name)
    if program is None:
        with at_once():  # so that constants are arrays, not JAX tracers
            program = stage(with_references, [typeof(x) for x in arrays], name)
    return *hoist_constants(program), flat.out_tree, [r.outside for r in written]


def _is_array(x: Any) -> bool:
    return isinstance(x, jax.Array)


def _are_concrete(captured: Iterable[Any]) -> bool:
    return not any([isinstance(x, (AnyTracer, jax.Ref)) for x in captured])


def _still_active(captured: Iterable[Any]) -> bool:
    """Return whether all captured tracers belong to active traces."""
    tracers = [x for x in captured if isinstance(x, AnyTracer)]
    return all([isinstance(x, Tracer) and is_active(x.owner, state.trace, state.below) for x in tracers])


class Jitted(functools.partial[_R], Generic[_P, _R]):
    """The callable that `jit` returns. Its methods also accept `ShapeDtypeStruct`s for
    arrays. They are slots, not function attributes, which `functools.wraps` would copy to wrappers.
    As a `functools.partial`, it costs little more to call than a function.

    with_options : the transformation with its options; applied to the function when unpickled
    """

    cache_size: Callable[[], int]
    clear_cache: Callable[[], None]
    eval_shape: Callable[..., PyTree]
    jit_options: Any  # api.jit.How
    jitted_function: Callable[_P, _R]
    lower: Callable[..., Lowered]
    program: Callable[..., Program]
    trace: Callable[..., Traced]
    with_options: Callable[[Callable[_P, _R]], Any]

    __slots__ = tuple(__annotations__)

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

    @property
    def __origin__(self) -> Callable[_P, _R]:  # which `help` shows if the function has no docstring
        return self.jitted_function

    def __repr__(self) -> str:
        return f"<jitted {self.jitted_function!r}>"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _memo: Any) -> Self:  # as of a function
        return self

    def __reduce__(self) -> Any:
        name = getattr(self, "__qualname__", "")
        decorated = getattr(sys.modules.get(self.__module__), name, None)
        by_name = decorated is self and self.__module__ != "__main__"  # which others do not import
        return name if by_name else (self.with_options, (self.jitted_function,))

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
            options = compiler_options.SETS[name]
            given = self._given | ({"compiler_options": options} if options else {})
            made: Any = jax_jit(self._shared.entry(name), **given)
            made.jitted_function = self._fun  # keeps it alive: `Shared` holds it weakly
            made.miss = xla.cache_miss(made)
            self._all[name] = made
        return self._all[name]

    def call(self, *args: Any, **kwargs: Any) -> tuple[Any, Any, bool]:
        """Call the function, compiled if need be, and return what JAX's `cache_miss` returns. Inside
        another jitted function, whose options decide, it has the default ones."""
        while True:
            try:
                return self._asked("miss", args, kwargs)
            except RuntimeError as error:
                if not xla.without_kernel(error):
                    raise
                self.clear_cache()

    def _asked(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a method with the options for the program; if the trace is aborted, with the right ones."""
        outermost, shared = xla.is_outermost(), self._shared
        jitted = self._jitted(shared.preferred) if outermost else self.base
        try:
            return getattr(jitted, method)(*args, **kwargs)
        except compiler_options.Other as other:
            right = self.base
            if outermost:
                shared.preferred = other.name
                shared.switches += 1
                right = self._jitted(other.name)
            compiler_options.local.staged = other.staged
            try:
                return getattr(right, method)(*args, **kwargs)
            finally:
                compiler_options.local.staged = None

    def lower(self, *args: PyTree, **kwargs: PyTree) -> Lowered:
        """Lower as `jax.jit` does, with the options for the program."""
        lowered = self._asked("lower", args, kwargs)
        return xla.recompiling(lowered, lambda: self._cleared().lower(*args, **kwargs))

    def trace(self, *args: PyTree, **kwargs: PyTree) -> Traced:
        """Trace as `jax.jit` does, with the default options."""
        with compiler_options.fixed():
            traced = self.base.trace(*args, **kwargs)
        return xla.relowering(traced, lambda: self._cleared().trace(*args, **kwargs))

    def eval_shape(self, *args: PyTree, **kwargs: PyTree) -> PyTree:
        with compiler_options.fixed():
            return self.base.eval_shape(*args, **kwargs)

    def _cleared(self) -> Self:
        self.clear_cache()
        return self

    def clear_cache(self) -> None:
        for made in self._all.values():
            made.clear_cache()

    def cache_size(self) -> int:
        return sum([made._cache_size() for made in self._all.values()])

"""`jit`: trace a function once per signature, optimize its program and compile it with XLA.

Called at the top level it is `jax.jit` of the optimized program, so dispatch is JAX's. Called while
tracing it records one `jit` equation that holds the program.
"""

from __future__ import annotations

import functools
import re
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from enum import Enum
from types import FunctionType
from typing import Any, NamedTuple, ParamSpec, TypedDict, TypeVar, Unpack, overload

import jax

from functrans import errors, runtime
from functrans import passes as all_passes
from functrans import pytrees as tree
from functrans.api import retracing
from functrans.api.arguments import Apart, check_callable
from functrans.api.compilation import Compiled, Jitted, Shared
from functrans.api.static_arguments import StaticArguments, explain_arguments
from functrans.backends import xla
from functrans.caching import Cache, CachePerFunction, exactly
from functrans.flags import flags
from functrans.ir.program import Program, hoist_constants
from functrans.ir.source import brief, here
from functrans.ir.tracebacks import boundary, guarded, hide_frames
from functrans.ir.types import ArrayType
from functrans.jax_trace import is_checked_map, settings
from functrans.passes.compiler_options import Other, explain_option, local
from functrans.primitives.calls.jit import axes_in_loops, is_inlined, speaks_of_others_axes
from functrans.primitives.calls.jit import jit as jit_call
from functrans.primitives.distributed.sharding import typed_by_jax
from functrans.pytrees.functions import FlatFunction, function_name, update_wrapper
from functrans.trace import Tracer, at_once, stage, state, typeof
from functrans.tracer import is_active, is_high_level, is_jax_tracer, not_an_array
from functrans.typing import Device, PyTree

_P = ParamSpec("_P")
_R = TypeVar("_R")


class _Options(TypedDict, total=False):
    static_argnums: int | Sequence[int] | None
    static_argnames: str | Iterable[str] | None
    donate_argnums: int | Sequence[int] | None
    donate_argnames: str | Iterable[str] | None
    in_shardings: PyTree
    out_shardings: PyTree
    keep_unused: bool
    device: Device
    backend: str | None
    inline: bool | Enum
    compiler_options: dict[str, str | int | float | bool] | None
    passes: Iterable[str | Callable[[Program], Program]] | None
    cpu: str


@overload
def jit(fun: Callable[_P, _R], /, **options: Unpack[_Options]) -> Jitted[_P, _R]: ...
@overload
def jit(fun: None = None, /, **options: Unpack[_Options]) -> Callable[[Callable[_P, _R]], Jitted[_P, _R]]: ...
@boundary
def jit(
    fun: Callable[..., PyTree] | None = None,
    /,
    *,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    in_shardings: PyTree = None,
    out_shardings: PyTree = None,
    keep_unused: bool = False,
    device: Device = None,
    backend: str | None = None,
    inline: bool | Enum = False,
    compiler_options: dict[str, str | int | float | bool] | None = None,
    passes: Iterable[str | Callable[[Program], Program]] | None = None,
    cpu: str = "fast",
) -> Any:
    """Compile a function with XLA, once per signature, and cache the executable.

    Arguments:
      fun: function of pytrees of arrays that returns a pytree of arrays. Left out: return a
        decorator.
      static_argnums, static_argnames: static arguments: hashable Python values; each new value
        compiles again.
      donate_argnums, donate_argnames: arguments whose buffers are donated to the results.
      in_shardings, out_shardings, device, backend, keep_unused, compiler_options: as in `jax.jit`.
      inline: inside another transformation, inline the operations instead of recording a call. A
        `jax.Inline` says it in more detail.
      passes: names of the optimization passes that run before XLA. Left out: all;
        `("exact",)`: those that keep every rounding; `("fast_math",)`: all, assuming no NaN and no
        infinity; `("dead_code", "simplify")`: these two; `()`: none. The sequence may also contain
        functions `Program -> Program`. The outermost jitted function decides. See `ft.passes`.
      cpu: `"plain"`: no kernels on a CPU, nor fewer launches on a GPU; JAX's compiler options.
        Otherwise each loop of small operations becomes one kernel on a CPU, and one of fewer turns
        and launches on a GPU, see `ft.passes.explain`; the operations and their order are the same,
        except in sums of products and factorizations, which a plain program leaves to a library.
        (Single operations that XLA:CPU does slowly have another form in both, see
        `benchmarks/cliffs.md`.) `"blocking"`: the thread that calls runs the program, however long it
        takes, as after `jax.config.update("jax_cpu_enable_async_dispatch", False)`. (Otherwise,
        unless `"plain"`, it runs programs that are estimated to take less than 40 microseconds, or
        200 if they are loops.) Results that are read at once are there 50 to 100 microseconds
        sooner; Python does not go on meanwhile. While the arguments are still being computed a call
        returns at once. The outermost jitted function decides here too.

    Returns:
      A function like `fun`, with `.trace(*args)`, `.lower(*args)` (then `.compile()`,
      `.as_text()`, `.cost_analysis()`, `.memory_analysis()`), `.program(*args)`,
      `.eval_shape(*args)` and `.clear_cache()`.

    Raises:
      UnhashableStatic: a static argument is not hashable.
      NotAnArray: an argument or result is not an array, a scalar or a pytree of these.
      InvalidArgument: `passes` has an unknown name, or `cpu` an unknown value.

    Source: `jax.jit`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> @ft.jit
      ... def f(x):
      ...     return jnp.sin(x) * 2
      >>> print(f(jnp.zeros(3)))
      [0. 0. 0.]
    """
    options = {k: v for k, v in locals().items() if k != "fun"}
    with_options = functools.partial(jit, **options)
    if fun is None:
        return with_options
    check_callable(fun, "jit")
    inline = is_inlined(options.pop("inline"))
    del options["passes"], options["cpu"]
    chain = ("default",) if passes is None else all_passes.chosen(passes)
    if options.pop("compiler_options") is None:
        compiler_options = {}
    else:
        options["compiler_options"] = compiler_options
    for name in ("in_shardings", "out_shardings", "device", "backend"):
        if options[name] is None:
            del options[name]
    if cpu not in ("fast", "blocking", "plain"):
        raise errors.InvalidArgument(
            f'jit: cpu must be "fast", "blocking" or "plain", got {brief(cpu)}, {here()}\n'
            "It controls how loops are compiled on a CPU, and which thread runs them."
        )
    chooses = cpu != "plain" and not {"compiler_options", "device", "backend"} & set(options)
    shared = _shared(fun, static_argnums, static_argnames, chain, inline, cpu, chooses)
    statics, nested = shared.statics, shared.nested
    donates = bool(statics.donated(donate_argnums, donate_argnames) or donate_argnames)
    if static_argnums is not None:  # JAX would count negative ones from the last argument given
        options["static_argnums"] = tuple(sorted(statics.numbers))
    compiled = Compiled(fun, shared, options)

    def told(method: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function of JAX so that it raises our errors about arguments."""

        @guarded
        def asked(*args: Any, **kwargs: Any) -> Any:
            try:
                return method(*args, **kwargs)
            except (TypeError, ValueError, RuntimeError, OverflowError) as error:
                explain(error, statics, args, kwargs)
                raise

        return asked

    untraced = told(compiled.call)
    places = options.get("in_shardings"), options.get("out_shardings")
    inside = nested if places == (None, None) else functools.partial(_placed, nested, *places)

    @guarded
    def miss(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool]:
        if state.innermost is not None and state.trace is not None:
            return inside(args, kwargs), None, False
        return untraced(*args, **kwargs)

    run = xla.dispatcher(compiled.base, miss)

    def checked(*args: Any, **kwargs: Any) -> Any:
        """Call it where JAX's dispatcher may raise errors of its own: about static arguments, which
        are part of a signature, and about donated buffers, when it runs an executable."""
        try:
            return run(*args, **kwargs)
        except Exception as error:
            if isinstance(error, ValueError) and re.search("hashable|donate", str(error)):
                explain(error, statics, args, kwargs)
            hide_frames(error)
            raise

    @boundary
    def program(*args: Any, **kwargs: Any) -> Program:
        """Return the optimized program for these arguments."""
        return all_passes.optimize(statics.staged(args, kwargs).program, chain)

    program.jitted_function = fun  # type: ignore[attr-defined]

    def clear_cache() -> None:
        compiled.clear_cache()
        nested.clear()

    direct = not (donates or statics.numbers or statics.names)
    call = Jitted(run if direct else checked, fun, with_options)
    call.lower, call.trace, call.eval_shape = map(told, (compiled.lower, compiled.trace, compiled.eval_shape))
    call.program, call.clear_cache, call.cache_size = program, clear_cache, compiled.cache_size
    call.jit_options = How(statics, chain, cpu == "plain")
    return call


class How(NamedTuple):
    """The options a function was jitted with: static arguments, passes, whether `cpu="plain"`."""

    statics: StaticArguments
    passes: Any
    plain: bool


def jit_options(fun: Any) -> How | None:
    """Return the options a function was jitted with, or None if it is not jitted."""
    return getattr(fun, "jit_options", None) if isinstance(fun, Jitted) else None


_SHARED = CachePerFunction("functions jitted", 32)


def _shared(fun: Any, argnums: Any, argnames: Any, run: Any, inline: bool, cpu: str, chooses: bool) -> Shared:
    statics = StaticArguments(fun, argnums, argnames)
    key = (frozenset(statics.numbers), frozenset(statics.names), tuple(run), inline, cpu, chooses)
    known = _SHARED.of(fun) if fun.__class__ is FunctionType else None
    found = None if known is None else known.get(key)
    if found is None:
        serial = next(retracing.serials)
        nested = Nested(statics, inline, serial)
        preparation = xla.Preparation(tuple(run), cpu == "plain", blocks=cpu == "blocking")
        entry = functools.partial(_Entry, preparation, serial)
        found = Shared(statics, entry, nested, chooses)
        if known is not None:
            found = known.keep(key, found)
    return found


class _Entry:
    """The function that `jax.jit` traces, for one set of compiler options. It traces the user's
    function to a program and binds that as one JAX equation. It shows the user's signature, but
    does not hold the default values.
    """

    def __init__(self, preparation: xla.Preparation, serial: int, name: str, shared: Shared):
        self.preparation, self.serial, self.options = preparation, serial, name
        self._shared = weakref.ref(shared)  # weak: `shared` holds this entry
        update_wrapper(self, shared.statics.fun, updated=())
        del self.__wrapped__  # type: ignore[attr-defined]  # it would keep the function alive

    @property
    def shared(self) -> Shared:
        """The state that all `jit` calls on the function share."""
        return self._shared()  # type: ignore[return-value]

    @property
    def __signature__(self) -> Any:
        return self.shared.statics.signature

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        statics = self.shared.statics
        fun = statics.fun
        if flags.jax_disable_jit:  # jax.jit then calls this without tracing
            return fun(*args, **kwargs)
        if xla.is_looking_for_nans():
            made = statics.staged(args, kwargs)
            xla.stop_at_first_nan(made.program, made.leaves)
        leaves, in_tree = tree.flatten((args, kwargs))
        arrays = [x for x in leaves if _is_array(x)]
        if any([d.__class__ is not int for x in arrays for d in x.shape]):
            return fun(*args, **kwargs)  # sizes are symbols of jax.export: JAX traces it alone
        staged, local.staged = local.staged, None
        if staged is None:
            staged = self._staged(args, kwargs, leaves, in_tree, arrays)
            if is_checked_map() and axes_in_loops(staged.program):
                return fun(*args, **kwargs)  # over which axes its results vary, only JAX's rules know
            prepared = xla.prepared(staged.program, self.preparation)
            wanted = self.shared.wanted(prepared, self.options)
            if wanted != self.options and not staged.references:  # refs belong to this JAX trace
                raise Other(wanted, staged)
        operands = [*staged.captured, *arrays]
        kept = [operands[i] for i in staged.kept]
        outs = xla.run_program(staged.program, kept, self.preparation)
        for reference in staged.references:
            reference[...] = outs.pop()
        return tree.unflatten(staged.out_tree, outs)

    def _staged(self, args: Any, kwargs: Any, leaves: list[Any], in_tree: Any, arrays: list[Any]) -> _Staged:
        """Trace the function, unless that was done where another function calls it."""
        statics, nested = self.shared.statics, self.shared.nested
        static, dynamic = statics.split(args, kwargs)
        key = nested.key_of(static, dynamic) if not typed_by_jax(arrays) else None
        found = nested.kept(key)
        references: list[Any] = []
        if found is None:
            retracing.record(self.serial, statics, args, kwargs, False)
            *found, references = _traced(statics.fun, leaves, in_tree, arrays)
            if not references:
                nested.keep(key, *found)
        program, captured, out_tree = found
        program, kept = all_passes.redundancy.without_unused_inputs(program)
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


class Nested:
    """A jitted function called while another function is traced: one equation that holds the
    program. The function is traced once per signature."""

    def __init__(self, statics: StaticArguments, inline: bool, serial: int):
        self.serial = serial
        self.statics = statics
        self.inline = inline
        self.cache: Cache = Cache("jitted functions as programs", 1024)

    def clear(self) -> None:
        self.cache.clear()

    def key_of(self, static: Any, dynamic: Any) -> Any:
        """Return the key of a call that `jax.jit` traces; None if its program is not shared."""
        leaves, in_tree = tree.flatten(dynamic)
        if self.inline or not all(map(_is_array, leaves)):
            return None
        return self._key(static, in_tree, tuple([typeof(x) for x in leaves]))

    def _key(self, static: Any, in_tree: Any, types: tuple[ArrayType, ...]) -> Any:
        return exactly(static), in_tree, types, state.axes, settings()

    def kept(self, key: Any) -> tuple[Any, ...] | None:
        """Return a program, its captured values and the treedef of its result, if the values are
        arrays."""
        found = None if key is None else self.cache.get(key)
        return found if found is not None and _are_concrete(found[1]) else None

    def keep(self, key: Any, program: Program, captured: Any, out_tree: Any) -> None:
        """Keep what `jax.jit` traced for calls in other functions."""
        if key is not None and _are_concrete(captured) and not speaks_of_others_axes(program):
            self.cache.replace(key, (program, captured, out_tree))

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        fun = self.statics.fun
        if self.inline or flags.jax_disable_jit:
            return fun(*args, **kwargs)
        self.statics.check(args, kwargs)
        static, dynamic = self.statics.split(args, kwargs)
        leaves, in_tree = tree.flatten(dynamic)
        try:
            types = tuple([typeof(x) for x in leaves])
        except errors.NotAnArray:
            if any([isinstance(x, jax.Ref) for x in leaves]):
                return fun(*args, **kwargs)
            raise
        key = self._key(static, in_tree, types)
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


def _placed(nested: Nested, given: PyTree, wanted: PyTree, args: tuple[Any, ...], kwargs: Any) -> Any:
    """Call a jitted function inside of another, where its shardings are constraints."""
    fixed = nested.statics.numbers_of(args)
    traced = tuple([x for i, x in enumerate(args) if i not in fixed])
    dynamic = iter(_constrained(traced, given, "in_shardings"))
    outs = nested(tuple([x if i in fixed else next(dynamic) for i, x in enumerate(args)]), kwargs)
    return _constrained(outs, wanted, "out_shardings")


def _constrained(values: PyTree, shardings: PyTree, option: str) -> PyTree:
    """Return arrays with the shardings that a pytree prefix asks for."""
    leaves, structure = tree.flatten(values)
    try:
        places = tree.spread(shardings, values, lambda s: s is None)
    except ValueError as error:
        raise errors.TreeMismatch(f"{option} of jit is no pytree prefix, {here()}\n{error}") from None
    constrain = jax.lax.with_sharding_constraint
    return tree.unflatten(
        structure, [x if s is None else constrain(x, s) for x, s in zip(leaves, places, strict=True)]
    )


def _are_concrete(captured: Iterable[Any]) -> bool:
    return not any([isinstance(x, (Tracer, jax.Ref)) or is_jax_tracer(x) for x in captured])


def _still_active(captured: Iterable[Any]) -> bool:
    """Return whether all captured tracers belong to active traces."""
    for x in captured:
        if is_jax_tracer(x):
            return False
        if isinstance(x, Tracer) and not is_active(x.owner, state.trace, state.below):
            return False
    return True


def clear_caches() -> None:
    """Clear the caches of compiled programs and operations, ours and JAX's.

    Source: `jax.clear_caches`.

    Example:
      >>> import functrans as ft
      >>> ft.clear_caches()
    """
    jax.clear_caches()  # which empties ours too


def explain(
    error: Exception, statics: StaticArguments, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Raise one of our errors if an option or the arguments caused `error`."""
    if not isinstance(error, errors.FunctransError):
        explain_option(error, xla.option_names)
        explain_arguments(error, statics, args, kwargs)

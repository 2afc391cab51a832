"""`jit`: trace a function once per signature, optimize its program and compile it with XLA.

Called at the top level it is `jax.jit` of the optimized program, so dispatch is JAX's. Called while
tracing it records one `jit` equation that holds the program.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from types import FunctionType
from typing import Any, ParamSpec, TypedDict, TypeVar, Unpack, overload

import jax

from functrans import errors
from functrans import passes as all_passes
from functrans import pytrees as tree
from functrans.api.arguments import check_callable
from functrans.api.compilation import Compiled, Jitted, Shared
from functrans.api.static_arguments import StaticArguments, explain_arguments
from functrans.backends import xla
from functrans.caching import CachePerFunction
from functrans.ir.program import Program
from functrans.ir.source import brief, brief_with_type, here
from functrans.ir.tracebacks import boundary, guarded, hide_frames
from functrans.passes.compiler_options import explain_option
from functrans.primitives.calls.jit import is_inlined
from functrans.records import NamedTuple
from functrans.trace import state
from functrans.typing import Device, PyTree

_P = ParamSpec("_P")
_R = TypeVar("_R")


# option -> the classes of its values, in words
_KINDS: dict[str, tuple[Any, str]] = {
    "device": (jax.Device, "one of jax.devices()"),
    "inline": ((bool, Enum), "a bool or a jax.Inline"),
    "compiler_options": (Mapping, "a dict of the options of XLA, by name"),
}


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
    for option, (kinds, wanted) in _KINDS.items():
        if options[option] is not None and not isinstance(options[option], kinds):
            raise errors.InvalidArgument(
                f"jit: {option} must be {wanted}, got {brief_with_type(options[option])}, {here()}"
            )
    chain = ("default",) if passes is None else all_passes.chosen(passes)
    given = {k: v for k, v in options.items() if v is not None and k not in ("inline", "passes", "cpu")}
    if cpu not in ("fast", "blocking", "plain"):
        raise errors.InvalidArgument(
            f'jit: cpu must be "fast", "blocking" or "plain", got {brief(cpu)}, {here()}\n'
            "It controls how loops are compiled on a CPU, and which thread runs them."
        )
    chooses = cpu != "plain" and not {"compiler_options", "device", "backend"} & set(given)
    shared = _shared(fun, static_argnums, static_argnames, chain, is_inlined(inline), cpu, chooses)
    statics = shared.statics
    donates = statics.donates(donate_argnums, donate_argnames)
    if static_argnums is not None:  # JAX would count negative ones from the last argument given
        given["static_argnums"] = tuple(sorted(statics.numbers))
    compiled = Compiled(fun, shared, given)

    untraced = _with_our_errors(compiled.call, statics)
    places = in_shardings, out_shardings
    inside = shared.nested if places == (None, None) else functools.partial(_placed, shared, *places)

    @guarded
    def miss(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool]:
        if state.innermost is not None and state.trace is not None:
            return inside(args, kwargs), None, False
        return untraced(*args, **kwargs)

    run = xla.dispatcher(compiled.base, miss)
    if donates or statics.numbers or statics.names:
        # JAX's dispatcher raises errors of its own about static arguments, which are part of a signature,
        # and about donated buffers, when it runs an executable
        run = _with_our_errors(run, statics, of="hashable|donate")

    @boundary
    def program(*args: Any, **kwargs: Any) -> Program:
        """Return the optimized program for these arguments."""
        return all_passes.optimize(statics.staged(args, kwargs).program, chain)

    program.jitted_function = fun  # type: ignore[attr-defined]

    def clear_cache() -> None:
        compiled.clear_cache()
        shared.cache.clear()

    call = Jitted(run, fun, with_options)
    methods = compiled.lower, compiled.trace, compiled.eval_shape
    call.lower, call.trace, call.eval_shape = [_with_our_errors(method, statics) for method in methods]
    call.program, call.clear_cache, call.cache_size = program, clear_cache, compiled.cache_size
    call.jit_options = How(statics, chain, cpu == "plain")
    return call


def _with_our_errors(
    method: Callable[..., Any], statics: StaticArguments, of: str = ""
) -> Callable[..., Any]:
    """Wrap a function of JAX: of its errors that say one of these words, those that an option or an argument
    caused become ours."""

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except Exception as error:
            try:
                jaxs = isinstance(error, (TypeError, ValueError, RuntimeError, OverflowError))
                if jaxs and not isinstance(error, errors.FunctransError) and re.search(of, str(error)):
                    explain_option(error, xla.option_names)
                    explain_arguments(error, statics, args, kwargs)
                raise
            except Exception as told:
                hide_frames(told)
                raise

    return call


_SHARED = CachePerFunction("functions jitted", 32)


def _shared(fun: Any, argnums: Any, argnames: Any, run: Any, inline: bool, cpu: str, chooses: bool) -> Shared:
    statics = StaticArguments(fun, argnums, argnames)
    key = (frozenset(statics.numbers), frozenset(statics.names), tuple(run), inline, cpu, chooses)
    known = _SHARED.of(fun if fun.__class__ is FunctionType else None)  # other objects may be equal
    found = known.get(key)
    if found is None:
        preparation = xla.Preparation(tuple(run), cpu == "plain", blocks=cpu == "blocking")
        found = known.keep(key, Shared(statics, inline, preparation, chooses))
    return found


class How(NamedTuple):
    """The options a function was jitted with: static arguments, passes, whether `cpu="plain"`."""

    statics: StaticArguments
    passes: Any
    plain: bool


def jit_options(fun: Any) -> How | None:
    """Return the options a function was jitted with, or None if it is not jitted."""
    return getattr(fun, "jit_options", None) if isinstance(fun, Jitted) else None


def _placed(shared: Shared, given: PyTree, wanted: PyTree, args: tuple[Any, ...], kwargs: Any) -> Any:
    """Call a jitted function inside of another, where its shardings are constraints."""
    fixed = shared.statics.numbers_of(args)
    traced = tuple([x for i, x in enumerate(args) if i not in fixed])
    dynamic = iter(_constrained(traced, given, "in_shardings"))
    outs = shared.nested(tuple([x if i in fixed else next(dynamic) for i, x in enumerate(args)]), kwargs)
    return _constrained(outs, wanted, "out_shardings")


def _constrained(values: PyTree, shardings: PyTree, option: str) -> PyTree:
    """Return arrays with the shardings that a pytree prefix asks for."""
    leaves, structure = tree.flatten(values)
    try:
        places = tree.spread(shardings, values, lambda s: s is None)
    except ValueError as error:
        raise errors.TreeMismatch(f"{option} of jit is no pytree prefix, {here()}\n{error}") from None
    constrain = jax.lax.with_sharding_constraint
    rows = zip(leaves, places, strict=True)  # a Format may have a layout alone
    return tree.unflatten(
        structure, [x if getattr(s, "sharding", s) is None else constrain(x, s) for x, s in rows]
    )


def clear_caches() -> None:
    """Clear the caches of compiled programs and operations, ours and JAX's.

    Source: `jax.clear_caches`.

    Example:
      >>> import functrans as ft
      >>> ft.clear_caches()
    """
    jax.clear_caches()  # which empties ours too

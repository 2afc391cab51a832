"""Execution of programs by XLA, through `jax.jit`.

One JAX primitive, `functrans`, represents a whole Program; its lowering rule emits the equations.
So dispatch, donation, shardings, ahead-of-time compilation, the persistent cache and platform
support are JAX's. Apart from `interop/`, only this file and `lowering.py` here use JAX internals.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from inspect import signature
from typing import Any

import jax
import numpy as np
from jax._src import compilation_cache
from jax._src import config as _config
from jax._src import pjit as _pjit
from jax._src.api import jit as jax_jit  # the program may exchange the name in JAX's module
from jax._src.core import ManualAxisType, auto_insert_reshard, trace_state_clean
from jax._src.core import Primitive as JaxPrimitive
from jax._src.dispatch import prim_requires_devices_during_lowering
from jax._src.interpreters.pxla import JitGlobalCppCacheKeys, cc_shard_arg
from jax._src.lib import _jax, xla_client
from jax._src.tree_util import dispatch_registry
from jax._src.util import register_cache, weakref_cache_key_types
from jax.experimental import io_callback
from jax.interpreters import mlir

from functrans import caching, passes, runtime
from functrans.backends import kernel_calls
from functrans.backends.lowering import Lowering
from functrans.caching import cached, memo, memoized
from functrans.flags import flags
from functrans.ir.program import Program, hoist_constants
from functrans.ir.text import with_nested
from functrans.passes.compiler_options import SETS, choice
from functrans.passes.machines import optimized_for
from functrans.primitives.base import axes_inside
from functrans.primitives.calls.callback import calls_of
from functrans.primitives.distributed.sharding import (
    laid_out_by_type,
    left_to_xla,
    of_type,
    sharding_constraint,
)
from functrans.records import NamedTuple
from functrans.trace import AnyTracer
from functrans.tracer import aval_of

# --- caches ---------------------------------------------------------------------------------------


class _Caches:
    """Our caches, as one of JAX's: `jax.clear_caches` empties them too."""

    cache_clear = staticmethod(caching.clear)
    cache_info = staticmethod(caching.report)

    def cache_keys(self) -> tuple[Any, ...]:
        return ()


_caches = _Caches()  # JAX holds it weakly
register_cache(_caches, "functrans")

# --- jax_debug_nans and jax_debug_infs ------------------------------------------------------------
#
# When JAX finds a NaN or an infinity in the results of a compiled function, it calls that function
# again without jit, on concrete arrays.
#
# In JAX the operations then run one by one until one of them produces a NaN. Here a compiled
# function is a whole program, so each function given to `jax.jit` first checks `is_looking_for_nans` and then
# calls `stop_at_first_nan`, which searches the program as `find_nan` does.


def is_looking_for_nans() -> bool:
    """Return whether JAX is calling the function again to find a NaN or an infinity."""
    if not (flags.jax_debug_nans or flags.jax_debug_infs):
        return False
    return type(sys.exc_info()[1]).__name__ == "InternalFloatingPointError"


def stop_at_first_nan(program: Program, args: Sequence[Any]) -> None:
    """Raise NotFinite for the first equation that produces a NaN or an infinity. Do nothing on
    tracers: the JAX transformation around this runs programs on arrays, and those are searched."""
    if any(isinstance(x, AnyTracer) for x in args):
        return
    runtime.stop_at_first(program, args)


# --- programs -------------------------------------------------------------------------------------

# The second is for programs with Python callbacks, which are lowered for known devices.
_program_p, _calling_p = JaxPrimitive("functrans"), JaxPrimitive("functrans_calling")
_program_p.multiple_results = _calling_p.multiple_results = True
prim_requires_devices_during_lowering.add(_calling_p)
weakref_cache_key_types.add(Program)  # else JAX's abstract-eval cache would keep programs alive
PRIMITIVES = (_program_p, _calling_p)


class Preparation(NamedTuple):
    """How a program, and any program that JAX's transformations derive from it, is prepared for
    lowering.

    passes : the optimization passes
    plain  : XLA alone decides how loops are compiled on a CPU
    alone  : it is one un-jitted operation, and Python goes on while another thread runs it
    blocks : on a CPU the thread that calls runs it
    """

    passes: tuple[Any, ...] = ()
    plain: bool = False
    alone: bool = False
    blocks: bool = False


# Whether JAX's cache on disk takes programs with host callbacks, as it does from 0.11 on.
_CALLS_ARE_CACHED = "host_callbacks" in signature(compilation_cache.get_executable_and_time).parameters

AS_IT_IS, ALONE = Preparation(), Preparation(alone=True)


def prepared(program: Program, preparation: Preparation, platform: str | None = None) -> Program:
    """Return the program as it is lowered for a platform (None: JAX's default); cached."""
    return memo(program, _prepared, preparation, platform or jax.default_backend())


def _prepared(program: Program, preparation: Preparation, platform: str) -> Program:
    chain = preparation.passes  # of a single operation none, which needs no pass to be loaded
    with optimized_for(platform):
        made = passes.optimize(program, chain) if chain else passes.inline(program)
    return passes.kernels.plain(made) if preparation.plain else passes.repeated_decisions.rounded_alike(made)


def run_program(program: Program, args: Sequence[Any], preparation: Preparation = AS_IT_IS) -> list[Any]:
    """Apply a program to JAX values; while `jax.jit` traces, this records one equation."""
    return _run_anywhere(program, [*program.values, *args], preparation)


def _run_anywhere(program: Program, operands: Sequence[Any], preparation: Preparation) -> list[Any]:
    """Apply a program to its constants and arguments, on the devices that it asks for."""
    mesh = mesh_of(program)
    if mesh is None or laid_out_by_type(operands):
        return _run_program(program, operands, preparation)
    mesh, free = left_to_xla(mesh), jax.P.UNCONSTRAINED

    def anyhow(xs: Sequence[Any]) -> list[Any]:
        places = [jax.sharding.NamedSharding(mesh, jax.P(*[free] * np.ndim(x))) for x in xs]
        return [jax.lax.with_sharding_constraint(x, s) for x, s in zip(xs, places, strict=True)]

    # So that jax.jit knows the devices; there may be no operands, or none that is read.
    return anyhow(_run_program(program, anyhow(operands), preparation))


def _run_program(program: Program, operands: Sequence[Any], preparation: Preparation) -> list[Any]:
    closed, _ = hoist_constants(program)  # JAX keeps the parameters of its equations alive
    if not axes_inside(closed).isdisjoint(jax.sharding.get_abstract_mesh().manual_axes):
        return runtime.run_sharded(closed, operands, preparation)
    return bind(closed, operands, preparation)


def bind(program: Program, operands: Sequence[Any], preparation: Preparation = AS_IT_IS) -> list[Any]:
    """Bind one JAX equation with a program without constants."""
    if "rules in JAX" in runtime.waiting:
        runtime.load("rules in JAX")
    operands = auto_insert_reshard(*operands)  # in shard_map: all vary over the same mesh axes
    primitive = _calling_p if calls_of(program).any else _program_p
    with _config.eager_constant_folding(False):  # it would run a program without operands during tracing
        return primitive.bind(*operands, program=program, preparation=preparation)


@memoized
def mesh_of(program: Program) -> Any:
    """Return the device mesh of a parameter of an equation, a sharding or JAX's equation, or None."""
    equations = [e for p in with_nested(program) for e in p.equations]
    held: list[Any] = [e.params.get(name) for e in equations for name in ("sharding", "body")]
    return next((x.mesh for x in held if getattr(x, "mesh", None) is not None), None)


@_program_p.def_abstract_eval
def _abstract_eval(*avals: Any, program: Program, preparation: Preparation = AS_IT_IS) -> list[Any]:
    made = [aval_of(t) for t in program.out_types]
    if laid_out_by_type(avals):
        alone = len(program.equations) == 1 and not program.equations[0].primitive.holds_programs
        given = () if alone else avals
        layouts = _layouts(program)
        made = [a.update(sharding=s or _like(a, given)) for a, s in zip(made, layouts, strict=True)]
    varying = frozenset().union(*[a.mat.varying for a in avals])
    if varying:
        mesh, how = jax.sharding.get_abstract_mesh(), ManualAxisType(varying=varying)
        made = [a.update(manual_axis_type=how, sharding=a.sharding.update(mesh=mesh)) for a in made]
    return made


def _like(result: Any, operands: Sequence[Any]) -> Any:
    """Return the sharding of an operand of the result's shape, such as the carry of a loop. A result
    without one would count as replicated."""
    return next((a.sharding for a in operands if a.shape == result.shape), result.sharding)


@memoized
def _layouts(program: Program) -> list[Any]:
    """Return each output's sharding over explicit axes, part of its type in JAX, or None."""
    asked: dict[Any, Any] = {}
    for e in program.equations:
        inner = e.params.get("program")
        if e.primitive is sharding_constraint:
            asked[e.outputs[0]] = of_type(e.params["sharding"], e.outputs[0].type.ndim)
        elif inner.__class__ is Program and inner.out_types == tuple([v.type for v in e.outputs]):
            asked.update(zip(e.outputs, _layouts(inner), strict=True))
    return [asked.get(v) for v in program.outputs]


@_calling_p.def_effectful_abstract_eval
def _effectful_eval(*avals: Any, program: Program, preparation: Preparation) -> tuple[list[Any], set[Any]]:
    return _abstract_eval(*avals, program=program), {_effect(kind) for kind in calls_of(program).effects}


@cached("effects of callbacks", 256)
def _effect(kind: Any) -> Any:
    """Return JAX's effect object of a kind, taken from a jaxpr that has only this effect."""
    if not isinstance(kind, str):
        return kind
    ordered = kind.startswith("ordered")

    def program() -> Any:
        if kind.endswith("debug"):
            return jax.debug.callback(lambda: None, ordered=ordered)
        return io_callback(lambda: None, None, ordered=ordered)

    (effect,) = jax.make_jaxpr(program)().effects
    return effect


def asked(*_: Any) -> None:
    """A host callback that is never called: the calling thread runs the program, by `cpu="blocking"`."""


def short(*_: Any) -> None:
    """A host callback that is never called: the calling thread runs the program, which is short."""


@_program_p.def_impl
@_calling_p.def_impl
def _impl(*args: Any, program: Program, preparation: Preparation) -> list[Any]:
    run: Any = executable(prepared(program, preparation))
    with jax.disable_jit(False):  # single operations are always compiled
        try:
            return run(*args)
        except RuntimeError as error:
            if not without_kernel(error):
                raise
            run.clear_cache()
            return run(*args)


@memoized
def executable(program: Program) -> Callable[..., list[Any]]:
    """Return the program as a compiled function of concrete arrays, constants first."""

    def run(*args: Any) -> list[Any]:
        if is_looking_for_nans():
            stop_at_first_nan(program, args[len(program.constants) :])
        return _run_anywhere(program, args, AS_IT_IS)

    chosen = SETS[choice(program)]
    return jax_jit(run, compiler_options=chosen) if chosen else jax_jit(run)


def with_names() -> AbstractContextManager[None]:
    """Compile with the current names: JAX's disk cache would return a program that differs only in names."""
    return _config.compilation_cache_include_metadata_in_key(True)


def _compiled_alone(program: Program) -> None:
    """Compile a program as a kernel, also if 64-bit types were enabled only where it was made."""
    run: Any = executable(passes.kernels.called(program))
    with jax.enable_x64(True):
        run.lower(*[jax.ShapeDtypeStruct(t.shape, t.dtype) for t in program.in_types]).compile()


def without_kernel(error: Exception) -> bool:
    """Return whether this error is XLA's failure to compile a kernel of the last module. That
    kernel is then refused, so the call may be repeated after JAX's cache for it is cleared."""
    found = kernel_calls.last() if isinstance(error, RuntimeError) else []
    return bool(found) and kernel_calls.refuse(found, _compiled_alone)


# --- dispatch -------------------------------------------------------------------------------------
#
# What `jax.jit` returns is an object of C++ with a cache of executables by signature. For a signature
# that it does not know it calls its Python function `cache_miss`, which returns the result, what
# the cache is to keep (None: nothing, so the next call is a miss too), and whether it is stale.
#
# Ours is such an object with another `cache_miss`, so a call that hits costs what JAX's does. While
# functrans or JAX traces, each call is a miss: the current trace of JAX is part of the signature.

Miss = Callable[..., tuple[Any, Any, bool]]


def cache_miss(jitted: Any) -> Miss:
    """Return the `cache_miss` of a function jitted by JAX."""
    return next(x for x in gc.get_referents(jitted) if getattr(x, "__name__", "") == "cache_miss")


def dispatcher(jitted: Any, miss: Miss) -> Any:
    """Return a copy of a function jitted by JAX with another `cache_miss`."""
    key = next(x for x in gc.get_referents(jitted) if isinstance(x, JitGlobalCppCacheKeys))
    cache = _pjit._get_cpp_global_cache(key.contains_explicit_attributes)
    info, fun = jitted._jit_info, jitted._fun
    statics = info.static_argnums, info.static_argnames
    made = _jax.pjit(jitted.__name__, fun, miss, *statics, key, dispatch_registry, cc_shard_arg, cache)
    made._fun = fun  # which JAX calls again if it finds a NaN
    return made


def option_names() -> list[str]:
    """Return the names of compiler options that jaxlib lists; it accepts more."""
    built = xla_client.CompileOptions().executable_build_options
    return [name for name in dir(built.debug_options) if name.startswith("xla")]


def is_outermost() -> bool:
    """Return whether JAX is not tracing in this thread."""
    return trace_state_clean()


def recompiling(lowered: Any, again: Callable[[], Any]) -> Any:
    """Wrap a `Lowered` so that `compile` lowers again, with `again`, if a kernel fails. What it compiles is
    what a call runs, and compiled once for both."""
    kind, found = type(lowered), kernel_calls.last()

    def compile(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return _called_by_cpp(kind.compile(self, *args, **kwargs))
        except RuntimeError:
            if not kernel_calls.refuse(found, _compiled_alone):
                raise
        return again().compile(*args, **kwargs)

    if found or _has_only_short(lowered._lowering.compile_args["host_callbacks"]):
        lowered.__class__ = type(kind.__name__, (kind,), {"__slots__": (), "compile": compile})
    return lowered


def _has_only_short(callbacks: Sequence[Any]) -> bool:
    return [*callbacks] == [short]


def _called_by_cpp(compiled: Any) -> Any:
    """Have JAX call a short program that was compiled ahead of time as one without callbacks; those with
    callbacks it calls by Python code."""
    made = compiled._executable
    if _has_only_short(made._unloaded_executable.host_callbacks):
        made._unloaded_executable.host_callbacks = []
        made.unsafe_call.has_host_callbacks = False
    return compiled


def relowering(traced: Any, again: Callable[[], Any]) -> Any:
    """Wrap a `Traced` so that its `Lowered` traces again, with `again`, if a kernel fails."""
    kind = type(traced)

    def lower(self: Any, *args: Any, **kwargs: Any) -> Any:
        lowered = kind.lower(self, *args, **kwargs)
        return recompiling(lowered, lambda: again().lower(*args, **kwargs))

    traced.__class__ = type(kind.__name__, (kind,), {"__slots__": (), "lower": lower})
    return traced


def _lower_rule(jax_ctx: Any, *operands: Any, program: Program, preparation: Preparation) -> Any:
    lowering = Lowering(jax_ctx, _compiled_alone, preparation.alone)
    made = prepared(program, preparation, lowering.platform)
    if lowering.on_this_cpu and (preparation.blocks or _is_short(made, preparation)):
        lowering.run_in_the_calling_thread(asked if preparation.blocks else short)
    outs = lowering.emit(made, operands)
    if lowering.tokens:
        jax_ctx.set_tokens_out(lowering.tokens)
    lowering.emit_called()
    return outs


def _is_short(program: Program, preparation: Preparation) -> bool:
    """Return whether the calling thread is to run a program without having been asked."""
    if preparation.plain or preparation.alone or calls_of(program).any:
        return False
    if flags.jax_compilation_cache_dir and not _CALLS_ARE_CACHED:
        return False
    return passes.threads.is_short(program)


for _primitive in PRIMITIVES:  # not cacheable: inlined, so each operation keeps its location
    mlir.register_lowering(_primitive, _lower_rule, cacheable=False)

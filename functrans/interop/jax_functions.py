"""`from_jax`: import JAX functions.

In: a function written with `jax.numpy`, `jax.lax`, ... Out: a function whose operations are ours.
JAX traces it to a jaxpr once per signature, and `interop/jaxprs/` converts that to a Program. Each
call is a call of the Program: one equation while tracing, one dispatch otherwise.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax

from functrans import errors
from functrans import pytrees as tree
from functrans.api.arguments import OF_PYTHON, check_callable
from functrans.api.static_arguments import StaticArguments
from functrans.backends import xla
from functrans.caching import Cache, exactly
from functrans.interop.jaxprs.walk import Imported, traced
from functrans.ir.program import Program
from functrans.ir.tracebacks import hide_frames
from functrans.ir.types import ArrayType
from functrans.jax_trace import settings
from functrans.lax.arguments import as_array
from functrans.primitives.calls.jit import jit as jit_call
from functrans.primitives.distributed.sharding import traced_by_jax
from functrans.pytrees.functions import function_name, needs_value
from functrans.records import NamedTuple
from functrans.trace import ARRAYS, Tracer, bind, materialize, state, tracing, typeof

_KEPT = 512  # signatures per function


def from_jax(
    fun: Callable[..., Any],
    *,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
) -> Callable[..., Any]:
    """Convert a function written with JAX to a functrans function.

    It can be called eagerly and inside `grad`, `vmap`, `jit`, `make_ir` and all other
    transformations.

    JAX traces it once per signature: types of the arrays, treedef of the arguments, values of the
    static ones. Its custom rules, loops and nested jitted functions are kept. A JAX primitive that
    has no counterpart here (a Pallas kernel, a `jax.ffi` call, a user's primitive) stays a JAX
    primitive, with JAX's rules: `jax_call` in the program.

    Arguments:
      fun: function of pytrees of arrays that returns a pytree of arrays, and that JAX can trace.
      static_argnums, static_argnames: static arguments, hashable Python values, as in `jit`.
        Leaves that are not arrays (strings, dtypes, functions) are static automatically, and so are
        Python numbers and NumPy arrays where JAX needs their values (axes, shapes).

    Returns:
      A function like `fun`; `.clear_cache()` drops its traces.

    Raises:
      MissingRule: JAX lacks the rule that a transformation needs for one of its primitives.
      AbstractValueError: it needs the concrete value of a traced argument.
      UnhashableStatic: a static argument is not hashable.

    Source: the inverse of `jax.make_jaxpr`.

    Example:
      >>> import functrans as ft, jax
      >>> soft = ft.interop.from_jax(jax.nn.softplus)
      >>> print(ft.grad(soft)(0.0))
      0.5
    """
    check_callable(fun, "from_jax")
    imported = JaxFunction(fun, static_argnums, static_argnames)

    @functools.wraps(fun)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return imported(args, kwargs)
        except Exception as error:
            hide_frames(error)
            raise

    call.clear_cache = imported.clear  # type: ignore[attr-defined]
    return call


class _Entry(NamedTuple):
    """The program of a signature, the values of its leading inputs, the indices of the leaves that
    are its other inputs, and the treedef of its result."""

    program: Program
    consts: tuple[Any, ...]
    operands: tuple[int, ...]
    out_tree: Any


class JaxFunction:
    """One JAX function with its programs."""

    def __init__(self, fun: Callable[..., Any], argnums: Any, argnames: Any):
        self.fun = fun
        self.statics: StaticArguments = StaticArguments(fun, argnums, argnames)
        self.name: str = function_name(fun).rpartition(".")[2]
        self.cache: Cache = Cache("functions of JAX", _KEPT)
        self.at_once: bool = True  # try `compiled` first; False once it did not accept a call

        @functools.wraps(fun)
        def compiled(*args: Any, **kwargs: Any) -> Any:
            if traced_by_jax():
                return fun(*args, **kwargs)
            with jax.ensure_compile_time_eval():  # so that constants are arrays, not JAX tracers
                found, leaves = self.find(args, kwargs)
            if found.__class__ is not _Entry:
                raise TypeError(f"{self.name} needs values")
            operands = [*found.consts, *[leaves[i] for i in found.operands]]
            return tree.unflatten(found.out_tree, xla.run_program(found.program, operands))

        self.compiled: Any = xla.jax_jit(compiled, static_argnums=argnums, static_argnames=argnames)

    def clear(self) -> None:
        self.cache.clear()
        self.compiled.clear_cache()

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        failed = False
        if state.trace is None and self.at_once:
            try:
                return self.compiled(*args, **kwargs)  # JAX's C++ dispatch on the signature
            except (TypeError, ValueError, IndexError):  # the code below raises the right error
                failed = True
            except RuntimeError as error:
                if not xla.without_kernel(error):
                    raise
                self.compiled.clear_cache()
        out = self.by_program(args, kwargs)
        if failed:
            self.at_once = False
        return out

    def by_program(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the program of the signature, or `with_values` if there is none."""
        found, leaves = self.find(args, kwargs)
        if found.__class__ is not _Entry:
            return self.with_values(found, leaves, args, kwargs)
        return tree.unflatten(found.out_tree, _called(found, [leaves[i] for i in found.operands]))

    def find(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, list[Any]]:
        """Return the cache entry of the signature, and the leaves of the dynamic arguments. If JAX needs
        concrete values, numbers are static; if that does not help, the entry is JAX's error."""
        static, dynamic = self.statics.split(args, kwargs)
        if static:
            self.statics.check(static)
        leaves, in_tree = tree.flatten(dynamic)
        kinds = tuple([typeof(x) if x.__class__ in ARRAYS else _kind(x) for x in leaves])
        key: tuple[Any, ...] = (in_tree, kinds, state.axes, settings())
        if static:
            key = (*key, exactly(static))
        found = self.cache.get(key)
        if found.__class__ is _Entry:
            return found, leaves
        for fixed in ((), OF_PYTHON):  # no leaf is an instance of (): nothing, then numbers
            known = (*key, *[exactly(x) for x in leaves if isinstance(x, fixed)])
            found = self.cache.get(known)
            if found is None:
                pairs = zip(kinds, leaves, strict=True)
                arrays = [k.__class__ is ArrayType and not isinstance(x, fixed) for k, x in pairs]
                found = self._keep(known, self._traced(static, in_tree, leaves, arrays))
            if found.__class__ is _Entry:
                break
        return found, leaves

    def _keep(self, key: Any, value: Any) -> Any:
        if any(isinstance(x, Tracer) for x in getattr(value, "consts", ())):
            return value  # it captured tracers, which are valid for this call only
        return self.cache.keep(key, value)

    def _traced(
        self, static: tuple[Any, ...], in_tree: Any, leaves: list[Any], dynamic: list[bool]
    ) -> _Entry | Exception:
        """Trace the function with JAX over the `dynamic` leaves, and convert the jaxpr. Return JAX's error
        if that needs the values of the others."""
        bound = self.statics.bound(static)
        fixed = [None if d else x for x, d in zip(leaves, dynamic, strict=True)]

        def flat(*values: Any) -> Any:
            rest = iter(values)
            full = [next(rest) if d else x for x, d in zip(fixed, dynamic, strict=True)]
            args, kwargs = tree.unflatten(in_tree, full)
            return bound(*args, **kwargs)

        places = tuple([i for i, d in enumerate(dynamic) if d])
        try:
            closed, out_tree = traced(flat, [typeof(leaves[i]) for i in places])
        except errors.FunctransError:
            raise
        except (TypeError, ValueError, IndexError) as error:
            return error.with_traceback(None)
        made = Imported(closed, out_tree, self.name)
        return _Entry(made.program, made.consts, places, out_tree)

    def with_values(
        self, error: Exception, leaves: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run a function that cannot be traced on concrete arrays, as JAX does."""
        if not any(isinstance(x, Tracer) for x in leaves):
            with tracing(None):
                return self.fun(*args, **kwargs)
        if not isinstance(error, (jax.errors.JAXTypeError, jax.errors.JAXIndexError)):
            raise error
        raise needs_value(
            error, f"{self.name}, imported by from_jax,", "static_argnums of from_jax"
        ) from error


# --- calls ----------------------------------------------------------------------------------------


def _called(entry: _Entry, leaves: list[Any]) -> list[Any]:
    """Call a program; if it has a single equation, bind that directly."""
    program = entry.program
    if state.trace is not None:
        leaves = [x if x.__class__ in ARRAYS else as_array(x) for x in leaves]
    operands = [*entry.consts, *leaves]
    if len(program.equations) > 1:
        return jit_call(*operands, program=program)
    env = dict(zip(program.inputs, operands, strict=True))
    for e in program.equations:
        outs = bind(e.primitive, [env.get(v, v) for v in e.inputs], e.params)
        env.update(zip(e.outputs, outs if e.primitive.multiple_results else [outs], strict=True))
    return [materialize(as_array(env[v]) if v in env else v) for v in program.outputs]


# --- signatures -----------------------------------------------------------------------------------


def _kind(x: Any) -> Any:
    """Return the signature entry of a leaf: its type, or a key of the leaf itself if it is not an array."""
    try:
        return typeof(x)
    except errors.NotAnArray as error:
        try:
            hash(x)
        except TypeError:
            raise error from None
        return exactly(x)

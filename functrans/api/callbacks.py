"""Callbacks: `debug.print`, `pure_callback`, `io_callback` and related functions."""

from __future__ import annotations

import copy
import logging
import string
import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from functrans import errors
from functrans import pytrees as tree
from functrans.api.arguments import as_array
from functrans.ir.source import brief, brief_with_type, here, line_of, user_source
from functrans.ir.tracebacks import boundary
from functrans.ir.types import ArrayType
from functrans.lax.staging import check_function
from functrans.primitives.calls import callback as calls
from functrans.primitives.calls.callback import FlatCall
from functrans.pytrees.functions import function_name
from functrans.trace import literal, staging_trace, typeof
from functrans.typing import PyTree

_logger = logging.getLogger("functrans.debug")


@boundary
def debug_callback(
    callback: Callable[..., PyTree] | None = None,
    *args: PyTree,
    ordered: bool = False,
    partitioned: bool = False,
    **kwargs: PyTree,
) -> Callable[..., None] | None:
    """Call a Python function with run-time values, for its side effect.

    Inside `jit` it is called when the compiled code runs; inside `vmap` once per example; `grad`
    and `jvp` call it with the primal values. Its result is ignored.

    Arguments:
      callback: function of pytrees of `jax.Array`s. Left out: return a function of the callback and
        its arguments, with the options given here.
      *args, **kwargs: arguments of the callback; leaves that are not arrays are passed unchanged.
      ordered: run the ordered callbacks in program order.
      partitioned: for an array sharded over several devices, call it with each device's shard.

    Raises:
      NotAnArray: `callback` is not a function.

    Source: `jax.debug.callback`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> seen = []
      >>> @ft.jit
      ... def f(x):
      ...     ft.debug.callback(seen.append, x)
      ...     return x * 2
      >>> y = f(3.0)
      >>> ft.effects_barrier()
      >>> print(seen)
      [Array(3., dtype=float32...)]
    """

    def call(callback: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        check_function(callback, "debug.callback", "callback")
        _bind_debug(callback, function_name(callback), args, kwargs, ordered, partitioned)

    return _in_two_calls(call, callback, args, kwargs, "debug.callback")


@boundary
def debug_print(
    fmt: str | None = None,
    *args: PyTree,
    ordered: bool = False,
    partitioned: bool = False,
    skip_format_check: bool = False,
    **kwargs: PyTree,
) -> Callable[..., None] | None:
    """Print run-time values, each time the program runs.

    Arguments:
      fmt: format string, as for `str.format`; not an f-string, which would be formatted while the
        function is traced. Left out: return a function of the format and the values, with these
        options.
      *args, **kwargs: values for the replacement fields of `fmt`.
      ordered: run the ordered prints in program order.
      partitioned: for an array sharded over several devices, print each device's shard.
      skip_format_check: do not check that the values match the replacement fields.

    Raises:
      InvalidFormat: a replacement field has no value, or a value has no field.

    Source: `jax.debug.print`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> def f(x):
      ...     ft.debug.print("x = {x}", x=x)
      ...     return x * x
      >>> print(ft.grad(f)(3.0))
      x = 3.0
      6.0
    """
    return _shown(fmt, args, kwargs, ordered, partitioned, not skip_format_check)


@boundary
def debug_log(
    fmt: str | None = None,
    *args: PyTree,
    ordered: bool = False,
    partitioned: bool = False,
    skip_format_check: bool = False,
    **kwargs: PyTree,
) -> Callable[..., None] | None:
    """Log run-time values to the logger `functrans.debug` (level INFO), each time the program runs.

    Arguments: as for `debug.print`.

    Source: `jax.debug.log`.

    Example:
      >>> import functrans as ft
      >>> ft.debug.log("x = {}", 3.0)
    """
    source = user_source()
    where = (source[0].co_filename, line_of(source)) if source else ("(unknown file)", 0)
    record = _logger.makeRecord(_logger.name, logging.INFO, *where, "", (), None)
    return _shown(fmt, args, kwargs, ordered, partitioned, not skip_format_check, record)


@boundary
def pure_callback(
    callback: Callable[..., PyTree],
    result_shape_dtypes: PyTree,
    *args: PyTree,
    sharding: jax.sharding.SingleDeviceSharding | None = None,
    vmap_method: str | None = None,
    **kwargs: PyTree,
) -> PyTree:
    """Call a pure Python function as an operation of a program.

    It may be called more than once, or not at all if its results are unused. It has no derivative;
    define one with `custom_jvp`.

    Arguments:
      callback: function of pytrees of `jax.Array`s that returns a pytree of arrays.
      result_shape_dtypes: pytree of `ft.ShapeDtypeStruct`s: the types of its results.
      *args, **kwargs: arguments of the callback; pytrees of arrays.
      sharding: the device from which to call it.
      vmap_method: how `vmap` batches it. "sequential" and "sequential_unrolled" call it once per
        example. "expand_dims" and "broadcast_all" call it once, with a leading batch axis on every
        array; for an argument that is not mapped that axis has size 1 or full size, respectively.
        "legacy_vectorized" passes arguments that are not mapped unchanged.

    Returns:
      A pytree of arrays like `result_shape_dtypes`.

    Raises:
      InvalidArgument: an unknown `vmap_method`, or 64-bit results while x64 is disabled.
      MissingRule: it is vmapped and has no `vmap_method`.
      OpaqueCallback: it is differentiated.
      CallbackResult: it returned other shapes or dtypes (compiled: inside a JaxRuntimeError).

    Source: `jax.pure_callback`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp, numpy as np
      >>> @ft.jit
      ... def f(x):
      ...     like = ft.ShapeDtypeStruct(x.shape, x.dtype)
      ...     return ft.pure_callback(np.sort, like, x, vmap_method="expand_dims")
      >>> print(f(jnp.array([3.0, 1.0, 2.0])))
      [1. 2. 3.]
    """
    if vmap_method not in _METHODS:
        raise errors.InvalidArgument(
            f"pure_callback: vmap_method must be one of {', '.join(map(repr, _METHODS))}, "
            f"got {vmap_method!r}, {here()}"
        )
    how = {"sharding": sharding, "vmap_method": vmap_method}
    return _with_results(calls.pure_callback, callback, result_shape_dtypes, args, kwargs, how)


_METHODS = ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized", None)


@boundary
def io_callback(
    callback: Callable[..., PyTree],
    result_shape_dtypes: PyTree,
    *args: PyTree,
    sharding: jax.sharding.SingleDeviceSharding | None = None,
    ordered: bool = False,
    **kwargs: PyTree,
) -> PyTree:
    """Call an impure Python function as an operation of a program.

    It is called each time the program runs, even if its results are unused; inside `vmap` once per
    example. It has no derivative; define one with `custom_jvp`.

    Arguments:
      callback: function of pytrees of `jax.Array`s that returns a pytree of arrays.
      result_shape_dtypes: pytree of `ft.ShapeDtypeStruct`s, the types of its results; or None.
      *args, **kwargs: arguments of the callback; pytrees of arrays.
      sharding: the device from which to call it.
      ordered: run the ordered callbacks in program order; not supported under `vmap`.

    Returns:
      A pytree of arrays like `result_shape_dtypes`.

    Raises:
      InvalidArgument: it is ordered and vmapped, or has 64-bit results while x64 is disabled.
      OpaqueCallback: it is differentiated.
      CallbackResult: it returned other shapes or dtypes (compiled: inside a JaxRuntimeError).

    Source: `jax.experimental.io_callback`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp, numpy as np
      >>> numbers = iter(range(10))
      >>> def draw():
      ...     return np.int32(next(numbers))
      >>> @ft.jit
      ... def f(x):
      ...     like = ft.ShapeDtypeStruct((), jnp.int32)
      ...     first = ft.experimental.io_callback(draw, like, ordered=True)
      ...     second = ft.experimental.io_callback(draw, like, ordered=True)
      ...     return x + 10 * first + second
      >>> print(f(100), f(100))
      101 123
    """
    how = {"sharding": sharding, "ordered": ordered}
    return _with_results(calls.io_callback, callback, result_shape_dtypes, args, kwargs, how)


# --- shared helpers -------------------------------------------------------------------------------


def _in_two_calls(
    run: Callable[..., None], first: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str
) -> Any:
    """Run `name(first, *args)`, or for `name(ordered=True)` return a function of the rest."""
    if first is not None:
        return run(first, *args, **kwargs)
    if args or kwargs:
        raise errors.MissingArgument(
            f"{name} was called with {', '.join([*map(repr, args), *kwargs])} but without its first "
            f"argument, {here()}\n"
            f"Write {name}(options)(first, *args), or {name}(first, *args, options)."
        )
    return run


def _bind_debug(
    callback: Callable[..., Any], name: str, args: Any, kwargs: Any, ordered: Any, partitioned: Any
) -> None:
    leaves, in_tree = tree.flatten((args, kwargs))
    static = {i: x for i, x in enumerate(leaves) if not _is_array_like(x)}
    arrays = [_operand(x) for i, x in enumerate(leaves) if i not in static]
    flat = FlatCall(callback, in_tree, static, name)
    calls.debug_callback(*arrays, callback=flat, ordered=bool(ordered), partitioned=bool(partitioned))


def _operand(x: Any) -> Any:
    """Convert a value to an operand: a Python number to a literal while tracing, else an array."""
    if x.__class__ in (bool, int, float, complex) and staging_trace() is not None:
        return literal(x, typeof(x))
    return as_array(x)


def _is_array_like(x: Any) -> bool:
    try:
        typeof(x)
    except TypeError:
        return False
    return True


def _with_results(primitive: Any, callback: Any, like: Any, args: Any, kwargs: Any, how: Any) -> Any:
    check_function(callback, primitive.name, "callback")
    leaves, in_tree = tree.flatten((args, kwargs))
    structs, out_tree = tree.flatten(like)
    flat = FlatCall(callback, in_tree, {}, function_name(callback))
    results = _result_types(structs, f"{primitive.name} of {flat.name}")
    outs = primitive(*map(_operand, leaves), callback=flat, results=results, **how)
    return tree.unflatten(out_tree, outs)


def _result_types(structs: Sequence[Any], what: str) -> tuple[ArrayType, ...]:
    types = []
    for s in structs:
        if isinstance(s, type) or not (hasattr(s, "shape") and hasattr(s, "dtype")):
            raise errors.NotAnArray(
                f"{what}: result_shape_dtypes must be a pytree of objects with shape and dtype, "
                f"got {brief(s)}, {here()}\n"
                "Use ft.ShapeDtypeStruct(shape, dtype)."
            )
        if jax.dtypes.canonicalize_dtype(s.dtype) != s.dtype:
            raise errors.InvalidArgument(
                f"{what}: result_shape_dtypes has dtype {np.dtype(s.dtype).name}, but 64-bit types "
                f"are disabled, {here()}\n"
                "Use the 32-bit dtype, or ft.enable_x64(True)."
            )
        types.append(ArrayType(tuple(s.shape), np.dtype(s.dtype)))
    return tuple(types)


# --- formats --------------------------------------------------------------------------------------


def _shown(
    fmt: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    ordered: bool,
    partitioned: bool,
    check: bool,
    record: logging.LogRecord | None = None,
) -> Any:
    """Print values in a format, or log them as `record`; for no format, return a function that does."""
    name = "debug.print" if record is None else "debug.log"
    options = np.get_printoptions()

    def run(fmt: str, *args: Any, **kwargs: Any) -> None:
        if not isinstance(fmt, str):
            raise errors.NotAnArray(
                f"{name} takes a format string as its first argument, got {brief_with_type(fmt)}, {here()}\n"
                f'Write {name}("{{}}", x).'
            )
        if check:
            _check_format(fmt, args, kwargs, name)
        has_places = any(place is not None for _, place, _, _ in string.Formatter().parse(fmt))

        def show(*args: Any, **kwargs: Any) -> None:
            with np.printoptions(**options):
                text = fmt.format(*args, **kwargs) if has_places else " ".join([fmt, *map(str, args)])
            if record is None:
                sys.stdout.write(text + "\n")
            else:
                copied = copy.copy(record)
                copied.msg = text
                _logger.handle(copied)

        _bind_debug(show, f"print {fmt!r}", args, kwargs, ordered, partitioned)

    return _in_two_calls(run, fmt, args, kwargs, name)


class _Unused(string.Formatter):
    """A formatter that formats nothing, and records which values a format does not use."""

    keys: list[Any]

    def check_unused_args(self, used_args: Any, args: Any, kwargs: Any) -> None:
        self.keys = [key for key in (*range(len(args)), *kwargs) if key not in used_args]

    def format_field(self, value: Any, format_spec: str) -> str:
        return ""

    def convert_field(self, value: Any, conversion: Any) -> Any:
        return value


def _check_format(fmt: str, args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> None:
    unused = _Unused()
    try:
        unused.format(fmt, *args, **kwargs)
    except (IndexError, KeyError) as error:
        problem = f"has a placeholder for {error.args[0]!r}, but no such argument"
        if isinstance(error, IndexError):
            problem = f"has more placeholders than positional arguments ({len(args)})"
        fix = "Pass one argument per placeholder; write {{ and }} for literal braces."
    else:
        if not unused.keys:
            return
        shown = ", ".join([f"argument {k}" if k.__class__ is int else k for k in unused.keys])
        problem = f"has no placeholder for {shown}"
        fix = "Was it an f-string? Use a plain string: it is formatted when the program runs."
    raise errors.InvalidFormat(f"{name}: the format {fmt!r} {problem}, {here()}\n{fix}")

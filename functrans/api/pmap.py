"""`pmap`: a jitted `vmap` whose mapped axis is sharded over devices.

The function is vmapped, the mapped axis of each argument and result is sharded over a one-axis
mesh, and the whole is jitted. So derivatives, collectives and nesting are those of `vmap` and
`jit`, and XLA's partitioner inserts the communication between devices.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial, wraps
from types import FunctionType
from typing import Any, ParamSpec, TypeVar

import jax
import numpy as np

from functrans import errors
from functrans import pytrees as tree
from functrans.api import retracing
from functrans.api.arguments import as_array, as_arrays, counted
from functrans.api.compilation import Jitted
from functrans.api.jit import jit
from functrans.api.static_arguments import StaticArguments, joined
from functrans.api.vmap import MappedAxes, argument_names, vmap
from functrans.caching import Cache, CachePerFunction, exactly
from functrans.ir.source import brief, here
from functrans.ir.tracebacks import boundary
from functrans.primitives.distributed.sharding import sharding_constraint
from functrans.primitives.shape.moving import index_axis, move_axis
from functrans.pytrees.functions import FlatFunction, function_name
from functrans.trace import state, typeof
from functrans.typing import Device, PyTree

_P = ParamSpec("_P")
_R = TypeVar("_R")


@boundary
def pmap(
    fun: Callable[_P, _R],
    axis_name: Hashable = None,
    *,
    in_axes: int | Sequence[PyTree] | None = 0,
    out_axes: PyTree = 0,
    static_broadcasted_argnums: int | Iterable[int] = (),
    devices: Sequence[Device] | None = None,
    backend: str | None = None,
    axis_size: int | None = None,
    donate_argnums: int | Iterable[int] = (),
) -> Jitted[_P, _R]:
    """Map a function over an axis of its arguments, with one slice per device, compiled.

    Arguments:
      fun: function of pytrees of arrays.
      axis_name: a hashable name for the axis, for the collectives of `functrans.lax` inside `fun`.
      in_axes: axis of each argument to map over, or None to replicate it; an int for all arguments,
        or a tuple with a pytree prefix per argument, including the static ones. Keyword arguments
        are mapped over axis 0.
      out_axes: position of the mapped axis in the results; a pytree prefix of the result. None:
        return the value of the first device; the values should be the same on all devices.
      static_broadcasted_argnums: positions of static arguments: hashable Python values; each new
        value compiles again.
      devices: devices to map over; a shorter axis uses the first ones. Left out: all devices of
        `backend`.
      backend: name of a platform, "cpu", "gpu" or "tpu". Left out: the default.
      axis_size: expected size of the axis.
      donate_argnums: positions of arguments whose buffers are donated to the results.

    Returns:
      The parallel function, with `.lower(*args)`. Its results are sharded over the devices along
      the mapped axis.

    Raises:
      MissingArgument: a static argument was not given by position.
      InvalidArgument: the axis is out of range, or longer than the number of devices; `in_axes`
        does not match the arguments; no argument is mapped; an argument is committed to other
        devices.
      BatchSizeMismatch: the mapped axes have different sizes.
      UnhashableStatic: a static argument is not hashable.

    Source: `jax.pmap`, in a single process. Prefer `shard_map` in new code.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> n = ft.device_count()
      >>> share = ft.pmap(lambda x: x / ft.lax.psum(x, "i"), axis_name="i")
      >>> print(share(jnp.ones(n)).sum())
      1.0
    """
    with_options = functools.partial(pmap, **{k: v for k, v in locals().items() if k != "fun"})
    axes = MappedAxes("pmap", fun, in_axes, out_axes, axis_name)
    statics = StaticArguments(fun, static_broadcasted_argnums, None, "static_broadcasted_argnums")
    donated = frozenset(statics.donated(donate_argnums))
    chosen = None if devices is None else _checked(devices)
    prefix, prefix_tree = tree.flatten(out_axes, is_leaf=lambda d: d is None)
    options = axis_name, *prefix, prefix_tree, donated, frozenset(statics.numbers)
    made = _MADE.of(fun) if fun.__class__ is FunctionType else Cache("functions of pmap", 256)
    serial = retracing.new_serial()

    def prepared(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[_Parallel, list[Any]]:
        """Return the parallel function for this signature, and the leaves of the arguments."""
        if max(statics.numbers, default=-1) >= len(args):
            raise errors.MissingArgument(
                f"{axes}: static_broadcasted_argnums={sorted(statics.numbers)} is out of range: it "
                f"was called with {counted(len(args), 'positional argument')}, {here()}\n"
                "Pass static arguments by position."
            )
        statics.check(args, kwargs)
        static, dynamic = statics.split(args, kwargs)
        dims = axes.of_arguments(args, kwargs, statics.numbers)
        leaves, in_tree = tree.flatten(dynamic)
        names = partial(argument_names, args, kwargs, statics.numbers)
        dims, n = axes.sizes(as_arrays(leaves, names, typeof), dims, names, axis_size)
        over = _devices(axes, chosen, backend, n)
        key = options, exactly(static), in_tree, tuple(dims), over
        found = made.get(key)
        if found is None:
            new = _Parallel(statics, static, in_tree, dims, axis_name, out_axes, donated, over, serial)
            found = made.keep(key, new)
        return found, leaves

    @boundary
    @wraps(fun)
    def call(*args: Any, **kwargs: Any) -> Any:
        parallel, leaves = prepared(args, kwargs)
        try:
            return parallel.jitted(*leaves)
        except ValueError as error:
            if state.trace is None and not isinstance(error, errors.FunctransError):
                names = argument_names(args, kwargs, statics.numbers)
                parallel.check_places(axes, leaves, names)
            raise

    def jitted() -> Jitted[..., Any]:
        return jit(call, static_argnums=tuple(statics.numbers), donate_argnums=tuple(donated))

    @boundary
    def lower(*args: Any, **kwargs: Any) -> Any:
        return jitted().lower(*args, **kwargs)

    @boundary
    def eval_shape(*args: Any, **kwargs: Any) -> Any:
        return jitted().eval_shape(*args, **kwargs)

    whole = Jitted(call, fun, with_options)
    whole.lower, whole.eval_shape = lower, eval_shape
    return whole


# So that `pmap(f)(x)` in a loop compiles once. Entries hold the function by a weak reference.
_MADE = CachePerFunction("functions of pmap", 256)


class _Parallel:
    """A function of the leaves of its arguments, vmapped, sharded over devices and jitted."""

    def __init__(
        self,
        statics: StaticArguments,
        static: tuple[Any, ...],
        in_tree: Any,
        dims: Sequence[int | None],
        axis_name: Any,
        out_axes: Any,
        donated: frozenset[int],
        devices: tuple[Any, ...],
        serial: int,
    ):
        shown = "_internal_pmap_axis_name" if axis_name is None else str(axis_name)
        name = re.sub(r"\W", "_", shown)  # XLA accepts only these characters
        self.mesh = jax.sharding.Mesh(np.array(devices), (name,))
        self.places = tuple([self.place(d) for d in dims])

        def mapped(*leaves: Any) -> Any:
            args, kwargs = tree.unflatten(in_tree, leaves)
            full = tuple(joined(static[0], args) if static else args)
            nested = state.trace is not None and state.trace.parent is not None
            retracing.record(serial, statics, full, kwargs, nested)
            axes = MappedAxes("pmap", statics.fun, 0, out_axes, axis_name)
            flat = FlatFunction(statics.bound(static), in_tree, statics.fun)
            parts = [
                sharding_constraint(as_array(x), sharding=p) for x, p in zip(leaves, self.places, strict=True)
            ]
            stacks = vmap(flat, tuple(dims), 0, axis_name, len(devices), name)(*parts)
            wanted = axes.of_result(tree.unflatten(flat.out_tree, stacks))
            outs = [self.merged(y, d, axes) for y, d in zip(stacks, wanted, strict=True)]
            return tree.unflatten(flat.out_tree, outs)

        mapped.__name__ = mapped.__qualname__ = function_name(statics.fun)
        retracing.STAND_INS.add(mapped)
        self.jitted = jit(
            mapped, donate_argnums=_leaves_of(donated, statics.numbers, in_tree), in_shardings=self.places
        )

    def place(self, axis: int | None) -> Any:
        """Return the sharding of an array whose mapped axis is `axis`; None: replicated."""
        spec = () if axis is None else (*[None] * axis, *self.mesh.axis_names)
        return jax.sharding.NamedSharding(self.mesh, jax.P(*spec))

    def merged(self, stack: Any, to: int | None, axes: MappedAxes) -> Any:
        """Return a result with its mapped axis at `to`, from results stacked along axis 0."""
        if to is None:
            y = index_axis(stack, 0, 0)
        else:
            to = axes.placed(to, typeof(stack).ndim)
            y = move_axis(stack, 0, to)
        return sharding_constraint(y, sharding=self.place(to))

    def check_places(self, axes: MappedAxes, leaves: Sequence[Any], names: Sequence[str]) -> None:
        """Raise an error for an argument that is committed to a different sharding."""
        for x, place, name in zip(leaves, self.places, names, strict=True):
            if not isinstance(x, jax.Array) or not x.committed:
                continue
            if not x.sharding.is_equivalent_to(place, x.ndim):
                raise errors.InvalidArgument(
                    f"{axes}: {name} of type {typeof(x)} is committed to {x.sharding}, but is "
                    f"needed on {place}, {here()}\nMove it there with device_put, or pass an "
                    "uncommitted array, such as a NumPy array."
                ) from None


def _leaves_of(arguments: Iterable[int], static: Iterable[int], in_tree: Any) -> tuple[int, ...]:
    """Return the leaf indices of some positional arguments."""
    dynamic = in_tree.children()[0].children()
    numbers = [i for i in range(len(dynamic) + len(set(static))) if i not in static]
    owner = [i for i, part in zip(numbers, dynamic, strict=True) for _ in range(part.num_leaves)]
    return tuple([k for k, i in enumerate(owner) if i in arguments])


def _checked(devices: Any) -> tuple[Any, ...]:
    """Check the user's `devices`, and return them as a tuple."""
    given = tuple(devices) if isinstance(devices, Iterable) else (devices,)
    if not given or not all(isinstance(d, jax.Device) for d in given):
        raise errors.InvalidArgument(
            f"pmap: devices must be a non-empty sequence of jax.Devices, got {brief(devices)}, "
            f"{here()}\nChoose from ft.devices()."
        )
    if len(set(given)) < len(given):
        raise errors.InvalidArgument(f"pmap: devices must be distinct, got {list(given)}, {here()}")
    return given


def _devices(
    axes: MappedAxes, chosen: tuple[Any, ...] | None, backend: str | None, n: int
) -> tuple[Any, ...]:
    """Return the n devices for an axis of size n."""
    try:
        devices = chosen or tuple(jax.devices(backend))
    except RuntimeError as error:
        raise errors.UnknownBackend(
            f"{axes}: {error}, {here()}\nLeave out backend to use the default."
        ) from None
    if any([d.process_index != jax.process_index(backend) for d in devices]):
        raise errors.InvalidArgument(
            f"{axes}: the devices {devices} belong to several processes, {here()}\n"
            "Use those of this process, devices=ft.local_devices(), or use shard_map."
        )
    k = len(devices)
    if not 1 <= n <= k:
        raise errors.InvalidArgument(
            f"{axes}: the mapped axis has size {n}, but {counted(k, 'device')} can take only one "
            f"slice each, {here()}\nFor more slices use vmap, or reshape the axis to ({k}, ...) "
            "and use vmap inside pmap."
        )
    return devices[:n]

"""`shard_map` and `pmap`: JAX's, of a jitted function, so that the passes see what each device does."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence, Set
from functools import partial
from typing import Any, Required, TypedDict, Unpack, overload

import jax

from functrans.api.arguments import check_callable
from functrans.api.jit import jit
from functrans.ir.tracebacks import boundary
from functrans.runtime import F
from functrans.typing import Device, PyTree


class _Options(TypedDict, total=False):
    out_specs: Required[PyTree]
    in_specs: PyTree
    mesh: jax.sharding.Mesh | jax.sharding.AbstractMesh | None
    axis_names: Set[str]
    check_vma: bool


@overload
def shard_map(f: F, /, **options: Unpack[_Options]) -> F: ...
@overload
def shard_map(f: None = None, /, **options: Unpack[_Options]) -> Callable[[F], F]: ...
@boundary
def shard_map(f: Callable[..., PyTree] | None = None, /, **options: Unpack[_Options]) -> Any:
    """Map a function over shards of arrays, one per device of a mesh.

    Arguments:
      f: function of pytrees of arrays, each the shard of one device. Left out: return a decorator.
        Inside `f` the collectives of `functrans.lax` can use the names of the mesh axes.
      mesh: a `jax.sharding.Mesh`; None: the mesh set by `ft.set_mesh` around the call.
      in_specs, out_specs: pytrees (or prefixes) of `PartitionSpec`s: the mesh axes over which each
        axis of an argument or result is sharded. Along a mesh axis that its spec does not name, an
        argument is replicated, and a result must be the same on all devices. in_specs left out:
        the shardings of the arguments, over a mesh whose axes must be explicit.
      axis_names: the mesh axes that `f` is manual over; the others are left to XLA. Empty: all.
      check_vma: check over which mesh axes values vary. A derivative inside `f` with respect to a value
        that does not vary is the sum over the devices; a result that varies over an axis that its spec
        does not name is an error. Without, the derivative is that of one device, and such a result is
        the first device's.

    Returns:
      A jitted function of global arrays.

    Raises:
      ValueError: a size is not divisible by that of the mesh axes, a spec does not match, or no mesh is
        given or set.

    Source: `jax.shard_map`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> from functrans import lax
      >>> mesh = ft.make_mesh((1,), ("i",), (ft.sharding.AxisType.Auto,))
      >>> total = ft.shard_map(lambda x: lax.psum(x.sum(), "i"), mesh=mesh,
      ...                      in_specs=ft.P("i"), out_specs=ft.P())
      >>> print(total(jnp.arange(4.0)))
      6.0
    """
    if f is None:
        return partial(shard_map, **options)
    check_callable(f, "shard_map")
    # jitted outside too, because JAX runs what is not operation by operation
    return jit(jax.shard_map(jit(f), **options))


class _MapOptions(TypedDict, total=False):
    in_axes: int | Sequence[PyTree] | None
    out_axes: PyTree
    devices: Sequence[Device] | None
    backend: str | None
    axis_size: int | None
    donate_argnums: int | Iterable[int]


@boundary
def pmap(
    fun: F,
    axis_name: Hashable = None,
    *,
    static_broadcasted_argnums: int | Sequence[int] = (),
    **options: Unpack[_MapOptions],
) -> F:
    """Map a function over an axis of its arguments, with one slice per device, compiled.

    Arguments:
      fun: function of pytrees of arrays.
      axis_name: a hashable name for the axis, for the collectives of `functrans.lax` inside `fun`.
      static_broadcasted_argnums: positions of static arguments: hashable Python values; each new
        value compiles again.
      in_axes: axis of each argument to map over, or None to replicate it; an int for all arguments,
        or a tuple with a pytree prefix per argument. Keyword arguments are mapped over axis 0.
      out_axes: position of the mapped axis in the results; a pytree prefix of the result. None:
        return the value of the first device.
      devices: devices to map over. Left out: all devices of `backend`, the name of a platform.
      axis_size: size of the axis.
      donate_argnums: positions of arguments whose buffers are donated to the results.

    Returns:
      The parallel function, with `.lower(*args)`. Its results are sharded over the devices along
      the mapped axis.

    Raises:
      ValueError: the mapped axes differ in size, or there are fewer devices.

    Source: `jax.pmap`. Prefer `jit` with shardings, or `shard_map`, in new code.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> n = ft.device_count()
      >>> share = ft.pmap(lambda x: x / ft.lax.psum(x, "i"), axis_name="i")
      >>> print(share(jnp.ones(n)).sum())
      1.0
    """
    check_callable(fun, "pmap")
    static = static_broadcasted_argnums
    run = jit(fun, static_argnums=static)
    return jax.pmap(run, axis_name, static_broadcasted_argnums=static, **options)

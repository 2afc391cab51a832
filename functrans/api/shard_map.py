"""`shard_map`: JAX's, jitted, so that calls outside of `jit` are compiled once and traced once."""

from __future__ import annotations

from collections.abc import Callable, Set
from functools import partial
from typing import Any, Required, TypedDict, TypeVar, Unpack, overload

import jax

from functrans.api.jit import jit
from functrans.ir.tracebacks import boundary
from functrans.typing import PyTree

# A TypeVar of the function's type: mypy does not infer a lambda's type through a ParamSpec here.
_F = TypeVar("_F", bound=Callable[..., Any])


class _Options(TypedDict, total=False):
    out_specs: Required[PyTree]
    in_specs: PyTree
    mesh: jax.sharding.Mesh | jax.sharding.AbstractMesh | None
    axis_names: Set[str]
    check_vma: bool


@overload
def shard_map(f: _F, /, **options: Unpack[_Options]) -> _F: ...
@overload
def shard_map(f: None = None, /, **options: Unpack[_Options]) -> Callable[[_F], _F]: ...
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
    return partial(shard_map, **options) if f is None else jit(jax.shard_map(f, **options))

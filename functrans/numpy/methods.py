"""The methods and properties of `jax.Array`, for tracers.

Importing this module adds them to `Tracer`. Each is a function of this package, with the array as
its first argument.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from functrans import errors
from functrans.ir.source import describe, user_source
from functrans.ir.tracebacks import boundary, named_boundary
from functrans.ir.types import dtype_class
from functrans.numpy import (
    arithmetic,
    indexing,
    joining,
    linear,
    moments,
    primitives,
    promotion,
    reductions,
    selecting,
    shaping,
    ufuncs,
)
from functrans.trace import Tracer

# --- containers -----------------------------------------------------------------------------------


def _len(self: Tracer) -> int:
    if not self.shape:
        raise errors.TypeMismatch(
            f"len() of a {self.type}, which has no axes, at\n    {describe(user_source())}\n"
            "Add an axis first: x[None] or jnp.atleast_1d(x)."
        )
    return self.shape[0]


def _iter(self: Tracer) -> Iterator[Any]:
    if not self.shape:
        raise errors.TypeMismatch(
            f"iteration over a {self.type}, which has no axes, at\n    {describe(user_source())}\n"
            "Return several values as a tuple, or add an axis first."
        )
    return iter(joining.unstack(self))


def _contains(self: Tracer, item: Any) -> bool:
    return bool(reductions.any(ufuncs.equal(self, item)))


def _set(self: Tracer, index: Any, value: Any) -> None:
    indexing.setitem(self, index, value)


def _delete(self: Tracer, index: Any) -> None:
    raise errors.NotSupported(
        f"elements of a traced {self.type} cannot be deleted (arrays are immutable), at\n"
        f"    {describe(user_source())}\nWrite `x = jnp.delete(x, i)` for `del x[i]`."
    )


def _by_jax(name: str) -> Callable[..., Any]:
    """Return a method that calls a function this package re-exports from JAX, looked up lazily."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(sys.modules[__package__], name)(*args, **kwargs)

    call.__name__ = name
    call.__doc__ = f"Source: `jax.numpy.{name}`."
    return call


def _array_namespace(self: Tracer, *, api_version: str | None = None) -> ModuleType:
    namespace = sys.modules[__package__]
    if api_version not in (None, namespace.__array_api_version__):
        raise promotion.invalid(
            "__array_namespace__",
            f"api_version {api_version!r} is not available",
            f"It is {namespace.__array_api_version__!r}.",
        )
    return namespace


# --- methods with other arguments than the function -----------------------------------------------


def _reshape(
    self: Tracer, *shape: Any, order: str = "C", copy: bool | None = None, out_sharding: Any = None
) -> Any:
    to = shape[0] if len(shape) == 1 else shape
    return shaping.reshape(self, to, order, copy=copy, out_sharding=out_sharding)


def _transpose(self: Tracer, *axes: Any) -> Any:
    if not axes or axes == (None,):
        return shaping.transpose(self)
    return shaping.transpose(self, axes[0] if not isinstance(axes[0], int) else axes)


def _astype(self: Tracer, dtype: Any, copy: bool = False, device: Any = None) -> Any:
    """Cast the array to another dtype. Source: `jax.Array.astype`."""
    return selecting.astype(self, dtype, copy=copy, device=device)


def _clip(self: Tracer, min: Any = None, max: Any = None) -> Any:
    return selecting.clip(self, min, max)


def _view(self: Tracer, dtype: Any = None, type: None = None) -> Any:
    return self if dtype is None else selecting.view(self, dtype)


def _compress(self: Tracer, condition: Any, axis: int | None = None, **how: Any) -> Any:
    """Source: `jax.Array.compress`."""
    return _by_jax("compress")(condition, self, axis, **how)


def _byteswap(self: Tracer) -> Any:
    """Reverse the bytes of each element. Source: `jax.Array.byteswap`."""
    if dtype_class(self.dtype) == "complex":
        return primitives.complex_(_byteswap(primitives.real(self)), _byteswap(primitives.imag(self)))
    if self.itemsize == 1:
        return self
    parts = selecting.view(shaping.expand_dims(self, -1), "uint8")
    swapped = selecting.view(primitives.rev(parts, dimensions=(parts.ndim - 1,)), self.dtype)
    return shaping.squeeze(swapped, -1)


def _to_device(self: Tracer, device: Any, *, stream: Any = None) -> Any:
    """Return the tracer itself: it has no device.

    Source: `jax.Array.to_device`.
    """
    if stream is not None:
        raise promotion.invalid("to_device", "stream is not supported")
    return self


def _flat(self: Tracer) -> Any:
    raise errors.NotSupported(
        f"x.flat of a {self.type} is not supported, at\n    {describe(user_source())}\nUse x.ravel()."
    )


def _flatten(self: Tracer, order: str = "C", *, out_sharding: Any = None) -> Any:
    """Source: `jax.Array.flatten`."""
    return shaping.ravel(self, order, out_sharding=out_sharding)


def _block_until_ready(self: Tracer) -> Any:
    """Wait for the concrete value, if there is one."""
    value = self.concrete()
    if value is not None:
        value.block_until_ready()
    return self


def _swap_last(self: Tracer) -> Any:
    if self.ndim < 2:
        raise promotion.invalid("x.mT", f"needs at least two axes, got {self.type}")
    return shaping.swapaxes(self, -1, -2)


_METHODS: dict[str, Callable[..., Any]] = {
    "all": reductions.all,
    "any": reductions.any,
    "argmax": reductions.argmax,
    "argmin": reductions.argmin,
    "argpartition": _by_jax("argpartition"),
    "argsort": _by_jax("argsort"),
    "astype": _astype,
    "block_until_ready": _block_until_ready,
    "byteswap": _byteswap,
    "choose": _by_jax("choose"),
    "clip": _clip,
    "compress": _compress,
    "conj": ufuncs.conjugate,
    "conjugate": ufuncs.conjugate,
    "copy": shaping.copy,
    "cumprod": reductions.cumprod,
    "cumsum": reductions.cumsum,
    "diagonal": shaping.diagonal,
    "dot": linear.dot,
    "flatten": _flatten,
    "max": reductions.max,
    "mean": moments.mean,
    "min": reductions.min,
    "nonzero": indexing.nonzero,
    "prod": reductions.prod,
    "ptp": _by_jax("ptp"),
    "ravel": _flatten,
    "repeat": _by_jax("repeat"),
    "reshape": _reshape,
    "round": arithmetic.round,
    "searchsorted": _by_jax("searchsorted"),
    "sort": _by_jax("sort"),
    "squeeze": shaping.squeeze,
    "std": moments.std,
    "sum": reductions.sum,
    "swapaxes": shaping.swapaxes,
    "take": indexing.take,
    "to_device": _to_device,
    "trace": reductions.trace,
    "transpose": _transpose,
    "var": moments.var,
    "view": _view,
}
_PROPERTIES: dict[str, Callable[..., Any]] = {
    "T": shaping.transpose,
    "mT": _swap_last,
    "real": ufuncs.real,
    "imag": ufuncs.imag,
    "at": indexing.At,
    "flat": _flat,
}


def _attach() -> None:
    for name, function in _METHODS.items():
        setattr(Tracer, name, named_boundary(ufuncs.refusing_out(function), name))
    for name, function in _PROPERTIES.items():
        setattr(Tracer, name, property(named_boundary(function, name)))
    setattr(Tracer, "__array_namespace__", _array_namespace)  # noqa: B010  # its type is JAX's
    special: dict[str, Callable[..., Any]] = {
        "len": _len,
        "iter": _iter,
        "contains": _contains,
        "getitem": indexing.getitem,
        "setitem": _set,
        "delitem": _delete,
        "trunc": arithmetic.trunc,
        "floor": ufuncs.floor,
        "ceil": ufuncs.ceil,
        "copy": lambda self: self,
        "deepcopy": lambda self, memo: self,
    }
    for name, function in special.items():
        setattr(Tracer, f"__{name}__", boundary(function))


_attach()

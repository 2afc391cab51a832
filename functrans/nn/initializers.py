"""Functions that draw the first weights of a network: `init(key, shape, dtype)`.

The numbers are those of `jax.nn.initializers`, bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from functrans import random
from functrans.ir.tracebacks import named_boundary
from functrans.ir.types import dtype_class
from functrans.lax.arguments import placed
from functrans.numpy import creation, linalg
from functrans.numpy.grids import diag
from functrans.numpy.indexing import At
from functrans.numpy.promotion import axes_of, invalid, user_dtype
from functrans.numpy.selecting import astype
from functrans.numpy.shaping import expand_dims, moveaxis, reshape, sizes_of, transpose
from functrans.numpy.ufuncs import divide, exp, log, multiply, negative, sign, sqrt, subtract

__all__ = [
    "Initializer", "constant", "delta_orthogonal", "glorot_normal", "glorot_uniform", "he_normal",
    "he_uniform", "kaiming_normal", "kaiming_uniform", "lecun_normal", "lecun_uniform", "normal",
    "ones", "orthogonal", "truncated_normal", "uniform", "variance_scaling", "xavier_normal",
    "xavier_uniform", "zeros",
]  # fmt: skip


class Initializer(Protocol):
    """A function that draws an array: `init(key, shape, dtype)`.

    Source: `jax.nn.initializers.Initializer`.
    """

    def __call__(
        self, key: Any, shape: Any, dtype: Any = None, out_sharding: Any = None
    ) -> Any: ...


Axes = int | Sequence[int]


def _initializer(
    name: str, draw: Callable[[Any, tuple[int, ...], Any], Any], default: Any = None
) -> Initializer:
    """The function of (key, shape, dtype), of one that takes a tuple and a dtype of numbers."""

    def init(key: Any, shape: Any, dtype: Any = default, out_sharding: Any = None) -> Any:
        to = user_dtype(float if dtype is None else dtype)
        return placed(draw(key, sizes_of(shape), to), out_sharding)

    return named_boundary(init, name)


def _at(value: Any, dtype: Any) -> Any:
    return creation.array(value, dtype)


# --- the same everywhere --------------------------------------------------------------------------


def zeros(key: Any, shape: Any, dtype: Any = None, out_sharding: Any = None) -> Any:
    """Zeros, whatever the key.

    Source: `jax.nn.initializers.zeros`.

    Example:
      >>> import functrans as ft
      >>> print(ft.nn.initializers.zeros(ft.random.key(0), (2,)))
      [0. 0.]
    """
    return creation.zeros(shape, user_dtype(float if dtype is None else dtype),
                          out_sharding=out_sharding)  # fmt: skip


def ones(key: Any, shape: Any, dtype: Any = None, out_sharding: Any = None) -> Any:
    """Ones, whatever the key.

    Source: `jax.nn.initializers.ones`.
    """
    return creation.ones(shape, user_dtype(float if dtype is None else dtype),
                         out_sharding=out_sharding)  # fmt: skip


def constant(value: Any, dtype: Any = None) -> Initializer:
    """An initializer with the same number, or an array that broadcasts, everywhere.

    Source: `jax.nn.initializers.constant`.
    """
    return _initializer(
        "constant", lambda key, shape, to: creation.full(shape, value, dtype=to), dtype
    )


# --- one distribution -----------------------------------------------------------------------------


def uniform(scale: Any = 1e-2, dtype: Any = None) -> Initializer:
    """An initializer that draws uniformly from [0, scale).

    Source: `jax.nn.initializers.uniform`.

    Example:
      >>> import functrans as ft
      >>> ft.nn.initializers.uniform(2.0)(ft.random.key(0), (2, 3)).shape
      (2, 3)
    """
    return _initializer(
        "uniform",
        lambda key, shape, to: multiply(random.uniform(key, shape, to), _at(scale, to)),
        dtype,
    )


def normal(stddev: Any = 1e-2, dtype: Any = None) -> Initializer:
    """An initializer that draws from the normal distribution with mean 0.

    Source: `jax.nn.initializers.normal`.
    """
    return _initializer(
        "normal",
        lambda key, shape, to: multiply(random.normal(key, shape, to), _at(stddev, to)),
        dtype,
    )


def truncated_normal(
    stddev: Any = 1e-2, dtype: Any = None, lower: Any = -2.0, upper: Any = 2.0
) -> Initializer:
    """An initializer that draws from the normal distribution cut off at lower and upper standard
    deviations.

    Source: `jax.nn.initializers.truncated_normal`.
    """

    def draw(key: Any, shape: tuple[int, ...], to: Any) -> Any:
        drawn = random.truncated_normal(key, lower, upper, shape, to)
        return multiply(drawn, _at(stddev, to))

    return _initializer("truncated_normal", draw, dtype)


# --- by the number of inputs and outputs ----------------------------------------------------------

_MODES = {
    "fan_in": lambda fan_in, fan_out: fan_in,
    "fan_out": lambda fan_in, fan_out: fan_out,
    "fan_avg": lambda fan_in, fan_out: (fan_in + fan_out) / 2,
    "fan_geo_avg": lambda fan_in, fan_out: math.sqrt(fan_in * fan_out),
}
# The standard deviation of the normal distribution cut off at -2 and 2; of the complex one at 2.
_CUT_DEVIATION = {"float": 0.87962566103423978, "complex": 0.95311164380491208}


def _fans(
    shape: tuple[int, ...], in_axis: Axes, out_axis: Axes, batch_axis: Axes
) -> tuple[float, float]:
    """How many numbers each output is made of, and each input goes into."""
    if len(shape) <= 1:
        raise invalid(
            "variance_scaling", f"needs at least two axes to tell inputs from outputs, got {shape}"
        )
    ins, outs, batch = (
        math.prod([shape[i] for i in axes_of(axes, len(shape), "variance_scaling")])
        for axes in (in_axis, out_axis, batch_axis)
    )
    field = math.prod(shape) / ins / outs / batch
    return ins * field, outs * field


def variance_scaling(
    scale: Any, mode: str, distribution: str, in_axis: Axes = -2, out_axis: Axes = -1,
    batch_axis: Axes = (), dtype: Any = None,
) -> Initializer:  # fmt: skip
    """An initializer whose variance is scale / n, of n inputs or outputs.

    Arguments:
      mode: "fan_in" (n: inputs), "fan_out" (outputs), "fan_avg" (their mean) or "fan_geo_avg".
      distribution: "truncated_normal", "normal" or "uniform".
      in_axis, out_axis, batch_axis: the axes of inputs, outputs, and of what stands side by side;
        the others are a receptive field.

    Raises:
      InvalidArgument: an unknown mode or distribution; a shape of less than two axes.

    Source: `jax.nn.initializers.variance_scaling`.

    Example:
      >>> import functrans as ft
      >>> init = ft.nn.initializers.variance_scaling(1.0, "fan_in", "uniform")
      >>> init(ft.random.key(0), (4, 3)).shape
      (4, 3)
    """

    def draw(key: Any, shape: tuple[int, ...], to: Any) -> Any:
        if mode not in _MODES:
            raise invalid("variance_scaling", f"mode must be one of {list(_MODES)}, got {mode!r}")
        if distribution not in _DRAW:
            raise invalid(
                "variance_scaling",
                f"distribution must be one of {list(_DRAW)}, got {distribution!r}",
            )
        if math.prod(shape) == 0:
            return creation.zeros(shape, to)
        if dtype_class(to) not in _CUT_DEVIATION:
            raise invalid("variance_scaling", f"draws floats or complex numbers, not {to}")
        n = _MODES[mode](*_fans(shape, in_axis, out_axis, batch_axis))
        variance = scale / n
        variance = np.asarray(variance) if isinstance(variance, float) else variance
        return _DRAW[distribution](key, shape, to, _at(variance, to))

    return _initializer("variance_scaling", draw, dtype)


def _draw_normal(key: Any, shape: tuple[int, ...], to: Any, variance: Any) -> Any:
    return multiply(random.normal(key, shape, to), sqrt(variance))


def _draw_uniform(key: Any, shape: tuple[int, ...], to: Any, variance: Any) -> Any:
    if dtype_class(to) == "float":
        return multiply(random.uniform(key, shape, to, -1), sqrt(multiply(3, variance)))
    # in a disc: the square of the radius is uniform
    return multiply(_in_disc(key, shape, to, lambda u: sqrt(multiply(2, u))), sqrt(variance))


def _draw_truncated(key: Any, shape: tuple[int, ...], to: Any, variance: Any) -> Any:
    kind = dtype_class(to)
    stddev = divide(sqrt(variance), _at(_CUT_DEVIATION[kind], to))
    if kind == "float":
        return multiply(random.truncated_normal(key, -2, 2, shape, to), stddev)

    def radius(u: Any) -> Any:
        share = multiply(subtract(1, exp(_at(-4, to))), astype(u, to))
        return sqrt(negative(log(subtract(1, share))))

    return multiply(_in_disc(key, shape, to, radius), stddev)


def _in_disc(key: Any, shape: tuple[int, ...], to: Any, radius: Callable[[Any], Any]) -> Any:
    """Complex numbers of random angle, with radii made of uniform numbers."""
    key_r, key_theta = random.split(key)
    real = np.zeros(0, to).real.dtype
    r = radius(random.uniform(key_r, shape, real))
    theta = multiply(2 * math.pi, astype(random.uniform(key_theta, shape, real), to))
    return multiply(astype(r, to), exp(multiply(1j, theta)))


_DRAW = {
    "truncated_normal": _draw_truncated, "normal": _draw_normal, "uniform": _draw_uniform,
}  # fmt: skip


def _scaled(
    names: Sequence[str], summary: str, scale: float, mode: str, distribution: str
) -> list[Any]:
    """A variance scaling under names of its own, one function for each."""

    def named(name: str) -> Any:
        def of(
            in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: Any = None
        ) -> Initializer:
            init = variance_scaling(scale, mode, distribution, in_axis, out_axis, batch_axis, dtype)
            return named_boundary(init, name)

        of.__name__ = of.__qualname__ = name
        of.__doc__ = f"{summary}\n\n    Source: `jax.nn.initializers.{name}`."
        return of

    return [named(name) for name in names]


_GLOROT = "Glorot's initializer: variance 2 / (inputs + outputs),"
_LECUN = "LeCun's initializer: variance 1 / inputs,"
_HE = "He's initializer: variance 2 / inputs,"

glorot_uniform, xavier_uniform = _scaled(
    ("glorot_uniform", "xavier_uniform"), f"{_GLOROT} uniform.", 1.0, "fan_avg", "uniform"
)
glorot_normal, xavier_normal = _scaled(
    ("glorot_normal", "xavier_normal"), f"{_GLOROT} truncated normal.", 1.0, "fan_avg",
    "truncated_normal",
)  # fmt: skip
(lecun_uniform,) = _scaled(("lecun_uniform",), f"{_LECUN} uniform.", 1.0, "fan_in", "uniform")
(lecun_normal,) = _scaled(
    ("lecun_normal",), f"{_LECUN} truncated normal.", 1.0, "fan_in", "truncated_normal"
)
he_uniform, kaiming_uniform = _scaled(
    ("he_uniform", "kaiming_uniform"), f"{_HE} uniform.", 2.0, "fan_in", "uniform"
)
he_normal, kaiming_normal = _scaled(
    ("he_normal", "kaiming_normal"), f"{_HE} truncated normal.", 2.0, "fan_in", "truncated_normal"
)


# --- orthogonal -----------------------------------------------------------------------------------


def _matrix(key: Any, n: int, m: int, to: Any) -> Any:
    """A uniformly distributed [n, m] matrix with orthonormal rows or columns."""
    q, r = linalg.qr(random.normal(key, (max(n, m), min(n, m)), to))
    q = multiply(q, expand_dims(sign(diag(r)), 0))  # so that the distribution is uniform
    return transpose(q) if n <= m else q


def orthogonal(scale: Any = 1.0, column_axis: int = -1, dtype: Any = None) -> Initializer:
    """An initializer with orthogonal rows or columns, uniformly distributed among such.

    Arguments:
      scale: factor.
      column_axis: the axis of the columns; the others are rows.

    Source: `jax.nn.initializers.orthogonal`.
    """

    def draw(key: Any, shape: tuple[int, ...], to: Any) -> Any:
        if len(shape) < 2:
            raise invalid("orthogonal", f"needs at least two axes, got {shape}")
        i = axes_of(column_axis, len(shape), "orthogonal")[0]
        rows = shape[i]
        columns = math.prod(shape) // rows if rows else 0
        q = reshape(_matrix(key, rows, columns, to), (rows, *shape[:i], *shape[i + 1 :]))
        return multiply(_at(scale, to), moveaxis(q, 0, i))

    return _initializer("orthogonal", draw, dtype)


def delta_orthogonal(scale: Any = 1.0, column_axis: int = -1, dtype: Any = None) -> Initializer:
    """An initializer of convolutions: an orthogonal matrix at the middle, zeros around.

    Arguments:
      scale, column_axis: as in `orthogonal`, for the matrix. The shape has 3, 4 or 5 axes, the last
        two of which are inputs and outputs; no more inputs than outputs.

    Source: `jax.nn.initializers.delta_orthogonal`.
    """

    def draw(key: Any, shape: tuple[int, ...], to: Any) -> Any:
        if len(shape) not in (3, 4, 5) or shape[-1] < shape[-2]:
            raise invalid(
                "delta_orthogonal", f"takes 3, 4 or 5 axes, and inputs (shape[-2]) no more than "
                f"outputs (shape[-1]), got {shape}",
            )  # fmt: skip
        matrix = orthogonal(scale, column_axis, to)(key, shape[-2:])
        middle = tuple([(n - 1) // 2 for n in shape[:-2]])
        return At(creation.zeros(shape, to))[middle].set(matrix)

    return _initializer("delta_orthogonal", draw, dtype)

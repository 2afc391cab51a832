"""Unit quaternions and the other forms of a rotation, as arithmetic on the last axes of arrays.

In: arrays of real numbers [..., 4] (x, y, z, w), [..., 3], [..., 3, 3] whose shapes were checked.
Out: arrays with the same leading axes. Where an angle goes to 0 the formulae that divide by it give
way to series in its square, so that derivatives are finite there.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from functrans import numpy as jnp
from functrans.numpy.promotion import cast
from functrans.primitives.call import composite

_SMALL = 1e-3  # angles up to this one are left to the series


def _sum_of_squares(x: Any) -> Any:
    return jnp.vecdot(x, x)


def _put_together(numbers: Any) -> Any:
    """Numbers along a last axis, not of a weak type."""
    made = jnp.stack(numbers, axis=-1)
    return cast(made, made.dtype)


def _flag(given: Any) -> Any:
    """Is something asked for? A Python bool, or an array of them that fits single rotations."""
    return bool(given) if isinstance(given, (bool, np.bool_)) else jnp.asarray(given, bool)


def _turned_over(x: Any, convert: Any, asked: Any) -> Any:
    """[..., k] angles in the other unit where that is asked for."""
    asked = _flag(asked)
    if isinstance(asked, bool):
        return convert(x) if asked else x
    return jnp.where(asked[..., None], convert(x), x)


# --- arithmetic -----------------------------------------------------------------------------------


@composite
def normalized(q: Any) -> Any:
    """q at length 1."""
    return q / jnp.sqrt(_sum_of_squares(q))[..., None]


@composite
def product(p: Any, q: Any) -> Any:
    """The rotation q, then p."""
    x, y, z, w = (p[..., i] for i in range(4))
    a, b, c, d = (q[..., i] for i in range(4))
    made = (
        w * a + d * x + (y * c - z * b),
        w * b + d * y + (z * a - x * c),
        w * c + d * z + (x * b - y * a),
        w * d - x * a - y * b - z * c,
    )
    return _put_together(made)


@composite
def conjugate(q: Any) -> Any:
    """The rotation back."""
    return jnp.concatenate([-q[..., :3], q[..., 3:]], axis=-1)


@composite
def canonical(q: Any) -> Any:
    """Of q and -q, which are one rotation, that whose last number other than 0, in the order
    z, y, x, w, is positive."""
    x, y, z, w = (q[..., i] for i in range(4))
    negative = z < 0
    for number in (y, x, w):
        negative = (number < 0) | ((number == 0) & negative)
    return jnp.where(negative[..., None], -q, q)


@composite
def magnitude(q: Any) -> Any:
    """[...]: the angle, 0 to pi. At no rotation, where it has a kink, its derivative is 0."""
    square = _sum_of_squares(q[..., :3])
    none = square == 0
    length = jnp.where(none, 0.0, jnp.sqrt(jnp.where(none, 1.0, square)))
    return 2.0 * jnp.arctan2(length, jnp.abs(q[..., 3]))


# --- matrices -------------------------------------------------------------------------------------


@composite
def to_matrix(q: Any) -> Any:
    """[..., 3, 3]."""
    x, y, z, w = (q[..., i] for i in range(4))
    x2, y2, z2, w2 = x * x, y * y, z * z, w * w
    made = (
        x2 - y2 - z2 + w2, 2 * (x * y - z * w), 2 * (x * z + y * w),
        2 * (x * y + z * w), -x2 + y2 - z2 + w2, 2 * (y * z - x * w),
        2 * (x * z - y * w), 2 * (y * z + x * w), -x2 - y2 + z2 + w2,
    )  # fmt: skip
    return jnp.reshape(_put_together(made), (*x.shape, 3, 3))


@composite
def from_matrix(m: Any) -> Any:
    """The entries of 4 q q^T are sums of entries of the matrix, and its rows multiples of q. The
    row with the greatest entry on the diagonal loses the least to rounding."""
    e = [[m[..., i, j] for j in range(3)] for i in range(3)]
    trace = e[0][0] + e[1][1] + e[2][2]
    greatest = jnp.argmax(jnp.stack([e[0][0], e[1][1], e[2][2], trace], axis=-1), axis=-1)
    differences = e[2][1] - e[1][2], e[0][2] - e[2][0], e[1][0] - e[0][1]
    row = jnp.stack([*differences, 1 + trace], axis=-1)
    for i in range(3):
        row_i = [1 - trace + 2 * e[i][i] if i == j else e[i][j] + e[j][i] for j in range(3)]
        row_i = jnp.stack([*row_i, differences[i]], axis=-1)
        row = jnp.where((greatest == i)[..., None], row_i, row)
    return normalized(row)


@composite
def turned(q: Any, vectors: Any, back: Any) -> Any:
    """[..., 3] vectors, rotated."""
    m, back = to_matrix(q), _flag(back)
    if not isinstance(back, bool):
        m = jnp.where(back[..., None, None], jnp.swapaxes(m, -1, -2), m)
    return jnp.einsum("...ji,...j->...i" if back is True else "...ij,...j->...i", m, vectors)


@composite
def mean(q: Any, weights: Any) -> Any:
    """[n, 4] -> [4]: the unit vector with the greatest weighted sum of squared products with all,
    for which q and -q count alike."""
    _, vectors = jnp.linalg.eigh((weights[None] * q.T) @ q)
    return vectors[:, -1]


# --- rotation vectors -----------------------------------------------------------------------------


@composite
def from_rotvec(v: Any, degrees: Any) -> Any:
    """sin(a / 2) / a and cos(a / 2) of the angle a, the length of v."""
    v = _turned_over(v, jnp.deg2rad, degrees)
    square = _sum_of_squares(v)
    small = square <= _SMALL**2
    angle = jnp.sqrt(jnp.where(small, 1.0, square))
    scale = jnp.where(small, 0.5 - square / 48 + square * square / 3840, jnp.sin(angle / 2) / angle)
    w = jnp.where(small, 1 - square / 8 + square * square / 384, jnp.cos(angle / 2))
    return jnp.concatenate([scale[..., None] * v, w[..., None]], axis=-1)


@composite
def to_rotvec(q: Any, degrees: Any) -> Any:
    """With t = tan(a / 2): a**2 = 4 arctan(t)**2 = 4 t**2 - 8/3 t**4 + ..., and
    a / sin(a / 2) = 2 + a**2 / 12 + 7 a**4 / 2880 + ..."""
    q = jnp.where(q[..., 3:] < 0, -q, q)  # the shorter way round: a <= pi
    v, w = q[..., :3], q[..., 3]
    square = _sum_of_squares(v)
    small = square <= (_SMALL / 2) ** 2 * (w * w)
    t2 = square / jnp.where(small, w * w, 1.0)
    a2 = 4 * t2 - 8 / 3 * t2 * t2
    angle = 2.0 * jnp.arctan2(jnp.sqrt(jnp.where(small, 1.0, square)), w)
    scale = jnp.where(small, 2 + a2 / 12 + 7 * a2 * a2 / 2880, angle / jnp.sin(angle / 2))
    return _turned_over(scale[..., None], jnp.rad2deg, degrees) * v


# --- modified Rodrigues parameters: the axis times tan(a / 4) -------------------------------------


@composite
def from_mrp(p: Any) -> Any:
    """2 p and 1 - |p|**2, over 1 + |p|**2."""
    above = (_sum_of_squares(p) + 1)[..., None]
    return jnp.concatenate([2 * p, 2 - above], axis=-1) / above


@composite
def to_mrp(q: Any) -> Any:
    """Of q and -q that with w >= 0, whose parameters are at most 1 long."""
    sign = jnp.where(q[..., 3:] < 0, -1.0, 1.0)
    return sign * q[..., :3] / (1.0 + sign * q[..., 3:])


# --- angles about the axes of coordinates ---------------------------------------------------------


@composite
def from_euler(angles: Any, seq: str, degrees: Any) -> Any:
    """Angles [..., k] about axes that stay (xyz), or that turn along (XYZ)."""
    axes, along = ["xyz".index(letter) for letter in seq.lower()], seq.isupper()
    angles = _turned_over(angles, jnp.deg2rad, degrees)
    half = angles / 2.0
    cosine, sine = jnp.cos(half), jnp.sin(half)
    made = None
    for i, axis in enumerate(axes):
        parts = [sine[..., i] if j == axis else jnp.zeros_like(sine[..., i]) for j in range(3)]
        q = jnp.stack([*parts, cosine[..., i]], axis=-1)
        made = q if made is None else product(made, q) if along else product(q, made)
    return made


@composite
def to_euler(q: Any, seq: str, degrees: Any) -> Any:
    """Angles [..., 3] about axes that stay (xyz), or that turn along (XYZ).

    Where the second angle makes the first axis and the third one, only the sum or the difference of
    their angles is known; the whole of it goes into the first number, 0 into the last.

    Source: Bernardes and Viollet, Quaternion to Euler angles conversion (2022).
    """
    axes, along = ["xyz".index(letter) for letter in seq.lower()], seq.isupper()
    i, j, k = axes[::-1] if along else axes  # turning along is staying, in the other order
    symmetric = i == k
    if symmetric:
        k = 3 - i - j
    sign = (i - j) * (j - k) * (k - i) // 2
    a, b, c, d = q[..., 3], q[..., i], q[..., j], q[..., k] * sign
    if not symmetric:
        a, b, c, d = a - c, b + d, c + a, d - b
    second = 2.0 * jnp.arctan2(jnp.hypot(c, d), jnp.hypot(a, b))
    # at 0 c and d are 0 and say nothing of an angle, at pi a and b: neither may enter a derivative
    at_0, at_pi = jnp.abs(second) <= _DEGENERATE, jnp.abs(second - math.pi) <= _DEGENERATE
    at_pi = at_pi & ~at_0
    half_sum = jnp.arctan2(jnp.where(at_pi, 0.0, b), jnp.where(at_pi, 1.0, a))
    half_difference = jnp.arctan2(jnp.where(at_0, 0.0, d), jnp.where(at_0, 1.0, c))
    whole = jnp.where(at_0, 2 * half_sum, (2 if along else -2) * half_difference)
    ends = [half_sum - half_difference, half_sum + half_difference]  # of axes that stay
    first, last = ends[::-1] if along else ends
    degenerate = at_0 | at_pi
    first, last = jnp.where(degenerate, whole, first), jnp.where(degenerate, 0.0, last)
    if not symmetric:
        second = second - math.pi / 2
        first, last = (first * sign, last) if along else (first, last * sign)
    angles = jnp.stack([first, second, last], axis=-1)
    angles = (angles + math.pi) % (2 * math.pi) - math.pi
    return _turned_over(angles, jnp.rad2deg, degrees)


_DEGENERATE = 1e-7  # how near to 0 or pi the second angle counts as there

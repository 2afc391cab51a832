"""`Rotation`: unit quaternions under SciPy's interface; the formulae stand in quaternions.py.

In: the user's arrays, which are checked here. Out: rotations, which are pytrees of one array, and
arrays.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from functrans import numpy as jnp
from functrans import random
from functrans.ir.tracebacks import boundary, guard_methods
from functrans.numpy.indexing import getitem
from functrans.numpy.promotion import array_of, invalid, mismatch, strong
from functrans.scipy.spatial.transform import arguments, quaternions
from functrans.trace import materialize, typeof

__all__ = ["Rotation"]


@guard_methods
class Rotation(NamedTuple):
    """A rotation in three dimensions, or a stack of them: unit quaternions (x, y, z, w).

    It is a pytree of one array, so it goes through transformations, into carries and out. Make one
    with `from_quat`, `from_matrix`, `from_rotvec`, `from_mrp` or `from_euler`: they take arrays of
    real numbers, whose leading axes are those of the stack that they return. The class itself takes
    quaternions of length 1 as they are.

    Arguments:
      quat: [..., 4] floats.

    Raises:
      InvalidArgument, by each `from_...`: numbers of another shape.
      TypeMismatch, by each `from_...`: not real numbers.

    Source: `jax.scipy.spatial.transform.Rotation`.

    Example:
      >>> import functrans.numpy as jnp
      >>> from functrans.scipy.spatial.transform import Rotation
      >>> quarter = Rotation.from_euler("z", 90, degrees=True)
      >>> print(jnp.round(quarter.apply(jnp.array([1.0, 0.0, 0.0])), 3))
      [0. 1. 0.]
      >>> print(jnp.round((quarter * quarter).magnitude() / jnp.pi, 3))
      1.0
    """

    quat: Any

    # --- made of ----------------------------------------------------------------------------------

    @classmethod
    def concatenate(cls, rotations: Iterable[Rotation]) -> Rotation:
        """Join rotations to one stack.

        Arguments:
          rotations: at least one; a single rotation is a stack of one.

        Returns:
          Rotation, [n, 4].

        Raises:
          InvalidArgument: there are none.
          TypeMismatch: something among them is not a Rotation.

        Source: `jax.scipy.spatial.transform.Rotation.concatenate`.

        Example:
          >>> len(Rotation.concatenate([Rotation.identity(), Rotation.identity(3)]))
          4
        """
        name = "Rotation.concatenate"
        given = [rotations] if isinstance(rotations, Rotation) else list(rotations)
        if not given:
            raise invalid(name, "takes at least one rotation, got none")
        quats = [quaternions_of(name, r) for r in given]
        return cls(jnp.concatenate([q if typeof(q).ndim > 1 else q[None] for q in quats]))

    @classmethod
    def from_euler(cls, seq: str, angles: Any, degrees: bool = False) -> Rotation:
        """Make rotations of angles about the axes of coordinates, one after the other.

        Arguments:
          seq: 1 to 3 letters: "xyz" for axes that stay (extrinsic), "XYZ" for axes that turn along
            (intrinsic), neighbours different.
          angles: [..., len(seq)]; for one letter a number too.
          degrees: the angles are degrees, not radians.

        Raises:
          InvalidArgument: there is no such sequence, or not as many angles as letters.

        Source: `jax.scipy.spatial.transform.Rotation.from_euler`.

        Example:
          >>> print(Rotation.from_euler("xy", [180, 0], degrees=True).as_quat().round(3))
          [ 1.  0.  0. -0.]
        """
        name = "Rotation.from_euler"
        arguments.check_sequence(name, seq, (1, 2, 3))
        angles = arguments.floats(name, angles)
        if typeof(angles).ndim == 0:
            angles = angles[None]
        arguments.check_shape(name, "angles", angles, (len(seq),))
        return cls(quaternions.from_euler(angles, seq, degrees))

    @classmethod
    def from_matrix(cls, matrix: Any) -> Rotation:
        """Make rotations of rotation matrices.

        Arguments:
          matrix: [..., 3, 3] real numbers, orthogonal with determinant 1, which is not checked.

        Source: `jax.scipy.spatial.transform.Rotation.from_matrix`.

        Example:
          >>> quarter = Rotation.from_matrix([[0, -1, 0], [1, 0, 0], [0, 0, 1]])
          >>> print(quarter.as_rotvec(degrees=True))
          [ 0.  0. 90.]
        """
        matrix = materialize(strong(arguments.reals("Rotation.from_matrix", matrix)))
        arguments.check_shape("Rotation.from_matrix", "matrix", matrix, (3, 3))
        return cls(quaternions.from_matrix(matrix))

    @classmethod
    def from_mrp(cls, mrp: Any) -> Rotation:
        """Make rotations of modified Rodrigues parameters: the axis times tan(angle / 4).

        Arguments:
          mrp: [..., 3] real numbers.

        Source: `jax.scipy.spatial.transform.Rotation.from_mrp`.

        Example:
          >>> print(Rotation.from_mrp([0, 0, 1]).as_rotvec(degrees=True))
          [  0.   0. 180.]
        """
        mrp = arguments.reals("Rotation.from_mrp", mrp)
        arguments.check_shape("Rotation.from_mrp", "mrp", mrp, (3,))
        return cls(quaternions.from_mrp(mrp))

    @classmethod
    def from_quat(cls, quat: Any) -> Rotation:
        """Make rotations of quaternions of any length but 0.

        Arguments:
          quat: [..., 4] real numbers, the scalar last.

        Source: `jax.scipy.spatial.transform.Rotation.from_quat`.

        Example:
          >>> print(Rotation.from_quat([0, 0, 3, 4]).as_quat())
          [0.  0.  0.6 0.8]
        """
        quat = arguments.reals("Rotation.from_quat", quat)
        arguments.check_shape("Rotation.from_quat", "quat", quat, (4,))
        return cls(quaternions.normalized(quat))

    @classmethod
    def from_rotvec(cls, rotvec: Any, degrees: bool = False) -> Rotation:
        """Make rotations of vectors along the axis, as long as the angle.

        Arguments:
          rotvec: [..., 3] real numbers. The derivative is finite at zeros too.
          degrees: the lengths are degrees, not radians.

        Source: `jax.scipy.spatial.transform.Rotation.from_rotvec`.

        Example:
          >>> print(Rotation.from_rotvec([0.0, 0.0, 180.0], degrees=True).as_quat().round(3))
          [ 0.  0.  1. -0.]
        """
        rotvec = arguments.floats("Rotation.from_rotvec", rotvec)
        arguments.check_shape("Rotation.from_rotvec", "rotvec", rotvec, (3,))
        return cls(quaternions.from_rotvec(rotvec, degrees))

    @classmethod
    def identity(cls, num: int | None = None, dtype: Any = float) -> Rotation:
        """Make the rotation that moves nothing.

        Arguments:
          num: how many, as a stack (JAX takes None alone); None: a single one.
          dtype: of the quaternion.

        Returns:
          Rotation, [4] or [num, 4].

        Source: `jax.scipy.spatial.transform.Rotation.identity`.

        Example:
          >>> print(Rotation.identity().as_quat())
          [0. 0. 0. 1.]
        """
        one = jnp.array([0, 0, 0, 1], dtype=dtype)
        return cls(one if num is None else jnp.tile(one, (num, 1)))

    @classmethod
    def random(cls, random_key: Any, num: int | None = None) -> Rotation:
        """Draw rotations, all alike likely: directions of four normal numbers.

        Arguments:
          random_key: a key.
          num: how many, as a stack; None: a single one.

        Returns:
          Rotation, [4] or [num, 4], of the default float dtype.

        Source: `jax.scipy.spatial.transform.Rotation.random`, which JAX names and has not written.

        Example:
          >>> import functrans as ft
          >>> len(Rotation.random(ft.random.key(0), 5))
          5
        """
        shape = (4,) if num is None else (num, 4)
        return cls(quaternions.normalized(random.normal(random_key, shape)))

    # --- as a sequence, as a group ----------------------------------------------------------------

    def __getitem__(self, indexer: Any) -> Rotation:  # type: ignore[override]
        """Some rotations of a stack.

        Arguments:
          indexer: integers, slices, arrays as for an array of the stack's shape.

        Raises:
          TypeMismatch: of a single rotation.
          InvalidIndex: more indices than the stack has axes.
        """
        if self.single:
            fix = "Index its numbers: rotation.as_quat()[i]."
            raise mismatch("Rotation[...]", "a single rotation is not subscriptable", fix)
        rows = (*indexer, slice(None)) if isinstance(indexer, tuple) else indexer
        return Rotation(getitem(array_of(self.quat, "Rotation[...]"), rows))

    @boundary
    def __len__(self) -> int:
        """How many rotations a stack has along its first axis.

        Raises:
          TypeMismatch: of a single rotation.
        """
        if self.single:
            fix = "Ask rotation.single first."
            raise mismatch("len(Rotation)", "a single rotation has no length", fix)
        return typeof(self.quat).shape[0]

    def __bool__(self) -> bool:
        return self.single or len(self) > 0

    @boundary
    def __mul__(self, other: Rotation) -> Rotation:  # type: ignore[override]
        """Compose two rotations: the other first, then this one.

        Arguments:
          other: Rotation, of a shape that fits.

        Raises:
          TypeMismatch: other is not a Rotation.
          ShapeMismatch: two stacks of different shapes.

        Source: `jax.scipy.spatial.transform.Rotation.__mul__`.

        Example:
          >>> r = Rotation.from_rotvec([0.0, 0.0, 0.25])
          >>> print((r * r).as_rotvec())
          [0.  0.  0.5]
        """
        name = "Rotation * Rotation"
        p, q = quaternions_of(name, self), quaternions_of(name, other)
        arguments.check_stacks(name, p, q)
        return Rotation(quaternions.normalized(quaternions.product(p, q)))

    def inv(self) -> Rotation:
        """Turn back: the inverse of each rotation.

        Source: `jax.scipy.spatial.transform.Rotation.inv`.

        Example:
          >>> print(Rotation.from_quat([0, 0, 3, 4]).inv().as_quat())
          [-0.  -0.  -0.6  0.8]
        """
        return Rotation(quaternions.conjugate(quaternions_of("Rotation.inv", self)))

    @property
    @boundary
    def single(self) -> bool:
        """Is this one rotation, not a stack?"""
        return typeof(self.quat).ndim == 1

    # --- what they do, and what they are ----------------------------------------------------------

    def apply(self, vectors: Any, inverse: bool = False) -> Any:
        """Rotate vectors.

        Arguments:
          vectors: [..., 3] real numbers, whose leading axes and the rotations' fit each other.
          inverse: rotate them back instead.

        Returns:
          An array [..., 3].

        Raises:
          InvalidArgument: the vectors have not three coordinates.
          ShapeMismatch: other stacks of vectors than of rotations.
          TypeMismatch: not real numbers.

        Source: `jax.scipy.spatial.transform.Rotation.apply`.

        Example:
          >>> print(Rotation.from_mrp([0, 0, 1]).apply([[1, 0, 0], [0, 2, 5]]))
          [[-1.  0.  0.]
           [ 0. -2.  5.]]
        """
        name = "Rotation.apply"
        quat, vectors = quaternions_of(name, self), arguments.reals(name, vectors)
        arguments.check_shape(name, "vectors", vectors, (3,))
        arguments.check_stacks(name, quat, vectors)
        return quaternions.turned(quat, vectors, inverse)

    def as_euler(self, seq: str, degrees: bool = False) -> Any:
        """Give the angles about three axes of coordinates, one after the other.

        Arguments:
          seq: 3 letters, as for `from_euler`.
          degrees: in degrees, not in radians.

        Returns:
          An array [..., 3], -pi to pi. The second angle is 0 to pi if the first and the third axis
          are one, else -pi/2 to pi/2. At its bounds (gimbal lock) the last number is 0.

        Raises:
          InvalidArgument: there is no such sequence.

        Source: `jax.scipy.spatial.transform.Rotation.as_euler`.

        Example:
          >>> turn = Rotation.from_euler("zyx", [90, 45, 30], degrees=True)
          >>> print(jnp.round(turn.as_euler("zyx", degrees=True)).astype(int))
          [90 45 30]
        """
        arguments.check_sequence("Rotation.as_euler", seq, (3,))
        return quaternions.to_euler(quaternions_of("Rotation.as_euler", self), seq, degrees)

    def as_matrix(self) -> Any:
        """Give the rotation matrices: an array [..., 3, 3].

        Source: `jax.scipy.spatial.transform.Rotation.as_matrix`.

        Example:
          >>> print(Rotation.identity().as_matrix())
          [[1. 0. 0.]
           [0. 1. 0.]
           [0. 0. 1.]]
        """
        return quaternions.to_matrix(quaternions_of("Rotation.as_matrix", self))

    def as_mrp(self) -> Any:
        """Give the modified Rodrigues parameters: an array [..., 3], at most 1 long.

        Source: `jax.scipy.spatial.transform.Rotation.as_mrp`.

        Example:
          >>> print(Rotation.from_mrp([0.0, 0.0, 2.0]).as_mrp())
          [-0.  -0.  -0.5]
        """
        return quaternions.to_mrp(quaternions_of("Rotation.as_mrp", self))

    def as_rotvec(self, degrees: bool = False) -> Any:
        """Give the vectors along the axes, as long as the angles.

        Arguments:
          degrees: the lengths in degrees, not in radians.

        Returns:
          An array [..., 3], at most pi long.

        Source: `jax.scipy.spatial.transform.Rotation.as_rotvec`.

        Example:
          >>> print(Rotation.from_quat([1, 0, 0, 1]).as_rotvec(degrees=True))
          [90.  0.  0.]
        """
        return quaternions.to_rotvec(quaternions_of("Rotation.as_rotvec", self), degrees)

    def as_quat(self, canonical: bool = False, scalar_first: bool = False) -> Any:
        """Give the quaternions.

        Arguments:
          canonical: of q and -q, which are one rotation, that with w > 0; where w is 0, with x > 0,
            and so on.
          scalar_first: (w, x, y, z) instead of (x, y, z, w).

        Returns:
          An array [..., 4].

        Source: `jax.scipy.spatial.transform.Rotation.as_quat`.

        Example:
          >>> turn = Rotation.from_quat([1, 1, -1, -1])
          >>> print(turn.as_quat(canonical=True, scalar_first=True))
          [ 0.5 -0.5 -0.5  0.5]
        """
        quat = quaternions_of("Rotation.as_quat", self)
        quat = quaternions.canonical(quat) if canonical else quat
        return jnp.roll(quat, 1, axis=-1) if scalar_first else quat

    def magnitude(self) -> Any:
        """Give the angles: an array [...], 0 to pi.

        Source: `jax.scipy.spatial.transform.Rotation.magnitude`.

        Example:
          >>> print(Rotation.from_rotvec([[0.0, 0.0, -2.0], [0.0, 1.0, 0.0]]).magnitude())
          [2. 1.]
        """
        return quaternions.magnitude(quaternions_of("Rotation.magnitude", self))

    def mean(self, weights: Any = None) -> Rotation:
        """Give the rotation between all of a stack.

        Arguments:
          weights: [n] real numbers, how much each counts; None: all alike.

        Returns:
          Rotation, [4]: the one with the least weighted sum of squared distances of matrices.

        Raises:
          InvalidArgument: not a stack along one axis, or not a weight for each.

        Source: `jax.scipy.spatial.transform.Rotation.mean`; Markley et al., Averaging Quaternions
        (2007).

        Example:
          >>> turns = Rotation.from_euler("z", [[10.0], [30.0]], degrees=True)
          >>> print(turns.mean().magnitude() * 180 / 3.14159265)
          20.0...
        """
        quat = quaternions_of("Rotation.mean", self)
        t = typeof(quat)
        if t.ndim != 2:
            raise invalid("Rotation.mean", f"takes a stack [n, 4], got quaternions {t.shape}")
        weights = jnp.ones(t.shape[0], t.dtype) if weights is None else weights
        weights = jnp.asarray(arguments.reals("Rotation.mean", weights), t.dtype)
        if typeof(weights).shape != (t.shape[0],):
            given = typeof(weights).shape
            raise invalid("Rotation.mean", f"weights must be of shape {t.shape[:1]}, got {given}")
        return Rotation(quaternions.mean(quat, weights))


def quaternions_of(name: str, rotation: Any) -> Any:
    """The array of a Rotation."""
    if not isinstance(rotation, Rotation):
        raise mismatch(
            name,
            f"takes a Rotation, got {rotation!r:.60} of type {type(rotation).__qualname__}",
            "Make one of it: Rotation.from_quat(...); vectors are rotated by rotation.apply(...).",
        )
    return materialize(array_of(rotation.quat, name))

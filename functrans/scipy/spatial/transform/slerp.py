"""`Slerp`: from one rotation to the next at constant speed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from functrans import numpy as jnp
from functrans.ir.tracebacks import guard_methods
from functrans.numpy.promotion import invalid
from functrans.scipy.spatial.transform import arguments
from functrans.scipy.spatial.transform.rotation import Rotation, quaternions_of
from functrans.trace import concrete_value, typeof

__all__ = ["Slerp"]


@guard_methods
class Slerp(NamedTuple):
    """Rotations at times between those at which they are known, by the shorter way and at constant
    speed. Make one with `Slerp.init`; it is a pytree.

    Arguments:
      times: [n] where rotations are known.
      timedelta: [n - 1] the differences of these.
      rotations: Rotation [n - 1, 4], all but the last.
      rotvecs: [n - 1, 3] from each rotation to the next.

    Source: `jax.scipy.spatial.transform.Slerp`; Shoemake, Animating rotation with quaternion curves
    (1985).

    Example:
      >>> from functrans.scipy.spatial.transform import Rotation, Slerp
      >>> turns = Rotation.from_rotvec([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
      >>> between = Slerp.init([0.0, 1.0, 3.0], turns)
      >>> print(between(0.5).as_rotvec())
      [0.  0.  0.5]
    """

    times: Any
    timedelta: Any
    rotations: Rotation
    rotvecs: Any

    @classmethod
    def init(cls, times: Any, rotations: Rotation) -> Slerp:
        """Make one of known rotations.

        Arguments:
          times: [n] real numbers, increasing, which is checked where they are known.
          rotations: Rotation, [n, 4], n >= 2.

        Raises:
          TypeMismatch: rotations is not a Rotation.
          InvalidArgument: fewer than two rotations, not a time for each, times out of order.

        Source: `jax.scipy.spatial.transform.Slerp.init`.

        Example:
          >>> print(Slerp.init([1.0, 4.0], Rotation.identity(2)).timedelta)
          [3.]
        """
        quat = quaternions_of("Slerp.init", rotations)
        t = typeof(quat)
        if t.ndim != 2 or t.shape[0] < 2:
            raise invalid(
                "Slerp.init", f"takes a stack of two or more rotations, got quaternions {t.shape}",
                "Rotation.concatenate([...]) makes one.",
            )  # fmt: skip
        known = _known(times)
        times = _times("Slerp.init", times, t.dtype)
        if typeof(times).shape != (t.shape[0],):
            raise invalid(
                "Slerp.init",
                f"times must be of shape ({t.shape[0]},), one for each rotation, got "
                f"{typeof(times).shape}",
            )
        if known is not None and not np.all(np.diff(known.astype(t.dtype)) > 0):
            raise invalid(
                "Slerp.init", f"times must increase, got {known.tolist()!s:.60} in {t.dtype}",
                "Sort them, and the rotations alike: i = jnp.argsort(times); rotations[i].",
            )  # fmt: skip
        starts = Rotation(quat[:-1])
        rotvecs = (starts.inv() * Rotation(quat[1:])).as_rotvec()
        return cls(times, jnp.diff(times), starts, rotvecs)

    def __call__(self, times: Any) -> Rotation:
        """Interpolate.

        Arguments:
          times: a number, or [m], between the first and the last time that are known.

        Returns:
          Rotation, [4] or [m, 4].

        Raises:
          InvalidArgument: times have more than one axis.

        Source: `jax.scipy.spatial.transform.Slerp.__call__`.

        Example:
          >>> ends = Rotation.from_rotvec([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
          >>> print(Slerp.init([0.0, 2.0], ends)(1.0).as_rotvec())
          [0.  0.  0.5]
        """
        at = _times("Slerp(...)", times, typeof(self.times).dtype)
        ndim = typeof(at).ndim
        if ndim > 1:
            raise invalid("Slerp(...)", f"times have at most one axis, got {typeof(at)}")
        at = jnp.atleast_1d(at)
        i = jnp.maximum(jnp.searchsorted(self.times, at) - 1, 0)
        part = (at - self.times[i]) / self.timedelta[i]
        made = self.rotations[i] * Rotation.from_rotvec(self.rotvecs[i] * part[:, None])
        return made if ndim else made[0]


def _known(times: Any) -> np.ndarray | None:
    """The values behind times; None where they are traced, in part or all."""
    if isinstance(times, (list, tuple)):
        found = [_known(t) for t in times]
        return None if any(x is None for x in found) else np.array(found)
    value = concrete_value(times)
    return None if value is None else np.asarray(value)


def _times(name: str, times: Any, dtype: Any) -> Any:
    """Times at a dtype; NumPy's are cast by NumPy, which has all of their bits."""
    if isinstance(times, np.ndarray) and times.dtype.kind in "iuf":
        times = times.astype(dtype)
    elif not isinstance(times, (list, tuple)):
        times = arguments.reals(name, times)
    return jnp.asarray(times, dtype)

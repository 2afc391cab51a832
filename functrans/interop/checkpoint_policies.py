"""JAX's `checkpoint` policies, which test JAX primitives, applied to our primitives."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import jax
from jax._src.core import Primitive

from functrans.ir.types import ArrayType
from functrans.primitives.calls.jax_call import jax_call


class Policy:
    """A JAX policy as one of ours: it is called with the JAX primitive of the same name."""

    def __init__(self, policy: Any):
        self.policy = policy

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Policy) and self.policy == other.policy

    def __hash__(self) -> int:
        return hash(self.policy)

    def __repr__(self) -> str:
        return f"<{getattr(self.policy, '__name__', type(self.policy).__name__)}>"

    def __call__(self, primitive: Any, *types: ArrayType, **params: Any) -> bool:
        name = primitive.name
        theirs = _theirs().get(name) or Primitive(name)
        if primitive is jax_call:
            called = params["body"].equation
            theirs, params = called.primitive, called.params
        if name == "dot_general":
            params = {"dimension_numbers": _numbers(**params)}
        avals = [jax.core.ShapedArray(t.shape, t.dtype) for t in types]
        found = self.policy(theirs, *avals, **params)
        return found if isinstance(found, bool) else "recompute" not in repr(found).lower()


@functools.cache
def _theirs() -> dict[str, Any]:
    """Return JAX's primitives by name. Imported late: their module imports Pallas."""
    primitives = importlib.import_module("jax.extend.core.primitives")
    return {p.name: p for p in vars(primitives).values() if isinstance(p, Primitive)}


def _numbers(*, lhs: Any, rhs: Any, out: Any, **_: Any) -> Any:
    """Return JAX's `dimension_numbers` of a `dot_general`."""
    batch = [n for n in out if n in lhs and n in rhs]
    summed = [n for n in lhs if n in rhs and n not in out]
    pairs = [[tuple([axes.index(n) for n in names]) for axes in (lhs, rhs)] for names in (summed, batch)]
    return tuple(map(tuple, pairs))

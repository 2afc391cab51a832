"""What `vjp` returns: a function of cotangents that is a pytree of its residuals, so that it passes
through `jit`, `vmap` and `scan` as JAX's does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from jax.tree_util import register_pytree_node_class

from functrans import pytrees as tree
from functrans.api.checks import cotangents, only_cotangent
from functrans.api.flat import instantiate
from functrans.ir.tracebacks import boundary
from functrans.ir.types import ArrayType
from functrans.transforms.linear import Linear
from functrans.transforms.transpose import backward


class Signature(NamedTuple):
    """What a pullback takes and returns."""

    types: Sequence[ArrayType]  # of the primals
    active: Sequence[bool]
    in_tree: Any
    out_tree: Any
    n_out: int  # leaves of the result, which those of aux follow


class _Skeleton:
    """A pullback without its residuals. Each is equal to itself alone, as a program is."""

    def __init__(self, linear: Linear, names: Sequence[Any], signature: Signature):
        self.linear = linear
        self.names = names  # of the residuals in its equations
        self.signature = signature


@register_pytree_node_class
class Pullback:
    """Takes the cotangent of a result to those of the primals, one per argument."""

    __slots__ = ("__weakref__", "residuals", "skeleton")
    __name__ = property(lambda self: "pullback")

    def __init__(self, skeleton: _Skeleton, residuals: Sequence[Any]):
        self.skeleton = skeleton
        self.residuals = residuals

    @classmethod
    def of(cls, linear: Linear, signature: Signature) -> Pullback:
        """That of a linear map. It may live long, so what it does not need is let go."""
        named, names, residuals = linear.pruned().apart()
        return cls(_Skeleton(named, names, signature), residuals)

    @boundary
    def __call__(self, *given: Any) -> Any:
        types, active, in_tree, out_tree, n_out = self.skeleton.signature
        ct = only_cotangent(given)
        linear = self.skeleton.linear.filled(self.skeleton.names, self.residuals)
        cts = cotangents(ct, out_tree, linear.out_types[:n_out])
        padded = [*cts, *[None] * (len(linear.outputs) - len(cts))]
        found = iter(backward(linear.equations, linear.inputs, linear.outputs, padded))
        grads = [
            instantiate(next(found) if a else None, t) for t, a in zip(types, active, strict=True)
        ]
        return tree.unflatten(in_tree, grads)[0]

    def tree_flatten(self) -> tuple[Sequence[Any], _Skeleton]:
        return self.residuals, self.skeleton

    @classmethod
    def tree_unflatten(cls, skeleton: _Skeleton, residuals: Sequence[Any]) -> Pullback:
        return cls(skeleton, residuals)

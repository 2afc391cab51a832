"""The pullback that `vjp` returns: a function of cotangents that is also a pytree of its residuals,
so that it can be passed through `jit`, `vmap` and `scan`, as in JAX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from jax.tree_util import register_pytree_node_class

from functrans import pytrees as tree
from functrans.api.checks import cotangents, only_cotangent
from functrans.api.flat import instantiate
from functrans.ir.tracebacks import boundary
from functrans.ir.types import ArrayType
from functrans.transforms.linear_maps import Linear
from functrans.transforms.transpose import backward
from functrans.typing import PyTree


class Signature(NamedTuple):
    """Types and treedefs of the arguments and results of a pullback."""

    types: Sequence[ArrayType]  # of the primals
    active: Sequence[bool]
    in_tree: Any
    out_tree: Any
    n_out: int  # number of leaves of the result; those of aux follow


class _Skeleton:
    """A pullback without its residuals, compared by identity, like a program."""

    def __init__(self, linear: Linear, names: Sequence[Any], signature: Signature):
        self.linear = linear
        self.names = names  # the variables of the residuals in its equations
        self.signature = signature


@register_pytree_node_class
class Pullback:
    """Map the cotangent of a result to those of the primals, one per argument.

    The residuals are stored in its equations and extracted when it is flattened.
    """

    __slots__ = ("__weakref__", "_apart", "_linear", "_signature")

    @property
    def __name__(self) -> str:
        return "pullback"

    def __init__(self, linear: Linear, signature: Signature):
        self._linear = linear
        self._signature = signature
        self._apart: tuple[Sequence[Any], _Skeleton] | None = None

    @boundary
    def __call__(self, *given: PyTree) -> tuple[PyTree, ...]:
        types, active, in_tree, out_tree, n_out = self._signature
        ct, linear = only_cotangent(given), self._linear
        cts = cotangents(ct, out_tree, linear.out_types[:n_out])
        padded = [*cts, *[None] * (len(linear.outputs) - len(cts))]
        found = iter(backward(linear.equations, linear.inputs, linear.outputs, padded))
        grads = [instantiate(next(found) if a else None, t) for t, a in zip(types, active, strict=True)]
        return tree.unflatten(in_tree, grads)[0]

    def tree_flatten(self) -> tuple[Sequence[Any], _Skeleton]:
        if self._apart is None:
            linear, names, residuals = self._linear.apart()
            self._apart = residuals, _Skeleton(linear, names, self._signature)
        return self._apart

    @classmethod
    def tree_unflatten(cls, skeleton: _Skeleton, residuals: Sequence[Any]) -> Pullback:
        made = cls(skeleton.linear.filled(skeleton.names, residuals), skeleton.signature)
        made._apart = residuals, skeleton
        return made

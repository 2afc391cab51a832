"""`custom_vmap`: custom batching rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

from functrans import errors
from functrans import pytrees as tree
from functrans.api.arguments import as_array
from functrans.api.custom_calls import unflatten, where_defined
from functrans.api.custom_rules import CustomFunction
from functrans.backends import xla
from functrans.ir.source import brief
from functrans.ir.tracebacks import boundary
from functrans.primitives.custom.calls import BatchRule, custom_vmap_call
from functrans.primitives.custom.tracing import staged_call
from functrans.pytrees.functions import FlatFunction, function_name
from functrans.trace import state

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Rule = TypeVar("_Rule", bound=Callable[..., Any])


class custom_vmap(CustomFunction[_P, _R]):
    """Give a function a custom batching rule.

    Unlike in JAX, reverse mode is supported: it differentiates the function itself.

    Arguments:
      fun: function of pytrees of arrays.

    Returns:
      A function like `fun`, with `def_vmap`.

    Raises:
      MissingCustomRule: it is called before its rule is defined.
      BatchRuleMismatch: the rule returns a different structure, or results of different types.
      ClosedOverTracer: `fun` closes over a batched value.

    Source: `jax.custom_batching.custom_vmap`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> @ft.custom_batching.custom_vmap
      ... def f(x, y):
      ...     return x + y
      >>> @f.def_vmap
      ... def f_vmap(axis_size, in_batched, xs, ys):
      ...     return xs * ys, True
      >>> print(ft.vmap(f)(jnp.arange(3), jnp.arange(1, 4)))
      [0 2 6]
    """

    _kind = "custom_vmap"
    _how = "def_vmap"

    def __init__(self, fun: Callable[_P, _R]):
        super().__init__(fun)
        self.vmap_rule: Callable[..., Any] | None = None

    def def_vmap(self, vmap_rule: _Rule) -> _Rule:
        """Define the batching rule.

        Arguments:
          vmap_rule: `vmap_rule(axis_size, in_batched, *args) -> (out, out_batched)`. Batched arrays
            have the batch axis first; `in_batched` (a list, one pytree per argument) and
            `out_batched` hold a boolean per array: whether it is batched.

        Returns:
          `vmap_rule`, so that this method can be used as a decorator.

        Source: `jax.custom_batching.custom_vmap.def_vmap`.
        """
        self.vmap_rule = vmap_rule
        return vmap_rule

    @boundary
    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        if self.vmap_rule is None:
            raise self.undefined()
        given = self.positional(args, kwargs)
        leaves, in_tree = tree.flatten((given, {}))
        flat = FlatFunction(self.fun, in_tree)
        if state.trace is None and xla.is_outermost():
            outs = flat(*[as_array(x) for x in leaves])
            return tree.unflatten(flat.out_tree, [as_array(y) for y in outs])
        program, captured = staged_call(flat, leaves, function_name(self.fun))
        rule = _flat_rule(self.vmap_rule, self.fun, in_tree, flat.out_tree)
        outs = custom_vmap_call(*captured, *leaves, program=program, rule=rule, n_consts=len(captured))
        return tree.unflatten(flat.out_tree, outs)


def _flat_rule(rule: Any, fun: Any, in_tree: Any, out_tree: Any) -> BatchRule:
    def flat(size: int, batched: Sequence[bool], values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        args, _ = unflatten(in_tree, values)
        in_batched, _ = tree.unflatten(in_tree, batched)
        found = rule(size, list(in_batched), *args)
        where = f"It is defined at {where_defined(rule)}"
        if not isinstance(found, (tuple, list)) or len(found) != 2:
            raise errors.BatchRuleMismatch(
                f"{function_name(rule)}, the vmap rule of {function_name(fun)}, must return a pair "
                f"(output, out_batched), got {brief(found)}. {where}"
            )
        outs, structure = tree.flatten(found[0])
        out_batched, batched_structure = tree.flatten(found[1])
        for what, have in (("an output", structure), ("out_batched", batched_structure)):
            if have != out_tree:
                raise errors.BatchRuleMismatch(
                    f"{function_name(rule)}, the vmap rule of {function_name(fun)}, must return "
                    f"{what} with the structure of the function's output, {out_tree}, got {have}. "
                    f"{where}"
                )
        return [as_array(y) for y in outs], out_batched

    return BatchRule(flat, function_name(fun))

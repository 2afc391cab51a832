"""`lax` loops as Python loops, for `disable_jit`: their functions see concrete values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from functrans import pytrees as tree
from functrans.lax.arguments import as_array
from functrans.primitives.shape.joining import concatenate
from functrans.primitives.shape.moving import reshape, slice_axis
from functrans.trace import concrete_value, state, typeof


def wanted() -> bool:
    """Return whether `disable_jit` is active."""
    return state.jit_disabled


def scan(f: Callable[..., Any], init: Any, xs: Any, n: int, reverse: bool) -> tuple[Any, Any]:
    """Run a `lax.scan` of at least one step."""
    carry, results = init, []
    for i in range(n)[::-1] if reverse else range(n):
        carry, y = f(carry, tree.map(lambda x, i=i: _row(as_array(x), i), xs))
        results.append(y)
    if reverse:
        results.reverse()
    return tree.map(as_array, carry), tree.map(_stacked, *results)


def while_loop(cond_fun: Any, body_fun: Any, carry: Any, going: Any) -> Any:
    """Run a `lax.while_loop` whose first condition `going` is already computed."""
    while concrete_value(going):
        carry = body_fun(carry)
        going = cond_fun(carry)
    return tree.map(as_array, carry)


def knows(x: Any) -> bool:
    """Return whether x has a concrete value."""
    return concrete_value(x) is not None


def _row(x: Any, i: int) -> Any:
    return reshape(slice_axis(x, 0, i, i + 1), shape=typeof(x).shape[1:])


def _stacked(*rows: Any) -> Any:
    arrays = [as_array(x) for x in rows]
    one = [reshape(x, shape=(1, *typeof(x).shape)) for x in arrays]
    return concatenate(*one, dimension=0) if len(one) > 1 else one[0]

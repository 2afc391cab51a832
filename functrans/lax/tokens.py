"""`jax.lax` names for tokens: values that say what must come before what, and the messages between
the examples of a mapped axis that are ordered by them.

A token is a pytree, so it goes through every transformation, into loops and out of jitted
functions. That of a `psend` brings the message with it: what JAX has on GPUs alone, two operations
that meet while they run, is here one `ppermute` on all devices.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.tree_util import register_pytree_node_class

from functrans import pytrees as tree
from functrans.lax.arguments import as_array, invalid, mismatch
from functrans.lax.collective import names_of
from functrans.lax.elementwise import optimization_barrier
from functrans.lax.exchange import ppermute
from functrans.trace import full, typeof

__all__ = ["after_all", "create_token", "precv", "psend"]


class Route(NamedTuple):
    """Over which axes a message was sent, and from whom to whom."""

    axes: tuple[Any, ...]
    perm: tuple[tuple[int, int], ...]


@register_pytree_node_class
class Token:
    """What is to come before; `messages` are on their way by the `routes`."""

    __slots__ = ("mark", "messages", "routes")

    def __init__(self, mark: Any, messages: Sequence[Any] = (), routes: Sequence[Route] = ()):
        self.mark = mark
        self.messages = tuple(messages)
        self.routes = tuple(routes)

    def __repr__(self) -> str:
        return f"Token({len(self.messages)} messages)"

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[Route, ...]]:
        return (self.mark, *self.messages), self.routes

    @classmethod
    def tree_unflatten(cls, routes: tuple[Route, ...], leaves: Sequence[Any]) -> Token:
        mark, *messages = leaves
        return cls(mark, messages, routes)


def create_token(_: Any = None) -> Token:
    """Make a token that nothing comes before.

    Returns:
      A token, for `after_all`, `precv` and `optimization_barrier`.

    Source: `jax.lax.create_token`.

    Example:
      >>> from functrans import lax
      >>> x, _ = lax.optimization_barrier((1.0, lax.create_token()))
      >>> print(x)
      1.0
    """
    return Token(full(False, typeof(np.bool_(0))))


def after_all(*operands: Token) -> Token:
    """Join tokens into one: what comes after it comes after all of them.

    Arguments:
      operands: tokens.

    Returns:
      A token, with the messages of all.

    Raises:
      TypeMismatch: an operand is no token.

    Source: `jax.lax.after_all`.

    Example:
      >>> from functrans import lax
      >>> lax.after_all(lax.create_token(), lax.create_token())
      Token(0 messages)
    """
    for x in operands:
        _check_token("after_all", x)
    if not operands:
        return create_token()
    (mark, *_), *messages = optimization_barrier(
        ([x.mark for x in operands], *[m for x in operands for m in x.messages])
    )
    return Token(mark, messages, [r for x in operands for r in x.routes])


def psend(x: Any, axis_name: Any, perm: Sequence[tuple[int, int]]) -> Any:
    """Send the values of the examples of a mapped axis to others, where `precv` receives them.

    Arguments:
      x: pytree of arrays.
      axis_name: a name, or several.
      perm: pairs (from, to) of examples; none twice.

    Returns:
      A pytree like x, of tokens.

    Raises:
      UnboundAxis: nothing around the call has given the name to an axis.
      TypeMismatch: `perm` names an example twice, or one that there is not.

    Source: `jax.lax.psend`, which runs on GPUs alone.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> from functrans import lax
      >>> ring = [(0, 1), (1, 2), (2, 0)]
      >>> def right(x):
      ...     token = lax.psend(x, "i", ring)
      ...     return lax.precv(token, x, "i", ring)
      >>> print(ft.vmap(right, axis_name="i")(jnp.array([1, 2, 3])))
      [3 1 2]
    """
    route = _route(axis_name, perm)

    def send(x: Any) -> Token:
        return Token(create_token().mark, [ppermute(as_array(x), axis_name, perm)], [route])

    return tree.map(send, x)


def precv(token: Token, out_shape: Any, axis_name: Any, perm: Sequence[tuple[int, int]]) -> Any:
    """Receive what the examples of a mapped axis have sent by `psend`.

    Arguments:
      token: that of the `psend`, or of `after_all` over several. Of several messages that fit, the
        first is received.
      out_shape: anything with the `shape` and `dtype` of the message, as a `ShapeDtypeStruct`.
      axis_name, perm: as given to `psend`.

    Returns:
      An array; zeros where nothing is sent to.

    Raises:
      TypeMismatch: `token` is none.
      InvalidArgument: it brings no such message.

    Source: `jax.lax.precv`, which runs on GPUs alone. There a message of a `psend` that the token
      does not come from may be received too; here a message is where its token is.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> from functrans import lax
      >>> def first(x):
      ...     token = lax.psend(x * 10, "i", [(0, 1)])
      ...     return lax.precv(token, x, "i", [(0, 1)])
      >>> print(ft.vmap(first, axis_name="i")(jnp.array([1, 2, 3])))
      [ 0 10  0]
    """
    _check_token("precv", token)
    wanted = typeof(out_shape).strong()
    route = _route(axis_name, perm)
    for message, by in zip(token.messages, token.routes, strict=True):
        if by == route and typeof(message).same(wanted):
            return message
    brought = [
        f"{typeof(m)} over {', '.join(map(repr, by.axes))} by perm {list(by.perm)}"
        for m, by in zip(token.messages, token.routes, strict=True)
    ]
    raise invalid(
        "precv",
        f"the token brings no {wanted} over {', '.join(map(repr, route.axes))} by perm "
        f"{list(route.perm)}; it brings {'; '.join(brought) or 'no message'}",
        "Pass the token of the psend, and its axis_name and perm.",
    )


def _route(axis_name: Any, perm: Sequence[tuple[int, int]]) -> Route:
    pairs = tuple([(operator.index(a), operator.index(b)) for a, b in perm])
    return Route(names_of(axis_name), pairs)


def _check_token(name: str, x: Any) -> None:
    if not isinstance(x, Token):
        raise mismatch(
            name,
            f"takes tokens, got {x!r:.60} of type {type(x).__qualname__}",
            "create_token, psend and after_all make them.",
        )

"""`jax.lax` names over primitives/control_flow/cond.py and while_loop.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from functrans import errors
from functrans import pytrees as tree
from functrans.flags import flags
from functrans.ir.source import brief_with_type, here
from functrans.ir.types import dtype_class
from functrans.lax import staging
from functrans.lax.arguments import as_array, invalid
from functrans.lax.loops import scan
from functrans.primitives.control_flow.cond import INDEX, with_common_captures
from functrans.primitives.control_flow.cond import cond as _cond
from functrans.primitives.control_flow.while_loop import while_loop as _while
from functrans.primitives.elementwise.conversion import convert_element_type
from functrans.primitives.elementwise.families import add, lt, ne
from functrans.primitives.elementwise.selection import clamp
from functrans.trace import concrete_value, literal, typeof
from functrans.typing import ArrayLike, PyTree

__all__ = ["cond", "fori_loop", "switch", "while_loop"]

_NONE = object()


# --- branches -------------------------------------------------------------------------------------


def cond(
    pred: ArrayLike,
    true_fun: Callable[..., PyTree],
    false_fun: Callable[..., PyTree],
    *operands: PyTree,
    operand: PyTree = _NONE,
    linear: PyTree = None,
) -> PyTree:
    """Run one of two functions.

    Arguments:
      pred: boolean scalar (a number is true if it is not zero).
      true_fun, false_fun: functions of the operands with results of the same structure and types.
      *operands: pytrees of arrays. The functions may also close over tracers.

    Returns:
      The result of the chosen function.

    Raises:
      TypeMismatch: the results differ in structure or types; `pred` is not a scalar.

    Source: `jax.lax.cond`.

    Example:
      >>> import functrans as ft
      >>> from functrans import lax
      >>> f = ft.jit(lambda x: lax.cond(x > 0, lambda x: x, lambda x: -x, x))
      >>> print(f(-2.0))
      2.0
    """
    if not callable(true_fun) and len(operands) == 2 and callable(false_fun):
        # the old signature: cond(pred, true_operand, true_fun, false_operand, false_fun)
        x, f, (y, g) = true_fun, false_fun, operands
        return cond(pred, lambda both: f(both[0]), lambda both: g(both[1]), (x, y))
    staging.check_function(true_fun, "cond", "true_fun")
    staging.check_function(false_fun, "cond", "false_fun")
    given = operands if operand is _NONE else (operand,)
    pred = as_array(pred)
    t = typeof(pred)
    if t.shape or dtype_class(t.dtype) not in ("bool", "int", "uint", "float"):
        raise errors.TypeMismatch(
            f"cond: pred must be a boolean scalar, got {t}, {here()}\n"
            "For an elementwise choice use jnp.where or lax.select; reduce with .all() or .any()."
        )
    truth = pred if dtype_class(t.dtype) == "bool" else ne(pred, literal(0, t))
    index = convert_element_type(truth, dtype=INDEX.dtype)
    return _choice("cond", index, (false_fun, true_fun), given)


def switch(
    index: ArrayLike, branches: Sequence[Callable[..., PyTree]], *operands: PyTree, operand: PyTree = _NONE
) -> PyTree:
    """Run one of several functions.

    Arguments:
      index: integer scalar; clamped to 0 ... len(branches) - 1.
      branches: functions of the operands with results of the same structure and types.
      *operands: pytrees of arrays.

    Returns:
      The result of the chosen branch.

    Source: `jax.lax.switch`.

    Example:
      >>> from functrans import lax
      >>> print(lax.switch(1, [lambda x: x + 1, lambda x: x * 10], 3))
      30
    """
    try:
        branches = tuple(branches)
    except TypeError:
        raise errors.NotAnArray(
            f"switch: branches must be a list of functions, got {brief_with_type(branches)}, {here()}\n"
            "Write switch(index, [f, g], x)."
        ) from None
    if not branches:
        raise invalid("switch", "at least one branch is needed")
    for i, branch in enumerate(branches):
        staging.check_function(branch, "switch", f"branches[{i}]")
    given = operands if operand is _NONE else (operand,)
    index = as_array(index)
    t = typeof(index)
    if t.shape or dtype_class(t.dtype) not in ("int", "uint"):
        raise errors.TypeMismatch(f"switch: index must be an integer scalar, got {t}, {here()}")
    if len(branches) == 1:
        return branches[0](*given)
    last = literal(len(branches) - 1, t)
    index = convert_element_type(clamp(literal(0, t), index, last), dtype=INDEX.dtype)
    return _choice("switch", index, branches, given)


@staging.or_by_jax(lambda _, index, branches, operands: jax.lax.switch(index, branches, *operands))
def _choice(name: str, index: Any, branches: Sequence[Callable[..., Any]], operands: Any) -> Any:
    known = concrete_value(index) if flags.jax_disable_jit else None
    if known is not None:
        return branches[int(known)](*operands)
    leaves, _ = staging.array_leaves(operands, "operands")
    in_tree = tree.structure((tuple(operands), {}))
    types = [typeof(x) for x in leaves]
    order = -1 if name == "cond" else 1  # as in JAX: true_fun first, and then false_fun
    made = [staging.staged(f, in_tree, types, name) for f in branches[::order]][::order]
    first, out_tree = made[0].program.out_types, made[0].out_tree
    for i, (f, part) in enumerate(zip(branches[1:], made[1:], strict=True), 1):
        problem = staging.differing(
            f, "result", out_tree, first, part.out_tree, part.program.out_types, "and"
        )
        if problem:
            which = "false_fun and true_fun" if name == "cond" else f"branches 0 and {i}"
            raise errors.TypeMismatch(
                f"{name}: {which} must return equal structures and types:\n{problem}\n"
                f"{staging.given_to(name, branches[0], f)}\n"
                "Cast or reshape the result of one of them."
            )
    captured, programs = with_common_captures([(part.program, part.captured) for part in made])
    programs = [staging.settled(p, first) for p in programs]  # weak where the first is, as in JAX
    outs = _cond(index, *captured, *leaves, branches=tuple(programs))
    return tree.unflatten(out_tree, outs)


# --- loops with unknown trip count ----------------------------------------------------------------


# not by JAX's where types have shardings, since that has no reverse mode
@staging.or_by_jax(lambda *args, max_steps=None, **how: jax.lax.while_loop(*args, **how), typed=False)
def while_loop(
    cond_fun: Callable[[PyTree], PyTree],
    body_fun: Callable[[PyTree], PyTree],
    init_val: PyTree,
    *,
    max_steps: int | None = None,
) -> PyTree:
    """Repeat a function while a condition holds.

    Unlike in JAX, reverse mode works too. Outside of `jit` it unrolls the loop. Inside `jit` it
    recomputes the carry of each step from a bounded number of checkpoints (each step runs at most 3
    more times for 6,500 steps) or, with `max_steps`, stores all of them.

    Arguments:
      cond_fun: carry -> boolean scalar: whether to continue.
      body_fun: carry -> carry, of the same structure and types.
      init_val: the initial carry, a pytree of arrays.
      max_steps: run at most this many steps, and store the residuals of each for reverse mode.

    Returns:
      The final carry.

    Raises:
      TypeMismatch: the body changes the structure or types, or the condition is not a boolean
        scalar.

    Source: `jax.lax.while_loop`; max_steps is ours.

    Example:
      >>> import functrans as ft
      >>> from functrans import lax
      >>> double = lambda x: lax.while_loop(lambda v: v < 100, lambda v: v * 2, x)
      >>> print(ft.jit(double)(3.0), ft.jit(ft.grad(double))(3.0))
      192.0 64.0
    """
    staging.check_function(cond_fun, "while_loop", "cond_fun")
    staging.check_function(body_fun, "while_loop", "body_fun")
    if flags.jax_disable_jit:
        carry = tree.map(jax.numpy.asarray, init_val)  # a body may write x += 1
        if concrete_value(going := cond_fun(carry)) is not None:
            while concrete_value(going):
                carry = body_fun(carry)
                going = cond_fun(carry)
            return tree.map(as_array, carry)
    init, structure = staging.array_leaves(init_val, "init_val")
    in_tree = tree.structure(((init_val,), {}))
    given = [typeof(x) for x in init]
    test = staging.staged(cond_fun, in_tree, given, "while_loop")  # before the body, as in JAX
    body, init = staging.stable(lambda types: staging.staged(body_fun, in_tree, types, "while_loop"), init)
    types = [typeof(x) for x in init]
    name = staging.operation_of(body_fun, "while_loop")
    staging.check_carry(name, "the body", body_fun, structure, types, body.out_tree, body.program.out_types)
    if types != given:  # a weak type takes the dtype that the body gives it
        test = staging.staged(cond_fun, in_tree, types, "while_loop")
    found = test.program.out_types
    alone = len(found) == test.out_tree.num_nodes == 1
    if not alone or found[0].shape or found[0].dtype != np.bool_:
        got = ", ".join(map(str, found))
        fix = "Reduce an elementwise condition with .all() or .any(); compare numbers, as in x != 0."
        if not alone:
            got = f"({got}) in the structure {tree.spelled(test.out_tree)}"
            fix = "Return only the condition, not a tuple or dict."
        raise errors.TypeMismatch(
            f"while_loop: cond_fun must return a boolean scalar, got {got}, "
            f"{staging.given_to('while_loop', cond_fun)}\n{fix}"
        )
    if max_steps is not None:

        def step(carry: Any, _: None) -> tuple[Any, None]:
            return cond(cond_fun(carry), body_fun, lambda carry: carry, carry), None

        return scan(step, tree.unflatten(structure, init), None, length=max_steps)[0]
    outs = _while(
        *test.captured,
        *body.captured,
        *init,
        cond=test.program,
        body=body.program,
        cond_consts=len(test.captured),
        body_consts=len(body.captured),
    )
    return tree.unflatten(structure, outs)


def fori_loop(
    lower: ArrayLike,
    upper: ArrayLike,
    body_fun: Callable[[PyTree, PyTree], PyTree],
    init_val: PyTree,
    *,
    unroll: int | bool | None = None,
    max_steps: int | None = None,
) -> PyTree:
    """Run `val = body_fun(i, val)` for i from `lower` (inclusive) to `upper` (exclusive).

    With concrete bounds it is a `scan`; with traced bounds a `while_loop`, including its reverse
    mode.

    Arguments:
      lower, upper: integers or integer scalars.
      body_fun: (i, carry) -> carry, of the same structure and types.
      init_val: the initial carry.
      unroll: unroll factor (True: all steps); for concrete bounds only.
      max_steps: as in `while_loop`, for traced bounds.

    Returns:
      The final carry.

    Source: `jax.lax.fori_loop`.

    Example:
      >>> from functrans import lax
      >>> print(lax.fori_loop(0, 5, lambda i, total: total + i, 0))
      10
    """
    staging.check_function(body_fun, "fori_loop", "body_fun")
    types = typeof(lower), typeof(upper)
    kinds = [dtype_class(t.dtype) for t in types]
    for name, t, kind in zip(("lower", "upper"), types, kinds, strict=True):
        if t.shape or kind not in ("bool", "int", "uint", "float"):
            raise errors.TypeMismatch(f"fori_loop: {name} must be an integer scalar, got {t}, {here()}")
    first, last = as_array(lower), as_array(upper)
    if types[0].dtype != types[1].dtype:
        weak = [t.weak_type for t in types]
        if not any(weak) or not {"int", "uint"}.issuperset(kinds):
            raise errors.TypeMismatch(
                f"fori_loop: lower and upper must have equal dtypes, got {types[0]} and {types[1]}, {here()}"
            )
        to = types[weak[0]].dtype
        first, last = (convert_element_type(x, dtype=to) for x in (first, last))
    start, stop = concrete_value(lower), concrete_value(upper)
    if start is not None and stop is not None:
        length = max(int(stop) - int(start), 0)
        unroll = 1 if unroll is None else unroll
        body = staging.made_of(body_fun, _counted_step, "fori_loop")
        return scan(body, (int(start), init_val), None, length=length, unroll=unroll)[0][1]
    if unroll is not None:
        raise invalid("fori_loop", "unroll needs static bounds, but these are traced")
    body = staging.made_of(body_fun, _bounded_step, "fori_loop")
    return while_loop(_before_end, body, (first, last, init_val), max_steps=max_steps)[2]


def _counted_step(body_fun: Any, carry: Any, _: None) -> tuple[Any, None]:
    i, val = carry
    return (add(i, 1), body_fun(i, val)), None


def _bounded_step(body_fun: Any, carry: Any) -> Any:
    i, end, val = carry
    return add(i, 1), end, body_fun(i, val)


def _before_end(carry: Any) -> Any:
    return lt(carry[0], carry[1])

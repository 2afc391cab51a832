"""Programs as users meet them: made from a function, run by the reference, asked for types."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax

from functrans import tree
from functrans.api.flat import FlatFunction, function_name
from functrans.api.jit import Statics
from functrans.backends import reference
from functrans.ir.program import Program
from functrans.passes.inline import inline
from functrans.trace import stage, typeof


def make_ir(
    fun: Callable[..., Any], static_argnums: Any = None, static_argnames: Any = None
) -> Callable[..., Program]:
    """Make a function that returns the Program of `fun` instead of its result.

    Arguments:
      fun: function of pytrees of arrays; may itself be a transformed function.
      static_argnums, static_argnames: as in `jit`.

    Returns:
      A function of arrays, scalars, pytrees or `ft.ShapeDtypeStruct`s that returns a Program; print
      it, `ft.ir.parse` its text, run it with `ft.interpret`.

    Source: `jax.make_jaxpr`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> print(ft.make_ir(lambda x: jnp.sin(x) * 2)(1.0))
      program (a: ~f32[]) {
        b: ~f32[] = sin a
        c: ~f32[] = mul b 2.0:~f32[]
        return c
      }
    """
    statics = Statics(fun, static_argnums, static_argnames)

    @functools.wraps(fun)
    def made(*args: Any, **kwargs: Any) -> Program:
        program, _ = _staged(fun, statics, args, kwargs)
        return program

    return made


def eval_shape(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The shapes and dtypes of a function's results, without computing them.

    Arguments:
      fun: function of pytrees of arrays.
      *args, **kwargs: arrays, scalars, or anything with `shape` and `dtype`.

    Returns:
      A pytree of `ShapeDtypeStruct`s.

    Source: `jax.eval_shape`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> ft.eval_shape(lambda x: x @ x, ft.ShapeDtypeStruct((3, 3), "float32"))
      ShapeDtypeStruct(shape=(3, 3), dtype=float32)
    """
    program, out_tree = _staged(fun, Statics(fun, None, None), args, kwargs)
    structs = [
        jax.ShapeDtypeStruct(t.shape, t.dtype, weak_type=t.weak_type) for t in program.out_types
    ]
    return tree.unflatten(out_tree, structs)


def interpret(program: Program, *args: Any) -> Any:
    """Run a Program on the NumPy reference interpreter, at the same dtypes.

    Arguments:
      program: from `make_ir`, `parse` or a jitted function's `.program`.
      *args: one array or scalar per input of the program (pytrees are flattened).

    Returns:
      A list of NumPy arrays, one per output.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> program = ft.make_ir(lambda x: jnp.sum(x * x))(jnp.ones(3))
      >>> ft.interpret(program, jnp.ones(3))
      [array(3., dtype=float32)]
    """
    return reference.run(inline(program), tree.leaves(args))


def _staged(fun: Any, statics: Statics, args: tuple, kwargs: dict) -> tuple[Program, Any]:
    statics.check(args, kwargs)
    static, dynamic = statics.split(args, kwargs)
    leaves, in_tree = tree.flatten(dynamic)
    flat = FlatFunction(statics.bound(static), in_tree)
    program = stage(flat, [typeof(x) for x in leaves], function_name(fun).rpartition(".")[2])
    return program, flat.out_tree

"""Public functions on Programs: trace a function to one, get its result types, interpret it with
NumPy, or evaluate it with custom semantics."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any, Literal, overload

import jax
import numpy as np

from functrans import errors
from functrans import pytrees as tree
from functrans.api.arguments import as_array, check_callable
from functrans.api.compilation import Jitted
from functrans.api.static_arguments import Staged, StaticArguments
from functrans.backends import reference
from functrans.ir.check import check_program
from functrans.ir.program import Equation, Program
from functrans.ir.source import here
from functrans.ir.tracebacks import boundary
from functrans.ir.types import same_types
from functrans.lax.staging import check_function, or_by_jax
from functrans.passes.inlining import inline
from functrans.pytrees.functions import named_after
from functrans.trace import evaluate as run_equations
from functrans.trace import materialize, naming, typeof
from functrans.typing import PyTree


@boundary
def make_ir(
    fun: Callable[..., PyTree],
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
) -> Callable[..., Program]:
    """Return a function that traces `fun` and returns its Program instead of its result.

    Arguments:
      fun: function of pytrees of arrays; may itself be a transformed function.
      static_argnums, static_argnames: as in `jit`.

    Returns:
      A function of pytrees of arrays, scalars or `ft.ShapeDtypeStruct`s that returns a Program,
      which can be printed, parsed from its text with `ft.ir.parse`, and run with `ft.interpret`.

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
    return _staging("make_ir", lambda staged: staged.program, fun, static_argnums, static_argnames)


@overload
def make_jaxpr(
    fun: Callable[..., PyTree],
    static_argnums: int | Sequence[int] = (),
    axis_env: Sequence[tuple[Hashable, int]] | None = None,
    return_shape: Literal[False] = False,
) -> Callable[..., Program]: ...
@overload
def make_jaxpr(
    fun: Callable[..., PyTree],
    static_argnums: int | Sequence[int] = (),
    axis_env: Sequence[tuple[Hashable, int]] | None = None,
    *,
    return_shape: Literal[True],
) -> Callable[..., tuple[Program, PyTree]]: ...
def make_jaxpr(
    fun: Callable[..., PyTree],
    static_argnums: int | Sequence[int] = (),
    axis_env: Sequence[tuple[Hashable, int]] | None = None,
    return_shape: bool = False,
) -> Callable[..., PyTree]:
    """Return a function that returns the Program of `fun`, with the signature of `jax.make_jaxpr`.

    Arguments:
      fun, static_argnums: as in `make_ir`.
      axis_env: names and sizes of mapped axes, for collectives in `fun`.
      return_shape: also return the shapes and dtypes of the results.

    Returns:
      A function that returns a Program, or a Program and a pytree of `ShapeDtypeStruct`s.

    Source: `jax.make_jaxpr`, which returns a jaxpr.

    Example:
      >>> import functrans as ft
      >>> print(ft.make_jaxpr(lambda x: ft.lax.psum(x, "i"), axis_env=[("i", 4)])(1.0))
      program (a: ~f32[]) {
        b: ~f32[] = psum[axes=("i",), sizes=(4,), groups=None] a
        return b
      }
    """

    def result(staged: Staged) -> Any:
        return (staged.program, _structs(staged)) if return_shape else staged.program

    return _staging("make_jaxpr", result, fun, static_argnums, None, axis_env or ())


def _staging(
    name: str, result: Callable[[Staged], Any], fun: Any, argnums: Any, argnames: Any, axes: Any = ()
) -> Callable[..., Any]:
    """Return a function that traces `fun`, with named axes in scope, and returns `result` of that."""
    check_callable(fun, name)
    statics = StaticArguments(fun, argnums, argnames)

    @named_after(fun)
    def made(*args: Any, **kwargs: Any) -> Any:
        with ExitStack() as scope:
            for axis in axes:
                scope.enter_context(naming(*axis))
            return result(statics.staged(args, kwargs))

    return made


@boundary
@or_by_jax(lambda *args, **kwargs: jax.eval_shape(*args, **kwargs))
def eval_shape(fun: Callable[..., PyTree], *args: PyTree, **kwargs: PyTree) -> PyTree:
    """Return the shapes and dtypes of a function's results without computing them.

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
    if isinstance(fun, Jitted):  # which knows its static arguments
        return fun.eval_shape(*args, **kwargs)
    check_function(fun, "eval_shape", "fun")
    return _structs(StaticArguments(fun, None, None).staged(args, kwargs))


def _structs(staged: Staged) -> Any:
    """Return the types of the results, in the structure that the function returns."""
    types = staged.program.out_types
    structs = [jax.ShapeDtypeStruct(t.shape, t.dtype, weak_type=t.weak_type) for t in types]
    return tree.unflatten(staged.out_tree, structs)


@boundary
def interpret(program: Program, *args: PyTree) -> list[np.ndarray]:
    """Run a Program on the NumPy reference interpreter, with the same dtypes.

    Arguments:
      program: from `make_ir`, `parse` or a jitted function's `.program`.
      *args: one array or scalar per input of the program (pytrees are flattened).

    Returns:
      A list of NumPy arrays, one per output.

    Raises:
      InvalidArgument: `program` is not a Program.
      TypeMismatch: the arguments do not match the inputs of the program.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> program = ft.make_ir(lambda x: jnp.sum(x * x))(jnp.ones(3))
      >>> ft.interpret(program, jnp.ones(3))
      [array(3., dtype=float32)]
    """
    check_program(program, "interpret")
    leaves = tree.leaves(args)
    check_takes(program, leaves)
    return reference.run(inline(program), leaves)


def check_takes(program: Program, values: Sequence[Any]) -> None:
    """Raise TypeMismatch unless the values match the inputs of a program."""
    types = [typeof(x) for x in values]
    if not same_types(types, program.in_types):
        raise _does_not_take(program, f"{len(types)}, ({', '.join(map(str, types))})")


def _does_not_take(program: Program, got: str) -> errors.TypeMismatch:
    wanted = ", ".join(map(str, program.in_types))
    return errors.TypeMismatch(
        f"the program {program.name} takes {len(program.inputs)} values, ({wanted}), got {got}, {here()}"
    )


@boundary
def evaluate(
    program: Program, args: Sequence[PyTree], apply: Callable[[Equation, list[PyTree]], PyTree] | None = None
) -> list[PyTree]:
    """Evaluate a Program, equation by equation, optionally with a custom interpreter.

    The evaluation can itself be jitted, differentiated, batched, and traced by `make_ir` to a
    rewritten Program. `examples/own_transformation.py` builds two transformations with it.

    Arguments:
      program: from `make_ir`, `parse`, or a parameter of an equation.
      args: one value per input of the program: arrays, or with `apply` any values it accepts.
      apply: `apply(equation, values) -> result` (a list if it has `multiple_results`). Literal
        operands are passed as arrays. The default, which it may also call, is
        `equation.primitive(*values, **equation.params)`.

    Returns:
      A list of the values of the outputs.

    Raises:
      TypeMismatch: the number of args differs from that of the inputs or, without `apply`, their
        types do.

    Source: `jax.core.eval_jaxpr`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> program = ft.make_ir(lambda x: jnp.sin(x) * 2.0)(1.0)
      >>> print(ft.grad(lambda x: ft.evaluate(program, [x])[0])(0.0))
      2.0
      >>> def degrees(equation, values):
      ...     if equation.primitive.name == "sin":
      ...         values = [values[0] * jnp.pi / 180]
      ...     return equation.primitive(*values, **equation.params)
      >>> print(ft.jit(lambda x: ft.evaluate(program, [x], degrees)[0])(90.0))
      2.0
    """
    check_program(program, "evaluate")
    if apply is None:
        args = [as_array(x) for x in args]
        check_takes(program, args)
    elif len(args) != len(program.inputs):
        raise _does_not_take(program, f"{len(args)}")
    return [materialize(y) for y in run_equations(program, args, apply)]

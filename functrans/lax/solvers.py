"""`jax.lax` names over primitives/custom/implicit.py: solvers with implicit
differentiation, which do not differentiate the steps of the solver."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from functrans import errors
from functrans import pytrees as tree
from functrans.ir.program import hoist_constants
from functrans.ir.source import brief, here
from functrans.ir.types import ArrayType, is_inexact
from functrans.lax.arguments import as_array
from functrans.lax.staging import (
    Staged,
    array_leaves,
    check_function,
    differing,
    given_to,
    settled,
    stable,
    with_common_captures,
)
from functrans.primitives.custom.implicit import linear_solve as _linear_solve
from functrans.primitives.custom.implicit import root as _root
from functrans.primitives.elementwise.conversion import convert_element_type
from functrans.pytrees.functions import FlatFunction, function_name
from functrans.trace import evaluate, materialize, stage, typeof
from functrans.transforms.jvp import run_linearize
from functrans.transforms.transpose import Transposition

__all__ = ["custom_linear_solve", "custom_root"]

Function = Callable[..., Any]


def custom_linear_solve(
    matvec: Function,
    b: Any,
    solve: Function,
    transpose_solve: Function | None = None,
    symmetric: bool = False,
    has_aux: bool = False,
) -> Any:
    """Solve a linear system with a custom solver, differentiated implicitly.

    Arguments:
      matvec: linear function of a pytree like `b`; the values it closes over are differentiable.
      b: the right-hand side, a pytree of arrays.
      solve: `solve(matvec, b) -> x` with `matvec(x) == b`, which is not checked.
      transpose_solve: `transpose_solve(vecmat, b) -> x`, for the transpose of `matvec`; used by
        reverse mode.
      symmetric: `matvec` is its own transpose, so `solve` serves for both.
      has_aux: both solvers return `(x, aux)`.

    Returns:
      The result of `solve`; its derivative is that of the solution x of `matvec(x) == b`.

    Raises:
      ShapeMismatch, TypeMismatch: the result of one of the functions does not match `b`.
      NotLinear: `matvec` is not linear.
      MissingArgument: in reverse mode, neither `transpose_solve` nor `symmetric=True` is given.

    Source: `jax.lax.custom_linear_solve`.

    Example:
      >>> import functrans as ft
      >>> from functrans import lax
      >>> def f(a, b):  # a * x = b
      ...     return lax.custom_linear_solve(
      ...         lambda x: a * x, b, lambda mv, b: b / mv(1.0), symmetric=True)
      >>> print(f(4.0, 2.0), *ft.grad(f, (0, 1))(4.0, 2.0))
      0.5 -0.125 0.25
    """
    name = "custom_linear_solve"
    check_function(matvec, name, "matvec")
    check_function(solve, name, "solve")
    if transpose_solve is None:
        transpose_solve = solve if symmetric else None
    else:
        check_function(transpose_solve, name, "transpose_solve")
    leaves, structure = array_leaves(b)
    in_tree = tree.structure(((b,), {}))
    if not all(is_inexact(typeof(x).dtype) for x in leaves):
        types = [typeof(x) for x in leaves]
        solver = _solver(solve, matvec, has_aux, name)
        leaves = _as_solution(leaves, _staged(solver, solve, in_tree, types))
    made, leaves = stable(lambda types: _staged(matvec, matvec, in_tree, types), leaves)
    types = [typeof(x) for x in leaves]
    like_b = functools.partial(_check, name, "b", structure, types)
    like_b("matvec", made)
    parts = [made, _staged(_solver(solve, matvec, has_aux, name), solve, in_tree, types)]
    like_b("solve", parts[1], has_aux)
    if transpose_solve is not None:
        vecmat = matvec if symmetric else _transposed(made, structure)
        back = _solver(transpose_solve, vecmat, has_aux, name)
        parts.append(_staged(back, transpose_solve, in_tree, types))
        like_b("transpose_solve", parts[2], has_aux)
    captured, programs = with_common_captures(parts)
    programs = [settled(p, types) for p in programs]
    forth, back_solve = programs[0], programs[2] if len(programs) > 2 else None
    n, k = len(captured), len(leaves)
    outs = _linear_solve(
        *captured,
        *leaves,
        matvec=forth,
        vecmat=forth if symmetric else back_solve and _transpose(forth, n, k),
        solve=programs[1],
        transpose_solve=back_solve,
        consts=n,
    )
    return tree.unflatten(parts[1].out_tree, outs)


def custom_root(
    f: Function, initial_guess: Any, solve: Function, tangent_solve: Function, has_aux: bool = False
) -> Any:
    """Find a root of a function with a custom solver, differentiated implicitly.

    Arguments:
      f: function of a pytree of floating point arrays that returns one like it; the values it
        closes over are differentiable.
      initial_guess: a pytree of arrays; the derivative with respect to it is zero.
      solve: `solve(f, initial_guess) -> x` with `f(x) == 0`, which is not checked.
      tangent_solve: `tangent_solve(g, y) -> dx` with `g(dx) == y`, where g is the derivative of f
        at its root: `lambda g, y: y / g(1.0)` for a scalar.
      has_aux: `solve` returns `(x, aux)`.

    Returns:
      The result of `solve`; its derivative is that of the root x of `f(x) == 0`.

    Raises:
      ShapeMismatch, TypeMismatch: the result of one of the functions does not match
        `initial_guess`.
      NonDifferentiable: `initial_guess` has an integer dtype.

    Source: `jax.lax.custom_root`.

    Example:
      >>> import functrans as ft
      >>> from functrans import lax
      >>> def newton(f, x):
      ...     step = lambda _, x: x - f(x) / ft.grad(f)(x)
      ...     return lax.fori_loop(0, 20, step, x)
      >>> def root(a):
      ...     return lax.custom_root(lambda x: x * x - a, 1.0, newton, lambda g, y: y / g(1.0))
      >>> print(root(4.0), ft.grad(root)(4.0))
      2.0 0.25
    """
    name = "custom_root"
    for given, which in ((f, "f"), (solve, "solve"), (tangent_solve, "tangent_solve")):
        check_function(given, name, which)
    leaves, structure = array_leaves(initial_guess)
    in_tree = tree.structure(((initial_guess,), {}))
    made, leaves = stable(lambda types: _staged(f, f, in_tree, types), leaves)
    types = [typeof(x) for x in leaves]
    like_guess = functools.partial(_check, name, "initial_guess", structure, types)
    like_guess("f", made)
    for path, t in zip(tree.path_names(initial_guess, "initial_guess"), types, strict=True):
        if not is_inexact(t.dtype):
            raise errors.NonDifferentiable(
                f"custom_root: the unknowns must be floating point, but {path} is {t}, {here()}\n"
                "Cast the guess, or write it as 1.0 instead of 1."
            )
    solved = _staged(_solver(solve, f, has_aux, name), solve, in_tree, types)
    like_guess("solve", solved, has_aux)
    both = tree.structure(((initial_guess, initial_guess), {}))
    tangent = _staged(lambda x, y: tangent_solve(_derivative(f, x), y), tangent_solve, both, [*types, *types])
    like_guess("tangent_solve", tangent)
    captured, programs = with_common_captures([made, solved, tangent])
    at, found, moved = [settled(p, types) for p in programs]
    outs = _root(*captured, *leaves, f=at, solve=found, tangent_solve=moved, consts=len(captured))
    return tree.unflatten(solved.out_tree, outs)


# --- tracing and calling the user's functions -----------------------------------------------------


def _staged(run: Function, fun: Function, in_tree: Any, types: Sequence[ArrayType]) -> Staged:
    """Trace `run`; error messages name `fun`, the user's function that it calls."""
    flat = FlatFunction(run, in_tree, fun)
    program = stage(flat, types, function_name(fun).rpartition(".")[2])
    return Staged(*hoist_constants(program), flat.out_tree, fun)


def _solver(solve: Function, linear: Function, has_aux: bool, name: str) -> Function:
    """Return `solve` as a function of its right-hand side only; with aux it returns a pair."""

    def run(x: Any) -> Any:
        out = solve(linear, x)
        if has_aux and not (isinstance(out, (tuple, list)) and len(out) == 2):
            raise errors.TypeMismatch(
                f"{name}: with has_aux=True {function_name(solve)} must return (x, aux), got "
                f"{brief(out)}. It is {given_to(name, solve)}"
            )
        return tuple(out) if has_aux else out

    return run


def _as_solution(leaves: Sequence[Any], solved: Staged) -> list[Any]:
    """Cast integer leaves to the dtypes of the solution, which may be floats."""
    return [
        x
        if is_inexact(typeof(x).dtype)
        else convert_element_type(x, dtype=out.dtype, weak_type=out.weak_type)
        for x, out in zip(leaves, solved.program.out_types, strict=False)
    ]


def _check(
    name: str,
    what: str,
    structure: Any,
    types: Sequence[ArrayType],
    which: str,
    made: Staged,
    has_aux: bool = False,
) -> None:
    """Raise an error unless a function's result (the first one, with aux) matches `what`."""
    out_tree, out_types = made.out_tree, made.program.out_types
    if has_aux:
        out_tree = out_tree.children()[0]
        out_types = out_types[: out_tree.num_leaves]
    problem = differing(made.fun, what, structure, types, out_tree, out_types, "but result")
    if problem:
        shapes = [t.shape for t in types] != [t.shape for t in out_types]
        raise (errors.ShapeMismatch if shapes else errors.TypeMismatch)(
            f"{name}: {which} must return a value with the structure and types of {what}:\n"
            f"{problem}\n{given_to(name, made.fun)}"
        )


def _transpose(program: Any, n: int, k: int) -> Any:
    return Transposition().program(program, (*[False] * n, *[True] * k), (True,) * k)


def _transposed(made: Staged, structure: Any) -> Function:
    """Return the transpose of a linear function from `structure` to itself."""
    n = len(made.captured)
    types = made.program.in_types[n:]
    program = _transpose(made.program, n, len(types))

    def vecmat(x: Any) -> Any:
        given = _leaves_like(x, structure, types, "the transposed matvec")
        outs = evaluate(program, [*made.captured, *given])
        return tree.unflatten(structure, [materialize(y) for y in outs])

    return vecmat


def _derivative(f: Function, x: Any) -> Function:
    """Return the derivative of f at x, as a linear function."""
    leaves, structure = tree.flatten(x)
    flat = FlatFunction(f, tree.structure(((x,), {})))
    _, linear = run_linearize(flat, leaves, [typeof(x) for x in leaves], [True] * len(leaves))
    program = linear.program()
    types = [typeof(leaf) for leaf in leaves]

    def g(dx: Any) -> Any:
        given = _leaves_like(dx, structure, types, "the derivative of f", errors.InvalidArgument)
        outs = evaluate(program, given)
        return tree.unflatten(flat.out_tree, [materialize(y) for y in outs])

    return g


def _leaves_like(
    x: Any,
    structure: Any,
    types: Sequence[ArrayType],
    name: str,
    error: type[Exception] = errors.TypeMismatch,
) -> list[Any]:
    """Return the leaves of an argument; raise `error` if its structure or types do not match."""
    leaves, given = tree.flatten(x)
    leaves = [as_array(leaf) for leaf in leaves]
    if given != structure:
        problem, error = f"the structure {structure}, got {given}", errors.TypeMismatch
    else:
        have = [typeof(leaf) for leaf in leaves]
        if all(a.same(b) for a, b in zip(have, types, strict=True)):
            return leaves
        wanted, got = (", ".join(map(str, ts)) for ts in (types, have))
        problem = f"({wanted}), got ({got})"
    raise error(f"{name} takes {problem}, {here()}")

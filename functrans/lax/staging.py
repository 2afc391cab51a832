"""Tracing of the functions that are passed to control-flow operations.

In: a function of pytrees, the types of its leaves. Out: its Program without constants, the captured
values, the treedef of its result. The same function with the same types is not traced again, unless
it closed over tracers.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax

from functrans import errors
from functrans import pytrees as tree
from functrans.caching import CachePerFunction
from functrans.ir.program import Program, hoist_constants
from functrans.ir.source import brief_with_type, here
from functrans.ir.types import ArrayType, promote
from functrans.jax_trace import settings
from functrans.lax.arguments import as_array
from functrans.primitives.calls.jit import speaks_of_others_axes
from functrans.primitives.custom.calls import as_type
from functrans.primitives.distributed.sharding import traced_by_jax
from functrans.primitives.elementwise.conversion import convert_element_type
from functrans.pytrees.functions import FlatFunction, function_name, refused, where_defined
from functrans.records import NamedTuple
from functrans.runtime import F
from functrans.trace import AnyTracer, evaluate, materialize, stage, state, typeof
from functrans.tracer import not_an_array


class Staged(NamedTuple):
    """A traced function: a program whose inputs are the captured values, then the arguments."""

    program: Program
    captured: tuple[Any, ...]
    out_tree: Any


# function -> its programs. Entries must not hold the function, or it would never be freed.
_KNOWN = CachePerFunction("functions of loops and branches", 1024)


# How operations call their functions, for error messages.
_CALLS = {
    "scan": "f(carry, x)",
    "map": "f(x)",
    "fori_loop": "body_fun(i, carry)",
    "while_loop": "cond_fun(carry) and body_fun(carry)",
    "switch": "each branch(*operands)",
    "cond": "true_fun and false_fun(*operands)",
}


def staged(fun: Callable[..., Any], in_tree: Any, types: Sequence[ArrayType], operation: str) -> Staged:
    """Trace a function that was passed to an operation; `in_tree`: treedef of its positional arguments."""
    key = (in_tree, tuple(types), state.axes, settings())
    known = _KNOWN.of(fun)
    found = known.get(key)
    if found is None:
        flat = FlatFunction(fun, in_tree, users(fun))
        try:
            program = stage(flat, types, function_name(users(fun)).rpartition(".")[2])
        except TypeError as error:
            name, user = operation_of(fun, operation), users(fun)
            if name not in _CALLS or not refused(error, user):
                raise
            raise errors.TypeMismatch(
                f"{name}: {error}. It is {given_to(name, fun)}\n{name} calls {_CALLS[name]}."
            ) from None
        found = Staged(*hoist_constants(program), flat.out_tree)
        traced = any(isinstance(x, AnyTracer) for x in found.captured)
        if not traced and not speaks_of_others_axes(program):
            found = known.keep(key, found)
    return found


# user's function -> {call: the function built from both}
_MADE = CachePerFunction("functions made of those of loops", 32)


class Made:
    """A function built from a user's function, held weakly, so that the cache does not keep it."""

    __slots__ = ("__weakref__", "call", "operation", "user")

    def __init__(self, fun: Callable[..., Any], call: Callable[..., Any], operation: str):
        self.operation: str = operation
        try:
            self.user: Callable[[], Any] = weakref.ref(fun)
        except TypeError:
            self.user = lambda: fun
        self.call: Callable[..., Any] = call

    def __call__(self, *args: Any) -> Any:
        return self.call(self.user(), *args)


def made_of(fun: Callable[..., Any], call: Callable[..., Any], operation: str) -> Callable[..., Any]:
    """Return `call` with `fun` as its first argument, for an operation built on another one; the
    same object each time, so that its programs are found in the cache."""
    known = _MADE.of(fun)
    return known.get(call) or known.keep(call, Made(fun, call, operation))


def users(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Return the user's function, for error messages."""
    return fun.user() if fun.__class__ is Made else fun


def operation_of(fun: Callable[..., Any], usual: str) -> str:
    """Return the name of the operation that the user called, for error messages."""
    return fun.operation if fun.__class__ is Made else usual


def or_by_jax(theirs: Callable[..., Any], typed: bool = True) -> Callable[[F], F]:
    """Wrap an operation or a transformation: run JAX's, `theirs`, where sizes are symbols
    (`jax.export`), if a function uses a reference (`new_ref`) made outside of it or gets one, and, if
    `typed`, where types have shardings."""

    def decorate(ours: F) -> F:
        @functools.wraps(ours)
        def call(*args: Any, **kwargs: Any) -> Any:
            if typed and traced_by_jax():
                return theirs(*args, **kwargs)
            try:
                return ours(*args, **kwargs)
            except errors.OutsideReference:
                return theirs(*args, **kwargs)
            except errors.NotAnArray as error:
                if not any([isinstance(x, jax.Ref) for x in tree.leaves((args, kwargs))]):
                    raise
                try:
                    return theirs(*args, **kwargs)
                except (TypeError, ValueError):  # the gradient of a reference
                    raise error from None
            except errors.SymbolicSize:
                if state.trace is not None:  # the transformation around this one is left to JAX
                    raise
                return theirs(*args, **kwargs)

        return call  # type: ignore[return-value]

    return decorate


def array_leaves(x: Any, name: str) -> tuple[list[Any], Any]:
    """Return the leaves of a pytree, the argument `name`, as arrays, and its treedef."""
    leaves, structure = tree.flatten(x)
    return converted(leaves, lambda y: materialize(as_array(y)), lambda: tree.path_names(x, name)), structure


def converted(
    leaves: Sequence[Any], to_array: Callable[[Any], Any], names: Callable[[], Sequence[str]]
) -> list[Any]:
    """Apply `to_array` to each leaf; an error names the path of the leaf that is not an array."""
    arrays: list[Any] = []
    for x in leaves:
        try:
            arrays.append(to_array(x))
        except errors.NotAnArray:
            raise errors.NotAnArray(not_an_array(x, names()[len(arrays)])) from None
    return arrays


def stable(step: Callable[[list[ArrayType]], Staged], init: list[Any]) -> tuple[Staged, list[Any]]:
    """Trace a loop body to a fixed point of the carry types; return it and the converted initial
    carry. A weakly typed carry takes the dtype that the body gives it."""
    while True:
        types = [typeof(x) for x in init]
        made = step(types)
        outs = made.program.out_types[: len(init)]
        if len(outs) != len(init):
            return made, init
        new = []
        for x, t, out in zip(init, types, outs, strict=True):
            to = promote((t, out))[0] if t.weak_type and t.dtype != out.dtype else t.dtype
            if to != t.dtype:
                x = convert_element_type(x, dtype=to)
            new.append(x)
        if all(x is y for x, y in zip(new, init, strict=True)):
            return made, init
        init = new


def settled(program: Program, types: Sequence[ArrayType]) -> Program:
    """Return the program with results of these types, which may differ in the weak-type flag only."""
    if all(a is b for a, b in zip(program.out_types, types, strict=True)):
        return program

    def run(*values: Any) -> list[Any]:
        return [as_type(y, t) for y, t in zip(evaluate(program, values), types, strict=True)]

    return stage(run, program.in_types, program.name)


def differing(
    fun: Callable[..., Any],
    what: str,
    wanted: Any,
    want: Sequence[Any],
    given: Any,
    have: Sequence[Any],
    between: str = "became",
) -> str:
    """Describe where two structures and their types differ, line by line; "" if they do not."""
    if operation_of(fun, "") == "fori_loop":  # our counters precede the user's carry
        *counters, wanted = wanted.children()
        given = given.children()[-1]
        want, have = want[len(counters) :], have[len(counters) :]
    if wanted != given:
        name = function_name(users(fun))
        was, now = tree.spelled(wanted), tree.spelled(given)
        return f"    {what} has the structure {was}, but {name} returned {now}"
    if all([a.same(b) for a, b in zip(want, have, strict=True)]):
        return ""
    names = tree.path_names(tree.unflatten(wanted, list(want)), what)
    rows = zip(names, want, have, strict=True)
    return "\n".join([f"    {name}: {a} {between} {b}" for name, a, b in rows if not a.same(b)])


def check_carry(
    name: str, who: str, fun: Any, structure: Any, types: Any, out_tree: Any, out_types: Any
) -> None:
    """Raise an error unless the body of a loop returns a carry of the type that it takes."""
    problem = differing(fun, "carry", structure, types, out_tree, out_types)
    if problem:
        raise errors.TypeMismatch(
            f"{name}: {who} must return a carry with the structure and types of its input:\n"
            f"{problem}\n{given_to(name, fun)}\n"
            "Cast what it returns, or give the initial carry the type that it returns."
        )


def check_function(fun: Any, operation: str, name: str) -> None:
    """Raise an error unless `fun` is callable."""
    if not callable(fun):
        raise errors.NotAnArray(
            f"{operation}: {name} must be a function, got {brief_with_type(fun)}, {here()}"
        )


def given_to(operation: str, *funs: Callable[..., Any]) -> str:
    """Return the end of an error message: where the functions of an operation are defined, and
    where they were passed to it."""
    defined = " and ".join(dict.fromkeys([where_defined(users(fun)) for fun in funs]))
    return f"defined at {defined}\nand given to {operation} {here()}"

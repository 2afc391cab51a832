"""Arguments and results of the user's functions: their conversion between pytrees and flat lists of
arrays, and checks of those of the derivative functions, with errors for the user."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from functrans import errors
from functrans import pytrees as tree
from functrans.caching import Cache
from functrans.ir.source import brief, brief_with_type, here
from functrans.ir.types import ArrayType, dtype_class
from functrans.jax_trace import outside
from functrans.lax.staging import converted
from functrans.primitives.elementwise.conversion import convert_element_type
from functrans.pytrees.functions import FlatFunction, argument_names, function_name
from functrans.records import NamedTuple
from functrans.trace import ARRAYS, Tracer, literal, materialize, typeof

_NUMBERS = (np.generic, int, float, complex)
OF_PYTHON = (*_NUMBERS, np.ndarray)  # `if` and NumPy can read these, and so can a mapped function


def results(flat: FlatFunction, outs: Sequence[Any]) -> tuple[Any, Any]:
    """Return what the user's function returned, and its aux, with these values for the tracers."""
    n = flat.out_tree.num_leaves
    given, flat.aux = flat.aux, None
    traced = iter(outs[n:])
    aux = tree.map(lambda x: next(traced) if isinstance(x, Tracer) else x, given)
    return tree.unflatten(flat.out_tree, [materialize(y) for y in outs[:n]]), aux


_MET = Cache("types of arguments that were converted", 4096)  # how often
_OFTEN = 8


def as_array(x: Any) -> Any:
    """Convert an argument to an operand: NumPy arrays and Python scalars to `jax.Array`s.

    `jax.numpy.asarray` is fastest, but compiles a program for each type. The first arguments of a
    type are put on the device without one: NumPy arrays after a copy, because the device may share
    their memory.
    """
    if x.__class__ in ARRAYS or isinstance(x, (jax.Array, Tracer)):
        return x
    t = typeof(x)  # raises an error unless it is an array
    with outside():
        plain = x.__class__ is np.ndarray
        met = _MET.get(t) or 0
        if met >= _OFTEN or not (plain or isinstance(x, _NUMBERS)):
            return jax.numpy.asarray(x)
        _MET.replace(t, met + 1)
        return jax.device_put(x.copy() if plain else x)


def as_arrays(leaves: Sequence[Any], names: Callable[[], Sequence[str]]) -> list[Any]:
    """Apply `as_array` to each leaf; an error names the path of the leaf that is not an array."""
    return converted(leaves, as_array, names)


class Apart:
    """A partition of values into arrays and others, those for which `held` is true. Calling it with a
    list of arrays (or one object per array) merges them back; `other` replaces each of the others,
    by default itself."""

    def __init__(self, values: Sequence[Any], held: Callable[[Any], bool]):
        self.given: list[tuple[bool, Any]] = [(True, x) if held(x) else (False, None) for x in values]

    def arrays(self, values: Sequence[Any]) -> list[Any]:
        """Return the values at the positions of arrays."""
        return [x for x, (held, _) in zip(values, self.given, strict=True) if not held]

    def __call__(self, arrays: Sequence[Any], **other: Any) -> list[Any]:
        rest = iter(arrays)
        return [other.get("other", x) if held else next(rest) for held, x in self.given]


def instantiate(x: Any, like: Any) -> Any:
    """Return a tangent or cotangent as an array of type `like`; None means zero."""
    if x is None:
        if like.tangent() is not like:
            return np.zeros(like.shape, jax.dtypes.float0)
        return materialize(literal(0, like))
    if typeof(x).weak_type != like.weak_type:
        x = convert_element_type(x, dtype=like.dtype, weak_type=like.weak_type)
    return materialize(x)


# --- checks ---------------------------------------------------------------------------------------


def counted(n: int, one: str, several: str = "") -> str:
    """Return e.g. "1 axis" or "2 axes"."""
    return f"{n} {one if n == 1 else several or one + 's'}"


def check_callable(fun: Any, name: str) -> None:
    """Raise an error unless `fun` can be called for a result."""
    if not callable(fun):
        raise errors.NotAnArray(
            f"{name} takes a function, got {brief_with_type(fun)}, {here()}\n"
            f"Write {name}(f)(x), not {name}(f(x))."
        )
    if inspect.isgeneratorfunction(fun):
        raise errors.NotAnArray(
            f"{name} takes a function that returns arrays, but {function_name(fun)} contains `yield`, "
            f"{here()}\nReturn all values at once, for example as a list."
        )


def check_tuples(name: str, example: str, **given: Any) -> None:
    """Raise an error unless the arguments of a transformation are tuples or lists."""
    for what, value in given.items():
        if not isinstance(value, (tuple, list)):
            raise errors.NotAnArray(
                f"{name}: {what} must be a tuple or list with one entry per argument, got "
                f"{type(value).__name__}, {here()}\nWrite {example}."
            )


class Chosen:
    """The arguments with respect to which the transformation `name` differentiates `fun`."""

    def __init__(self, name: str, fun: Any, argnums: Any):
        check_callable(fun, name)
        self.name = name
        self.fun = fun
        self.several: bool = True  # whether argnums is a sequence
        try:
            if isinstance(argnums, int) or not np.ndim(argnums):
                argnums, self.several = (argnums,), False
            self.numbers: tuple[int, ...] = tuple([operator.index(i) for i in argnums])
        except TypeError:
            raise errors.NotAnArray(
                f"argnums must be an int or a sequence of ints, the positions of the arguments to "
                f"differentiate, got {brief(argnums if self.several else argnums[0])}, {here()}"
            ) from None

    def split(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Return `fun` as a function of these arguments only, under its name, and the arguments."""
        fun, numbers = self.fun, self.numbers
        for i in numbers:
            if not -len(args) <= i < len(args):
                raise errors.MissingArgument(
                    f"argnums={i} is out of range for {function_name(fun)}, which was called with "
                    f"{counted(len(args), 'positional argument')}, {here()}\n"
                    "Pass differentiated arguments by position."
                )
        if len(numbers) > 1 and len({i % len(args) for i in numbers}) < len(numbers):
            raise errors.InvalidArgument(
                f"argnums={numbers} lists an argument of {function_name(fun)} twice, {here()}\n"
                "List it once; you can use its gradient twice."
            )

        def inner(*given: Any) -> Any:
            full = list(args)
            for i, x in zip(numbers, given, strict=True):
                full[i] = x
            return fun(*full, **kwargs)

        inner.__qualname__ = function_name(fun)
        inner.__wrapped__ = fun  # type: ignore[attr-defined]
        return inner, tuple([args[i] for i in numbers])

    def names(self, given: tuple[Any, ...]) -> list[str]:
        """Return the path names of their leaves."""
        return argument_names(self.fun, zip(self.numbers, given, strict=True))

    def check(
        self, given: tuple[Any, ...], types: Sequence[ArrayType], holomorphic: bool, allow_int: bool = False
    ) -> None:
        """Raise an error unless the leaves, which have these types, can be differentiated."""
        wanted = "complex" if holomorphic else "float" if self.name == "jacfwd" else "float complex"
        if allow_int:
            wanted += " int uint bool key"
        for i, t in enumerate(types):
            if dtype_class(t.dtype) in wanted.split():
                continue
            advice = (
                "Cast it with x.astype(float), choose other arguments with argnums, or pass allow_int=True."
            )
            if holomorphic:
                advice = "With holomorphic=True, arguments must be complex."
            elif dtype_class(t.dtype) == "complex":
                advice = "Pass holomorphic=True for complex-differentiable functions."
            elif dtype_class(t.dtype) == "key":
                advice = "Choose other arguments with argnums, or pass allow_int=True."
            raise errors.NonDifferentiable(
                f"cannot differentiate {function_name(self.fun)} with respect to "
                f"{self.names(given)[i]} of type {t}, {here()}\n{advice}"
            )

    def by_argument(self, found: Any) -> Any:
        """Return one result per argument as the user gets them: without a tuple for a single one."""
        return found if self.several else found[0]


def check_outputs(name: str, fun: Any, leaves: Sequence[Any], holomorphic: bool) -> None:
    """Raise an error unless the results of a function are real, or complex with `holomorphic`."""
    wanted, fix = "real floating point", "Cast with x.astype(float); for complex results pass "
    fix += "holomorphic=True if the function is complex-differentiable, or use vjp."
    if holomorphic:
        wanted, fix = "complex", "With holomorphic=True, it must return complex numbers."
    for t in map(typeof, leaves):
        if dtype_class(t.dtype) != ("complex" if holomorphic else "float"):
            raise errors.NonDifferentiable(
                f"{name} needs a {wanted} result, but {function_name(fun)} returned {t}, {here()}\n{fix}"
            )


def check_loss(fun: Any, value: Any, holomorphic: bool) -> None:
    """Raise an error unless the loss is one real (with `holomorphic`, complex) scalar."""
    leaves = tree.leaves(value)
    alone = len(leaves) == 1 and leaves[0] is value
    if not alone or typeof(value).shape:
        shown = ", ".join([str(typeof(y)) for y in leaves])
        what = "None" if value is None else f"a {type(value).__name__} of ({shown})"
        advice = (
            "Reduce it (jnp.sum, jnp.mean), use jacrev, or use vmap(grad(f)) for one gradient per example."
            if alone
            else "Return only the loss, or (loss, aux) with has_aux=True."
        )
        raise errors.NonScalarLoss(
            f"grad needs a function that returns {'a' if alone else 'one'} scalar, but "
            f"{function_name(fun)} returned {shown if alone else what}, {here()}\n{advice}"
        )
    check_outputs("grad", fun, leaves, holomorphic)


class Taken(NamedTuple):
    """What a function takes from the user: a "tangent" for each "primal", or a "cotangent" for each
    "result". The errors are those about its structure, shapes and dtypes."""

    function: str
    what: str
    of: str
    wrong_structure: type[Exception]
    wrong_shape: type[Exception]
    wrong_dtype: type[Exception]

    def flatten(self, given: Any, structure: Any, types: Sequence[ArrayType]) -> list[Any]:
        """Return what was given as a flat list, with None for integers; raise an error unless it matches
        primals or results of this structure and these types."""
        leaves, found = tree.flatten(given)
        if found != structure:
            fix = "Pass one cotangent (zeros if there is none) for each array of the results."
            raise self.wrong_structure(
                f"{self.function}: the {self.what}s must have the structure of the {self.of}s, "
                f"{tree.spelled(structure)}, got {tree.spelled(found)}, {here()}\n"
                f"{'Write jvp(f, (x, y), (dx, dy)).' if self.what == 'tangent' else fix}"
            )
        return [self._checked(x, t) for x, t in zip(leaves, types, strict=True)]

    def _checked(self, x: Any, t: ArrayType) -> Any:
        want, nothing = t.tangent(), t.tangent() is not t
        if nothing and self.what == "cotangent":  # it is not used
            return None
        if isinstance(x, np.ndarray) and x.dtype == jax.dtypes.float0:
            have = ArrayType(x.shape, x.dtype)
        else:
            x = as_array(x)
            have = typeof(x)
        if not have.same(want):
            kind = self.wrong_dtype if have.shape == want.shape else self.wrong_shape
            advice = f"It must have the shape and dtype of the {self.of}, like jnp.ones_like({self.of})."
            if nothing:
                advice = f"The tangent of an integer array is np.zeros({want.shape}, ft.dtypes.float0)."
            problem = f"the {self.what} of a {self.of} {t} must be {want}, got {have}"
            raise kind(f"{self.function}: {problem}, {here()}\n{advice}")
        return None if nothing else x

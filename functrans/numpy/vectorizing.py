"""Functions of single elements or vectors, made into functions of arrays.

In: a user's function of core arrays, arguments with further axes in front. The function is recorded
once, on one example; `Batching` rewrites it, an axis at a time, for all of them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from functrans import errors, pytrees
from functrans.ir.source import describe, user_source
from functrans.lax.control_flow import switch
from functrans.numpy import prims
from functrans.numpy.creation import array
from functrans.numpy.joining import unstack
from functrans.numpy.promotion import array_of, axis_index, broadcast_shape, cast, expand, invalid
from functrans.numpy.shaping import expand_dims, moveaxis
from functrans.trace import Recording, literal, materialize, state, tracing, typeof
from functrans.transforms.batch import Batching

__all__ = ["apply_along_axis", "apply_over_axes", "piecewise", "vectorize"]


def mapped(
    function: Callable[..., Any], args: Sequence[Any], dims: Sequence[int | None], size: int
) -> Any:
    """Do to every example along axes `dims` of the arguments (None: all have it) what `function`
    does to one; the results, one or a tuple, hold the examples along axis 0."""
    trace = Recording(state.trace)
    moving = [x for x, d in zip(args, dims, strict=True) if d is not None]
    axes = [d for d in dims if d is not None]
    inputs = []
    for x, d in zip(moving, axes, strict=True):
        t = typeof(x)
        inputs.append(trace.new_input(t.update(shape=(*t.shape[:d], *t.shape[d + 1 :]))))
    examples = iter(inputs)
    with tracing(trace):
        given = zip(args, dims, strict=True)
        outs = function(*[x if d is None else next(examples) for x, d in given])
        several = isinstance(outs, (tuple, list))
        program = trace.close(inputs, [materialize(y) for y in (outs if several else [outs])])
    batching = Batching(size)
    results, found = batching.run(program, moving, axes)
    made = [materialize(batching.at(y, d, 0)) for y, d in zip(results, found, strict=True)]
    return tuple(made) if several else made[0]


# --- vectorize ------------------------------------------------------------------------------------

_ARGUMENT = r"\(\s*(?:\w+(?:\s*,\s*\w+)*)?\s*\)"
_SIGNATURE = re.compile(
    rf"\s*(?:{_ARGUMENT}(?:\s*,\s*{_ARGUMENT})*)?\s*->\s*{_ARGUMENT}(?:\s*,\s*{_ARGUMENT})*\s*"
)
Names = list[tuple[str, ...]]


def _parse(signature: str) -> tuple[Names, Names]:
    """The names of the core axes of arguments and results: `(m,n),(n)->(m)`."""
    if not _SIGNATURE.fullmatch(signature):
        raise invalid(
            "vectorize", f"{signature!r} is not a signature",
            "A signature names the core axes of arguments and results: '(m,n),(n)->(m)'.",
        )  # fmt: skip
    sides = signature.split("->")
    inputs, outputs = (
        [tuple(re.findall(r"\w+", one)) for one in re.findall(_ARGUMENT, side)] for side in sides
    )
    return inputs, outputs


def vectorize(
    pyfunc: Callable[..., Any], *, excluded: Collection[int | str] = frozenset(),
    signature: str | None = None,
) -> Callable[..., Any]:  # fmt: skip
    """Make a function of arrays of one of scalars, or of small arrays, with NumPy's broadcasting.

    Arguments:
      pyfunc: function of positional arguments.
      excluded: positions and names of arguments that it gets as they are.
      signature: the core axes of arguments and results, e.g. "(n),(n)->()"; None: all are scalars.

    Returns:
      The function of arrays. The axes of its arguments in front of the core axes are broadcast, and
      stand in front of those of the results.

    Raises:
      InvalidArgument: the signature cannot be read.

    Source: `jax.numpy.vectorize`.

    Example:
      >>> import functrans.numpy as jnp
      >>> dot = jnp.vectorize(lambda x, y: (x * y).sum(), signature="(n),(n)->()")
      >>> print(dot(jnp.ones((3, 2)), jnp.ones(2)))
      [2. 2. 2.]
    """
    left_out = set(excluded)
    for one in left_out:
        if not isinstance(one, (int, str)) or (isinstance(one, int) and one < 0):
            raise errors.NotAnArray(
                f"vectorize: excluded holds positions and names of arguments, got {one!r}, at\n"
                f"    {describe(user_source())}"
            )
    names = None if signature is None else _parse(signature)

    @functools.wraps(pyfunc)
    def over_arrays(*args: Any, **kwargs: Any) -> Any:
        unknown = set(kwargs) - left_out
        if unknown:
            raise errors.TypeMismatch(
                f"vectorize: keyword arguments {sorted(unknown)} would have to be mapped over, at\n"
                f"    {describe(user_source())}\nPass them by position, or name them in excluded=."
            )
        places = [i for i in range(len(args)) if i not in left_out]

        def core(*mapped_args: Any) -> Any:
            given = list(args)
            for i, x in zip(places, mapped_args, strict=True):
                given[i] = x
            return pyfunc(*given, **kwargs)

        return _broadcast(core, [array_of(args[i], "vectorize", i) for i in places], names)

    return over_arrays


def _broadcast(function: Callable[..., Any], args: list[Any], names: Any) -> Any:
    """`function` mapped over all axes in front of the core axes of the arguments."""
    inputs: Names = [()] * len(args) if names is None else names[0]
    if len(inputs) != len(args):
        raise errors.TypeMismatch(
            f"vectorize: the signature has {len(inputs)} arguments, got {len(args)}, at\n"
            f"    {describe(user_source())}"
        )
    sizes = _core_sizes(args, inputs)
    types = [typeof(x) for x in args]
    front = [t.shape[: t.ndim - len(c)] for t, c in zip(types, inputs, strict=True)]
    shape = broadcast_shape(front, "vectorize", types, errors.InvalidArgument)
    checked = functools.partial(_checked, function, None if names is None else names[1], sizes)
    # axes of size 1 are dropped, as their example is the same for all; then an axis at a time
    ready = []
    for x, f in zip(args, front, strict=True):
        ones = tuple([i for i, n in enumerate(f) if n == 1 and shape[len(shape) - len(f) + i] != 1])
        ready.append(prims.squeeze(x, dimensions=ones) if ones else x)
    return _over_axes(checked, ready, front, shape)


def _over_axes(
    function: Callable[..., Any], args: list[Any], front: list[tuple[int, ...]],
    shape: tuple[int, ...],
) -> Any:  # fmt: skip
    if not shape:
        return function(*args)
    n = len(shape)
    has = [len(f) == n and (f[0] == shape[0]) for f in front]
    rest = [f[1:] if len(f) == n else f for f in front]

    def inner(*examples: Any) -> Any:
        return _over_axes(function, list(examples), rest, shape[1:])

    return mapped(inner, args, [0 if h else None for h in has], shape[0])


def _core_sizes(args: Sequence[Any], inputs: Names) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for x, core in zip(args, inputs, strict=True):
        shape = typeof(x).shape
        if len(shape) < len(core):
            raise invalid("vectorize", f"{typeof(x)} has too few axes for the core axes {core}")
        for name, n in zip(core, shape[len(shape) - len(core) :], strict=True):
            if sizes.setdefault(name, n) != n:
                raise invalid("vectorize", f"core axis {name!r} has sizes {sizes[name]} and {n}")
    return sizes


def _checked(
    function: Callable[..., Any], outputs: Names | None, sizes: dict[str, int], *args: Any
) -> Any:
    """The results on one example, which must be as the signature says."""
    out = function(*args)
    several = isinstance(out, (tuple, list))
    outs = [array_of(y, "vectorize") for y in (out if several else [out])]
    wanted = [()] * len(outs) if outputs is None else outputs
    if len(wanted) != len(outs):
        raise errors.TypeMismatch(
            f"vectorize: the signature has {len(wanted)} results, the function gave {len(outs)}, at"
            f"\n    {describe(user_source())}"
        )
    known = dict(sizes)
    for y, core in zip(outs, wanted, strict=True):
        shape = typeof(y).shape
        if len(shape) != len(core) or any(
            known.setdefault(c, n) != n for c, n in zip(core, shape, strict=True)
        ):
            raise invalid(
                "vectorize", f"the function gave {typeof(y)} where the core axes are {core}"
            )
    return tuple(outs) if several else outs[0]


# --- along axes -----------------------------------------------------------------------------------


def apply_along_axis(
    func1d: Callable[..., Any], axis: int, arr: Any, *args: Any, **kwargs: Any
) -> Any:
    """Apply a function of vectors to all vectors along an axis.

    Arguments:
      func1d: (vector, *args, **kwargs) -> array of any shape, which takes the place of the axis,
        or a tree of such arrays.
      axis: along which the vectors lie.
      arr: array.

    Source: `jax.numpy.apply_along_axis`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.apply_along_axis(jnp.sum, 0, jnp.ones((3, 2))))
      [3. 3.]
    """
    arr = array_of(arr, "apply_along_axis", 2)
    shape = typeof(arr).shape
    i = axis_index(axis, len(shape), "apply_along_axis")
    # the axes after that of the vectors are mapped over first, so that their results stand last
    arr = moveaxis(arr, i, -1)
    n = len(shape) - 1
    structure: list[Any] = []  # of what func1d returns

    def over(level: int, x: Any) -> tuple[Any, ...]:
        if level == n:
            leaves, tree = pytrees.flatten(func1d(x, *args, **kwargs))
            structure.append(tree)
            return tuple(leaves)
        return mapped(functools.partial(over, level + 1), [x], [0], typeof(x).shape[0])

    def in_place(out: Any) -> Any:
        """[before, after, made...] -> [before, made..., after]"""
        out = array_of(out, "apply_along_axis")
        made = typeof(out).ndim - n
        order = (*range(i), *range(n, n + made), *range(i, n))
        return prims.transpose(out, permutation=order) if order != tuple(range(n + made)) else out

    made = [in_place(x) for x in over(0, arr)]
    return pytrees.unflatten(structure[0], made)


def apply_over_axes(func: Callable[[Any, int], Any], a: Any, axes: Sequence[int]) -> Any:
    """Apply a function of an array and an axis for each of several axes, one after the other.

    Arguments:
      func: (array, axis) -> array with as many axes, or without that one.
      a: array.
      axes: of a.

    Source: `jax.numpy.apply_over_axes`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.apply_over_axes(jnp.sum, jnp.ones((3, 2)), [0, 1]))
      [[6.]]
    """
    a = array_of(a, "apply_over_axes", 1)
    for axis in axes:
        b = array_of(func(a, axis), "apply_over_axes")
        missing = typeof(a).ndim - typeof(b).ndim
        if missing == 1:
            b = expand_dims(b, axis)
        elif missing:
            raise invalid(
                "apply_over_axes", f"the function made {typeof(b)} of {typeof(a)}",
                "It must keep the number of axes, or drop the one.",
            )  # fmt: skip
        a = b
    return a


def piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Any:
    """At each place the function, or value, of the last condition that holds there.

    Arguments:
      x: array.
      condlist: conditions, arrays of truth values that broadcast to x's shape.
      funclist: a function of one element or a value for each, and possibly one more for places
        where none holds (0 otherwise); the results have x's dtype.
      args, kw: for the functions.

    Source: `jax.numpy.piecewise`.

    Example:
      >>> import functrans.numpy as jnp
      >>> x = jnp.array([-2.0, 1.0])
      >>> print(jnp.piecewise(x, [x < 0, x >= 0], [lambda v: -v, 5.0]))
      [2. 5.]
    """
    x = array_of(x, "piecewise")
    t = typeof(x)
    rows = condlist if isinstance(condlist, (list, tuple)) else unstack(array(condlist))
    conditions = [expand(array(c, dtype=bool), t.shape) for c in rows]
    if len(funclist) == len(conditions):
        funclist = [*funclist, 0]
    if len(funclist) != len(conditions) + 1:
        raise invalid("piecewise", f"{len(conditions)} conditions for {len(funclist)} functions")

    def branch(function: Any) -> Callable[[Any], Any]:
        def one(v: Any) -> Any:
            made = function(v, *args, **kw) if callable(function) else function
            return materialize(cast(array(made), t.dtype))

        return one

    which = literal(len(conditions), t.update(dtype=np.dtype("int32"), weak_type=False))
    for k, condition in enumerate(conditions):
        which = prims.select_n(condition, which, literal(k, typeof(which)))
    branches = [branch(f) for f in funclist]
    return vectorize(lambda i, v: switch(i, branches, v))(materialize(which), x)

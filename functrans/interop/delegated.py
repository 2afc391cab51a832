"""Wrappers of JAX functions that our modules re-export.

In: a function of `jax.random`, `jax.scipy`, ... (loading.py). Out: a function with the same
signature and docstring, and our errors. Outside of traces a call is one dispatch; while tracing it
is one program per signature (jax_functions.py). A call that cannot be a program, because it takes a
function or needs concrete values, runs JAX's Python code through the bridge.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable
from typing import Any, NewType

import jax
import numpy as np
from jax._src.api import jit as jax_jit

from functrans import errors, runtime
from functrans.caching import Cache
from functrans.interop.jax_functions import JaxFunction
from functrans.ir.tracebacks import named_boundary
from functrans.mlir import MLIRError
from functrans.trace import Tracer, state

# Annotations of arguments that may be arrays or functions; all others are static.
_OPERAND = re.compile(r"_empty|Array|Any|float|complex|Callable")
_MAY_BE_FUNCTION = re.compile(r"_empty|Any|Callable")
# Parameters that may also be Python integers, which decide how JAX computes the result: a `shift`.
_MAY_BE_INTEGER = re.compile(r"(^|\| )int( \||$)|Sequence\[int\]")
# In the annotation of a result that is not an array.
_OF_PYTHON = re.compile(r"\b(bool|int|float|str|DType|Initializer|ConvDimensionNumbers)\b")
# Functions that read external data, the setting of the default kind of random keys, or which mesh is
# set, which must be read again in each call.
_READS = {"from_dlpack", "frombuffer", "fromfile", "fromiter", "fromstring", "load"}
_READS |= {"PRNGKey", "key", "wrap_key_data", "with_sharding_constraint"}
_READS |= {"empty_like"}  # on which devices its argument is
# Functions whose custom rule closes over an argument, which may not be a traced one of their program.
_CLOSES_OVER = {"pinv"}
_OF_SHAPES = re.compile("_shapes$|_shape_tuple$|_permutations$")  # names of functions of shapes
_PLACES = ("sharding", "device", "out_sharding")  # parameters that say where the result is
_Jitted: Any = jax_jit(lambda: 0).__class__
_REFUSED = (TypeError, ValueError, IndexError)


@runtime.answers("delegated")
def delegated(theirs: Any, name: str, module: str) -> Any:
    """Wrap a JAX function: same signature and docstring, our errors.

    Arguments:
      theirs: a function of `jax.numpy`, `jax.scipy`, ...
      name, module: its name and module here.

    Returns: a function like it; a class or constant, or a function not of JAX, unchanged.

    Example:
      >>> entr = delegated(jax.scipy.special.entr, "entr", "mine")
      >>> print(entr(1.0), entr.__module__)
      -0.0 mine
    """
    of_jax = str(getattr(theirs, "__module__", "")).startswith("jax.")
    if not of_jax or not _is_function(theirs):
        return theirs
    found = _Delegated(theirs)

    def call(*args: Any, **kwargs: Any) -> Any:
        return found(args, kwargs)

    functools.update_wrapper(call, theirs, updated=())
    shown = named_boundary(call, name)
    shown.clear_cache = found.clear  # type: ignore[attr-defined]
    shown.__module__ = module
    return shown


def _held(x: Any) -> Any:
    """Convert an object with `__jax_array__` to its array, since jit does not accept it."""
    given = getattr(x, "__jax_array__", None)  # None: a JAX tracer
    return x if given is None else given()


def _jaxs(x: Any) -> Any:
    """Return the JAX function of the same name as one of ours: JAX recognizes its own, such as
    `lax.add` in a reduction."""
    module = str(getattr(x, "__module__", ""))
    twin = sys.modules.get(f"jax{module.removeprefix('functrans')}")
    ours = module.startswith("functrans.") and _is_function(x)
    return getattr(twin, getattr(x, "__name__", ""), x) if ours else x


def _is_at_once(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether this call is evaluated eagerly while tracing (ensure_compile_time_eval)."""
    if not state.trace.evaluates:
        return False
    return not any([isinstance(x, Tracer) for x in jax.tree.leaves((args, kwargs))])


def _is_function(x: Any) -> bool:
    return callable(x) and not isinstance(x, (type, NewType))


class _Delegated(JaxFunction):
    """One JAX function with its programs; outside of traces, JAX's own function, jitted."""

    def __init__(self, fun: Callable[..., Any]):
        signature = inspect.signature(fun)
        notes = {n: str(p.annotation) for n, p in signature.parameters.items()}
        jitted = fun.__class__ is _Jitted
        if jitted:
            options = fun._jit_info.static_argnames  # type: ignore[attr-defined]
        else:
            known = getattr(fun, "nondiff_argnums", ())  # of a function with a custom rule
            options = tuple(
                [n for i, (n, note) in enumerate(notes.items()) if i in known or not _OPERAND.search(note)]
            )
        # name -> position of the parameters whose integers are static while tracing, and of static ones
        # that may be lists
        places = {n: i for i, n in enumerate(notes)}
        dynamic = notes.keys() - {*options, "seed"}
        self.integers = {n: places[n] for n in dynamic if _MAY_BE_INTEGER.search(notes[n])}
        lists = () if jitted else [n for n in options if "Sequence" in notes[n]]
        self.lists = {n: places[n] for n in lists}

        super().__init__(fun, None, options)
        self.takes_functions = any(map(_MAY_BE_FUNCTION.search, notes.values()))
        of_python = _OF_PYTHON.search(str(signature.return_annotation))
        of_python = of_python or _OF_SHAPES.search(self.name)
        self.in_python = not jitted and (bool(of_python) or self.name in _READS | _CLOSES_OVER)
        self.compiled = fun if jitted else jax_jit(fun, static_argnames=options)
        self.ways = (self.compiled, self.knowing, fun)
        # classes of the arguments -> index of the first way to try
        self.first = Cache("ways to call JAX's functions", 256)
        self.known: Any = jax_jit(fun)

    def clear(self) -> None:
        super().clear()
        self.known.clear_cache()

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if any([hasattr(x, "__jax_array__") for x in (*args, *kwargs.values())]):
            args = tuple([_held(x) for x in args])
            kwargs = {k: _held(x) for k, x in kwargs.items()}
        if self.lists and list in map(type, (*args, *kwargs.values())):
            args, kwargs = _changed(args, kwargs, self.lists, _tupled)
        given_functions = self.takes_functions and any(map(_is_function, (*args, *kwargs.values())))
        if given_functions or self.in_python:
            out = self.fun(*map(_jaxs, args), **{k: _jaxs(x) for k, x in kwargs.items()})
            return named_boundary(out, self.name) if inspect.isfunction(out) else out
        if state.trace is not None and not _is_at_once(args, kwargs):
            try:
                if self.integers:
                    return self.by_program(*_changed(args, kwargs, self.integers, _known_integers))
                return self.by_program(args, kwargs)
            except (errors.UnhashableStatic, errors.IntegerOverflow, errors.NotAnArray):
                return self.fun(*args, **kwargs)
        if kwargs and any([kwargs.get(name) is not None for name in _PLACES]):
            return self.fun(*args, **kwargs)  # jit would not commit the result to its devices
        if not self.first:  # all calls so far succeeded the first way
            try:
                return self.compiled(*args, **kwargs)
            except (OverflowError, MLIRError, *_REFUSED):
                pass
        classes = (*map(type, args), *kwargs, *map(type, kwargs.values()))
        first = self.first.get(classes) or 0
        for i, way in enumerate(self.ways[first:], first):
            try:
                out = way(*args, **kwargs)
            except OverflowError:  # a number of Python's, such as a shift, in more than 32 bits
                return self.fun(*args, **kwargs)
            except MLIRError as error:  # for example a negative size
                raise ValueError(str(error).rpartition(": ")[2]) from error
            except _REFUSED:  # it needs concrete values, or the arguments are wrong
                if i == len(self.ways) - 1:
                    raise
                continue
            if i > first:
                self.first.replace(classes, i)
            return out

    def knowing(self, *args: Any, **kwargs: Any) -> Any:
        """Call the JAX function compiled with integers, booleans and strings as static values."""
        return self.known(*map(_known, args), **{k: _known(x) for k, x in kwargs.items()})

    def with_values(
        self, error: Exception, leaves: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        args, kwargs = jax.tree.map(lambda x: x, (args, kwargs))  # without `_Known`
        return self.fun(*args, **kwargs)


def _changed(
    args: tuple[Any, ...], kwargs: dict[str, Any], places: dict[str, int], change: Callable[[Any], Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments with those of some parameters, of which `places` has the positions, changed."""
    positions = places.values()
    return (
        tuple([change(x) if i in positions else x for i, x in enumerate(args)]),
        {k: change(x) if k in places else x for k, x in kwargs.items()},
    )


class _Known(tuple[Any, ...]):
    """A Python value with its class: a pytree without leaves, so part of the treedef. Unflattened, it is the
    value itself: a `map` of a tree that holds it loses it."""

    __slots__ = ()


jax.tree_util.register_pytree_node(_Known, lambda x: ((), tuple(x)), lambda known, _: known[1])


def _known(x: Any) -> Any:
    """Return the arguments with integers, booleans and strings made part of the treedef."""
    kind = x.__class__
    if kind in (int, bool, str):
        return _Known((kind, x))
    if kind in (tuple, list):
        return kind([_known(v) for v in x])
    return {k: _known(v) for k, v in x.items()} if kind is dict else x


def _known_integers(x: Any) -> Any:
    return _known(int(x) if isinstance(x, np.integer) else x)


def _tupled(x: Any) -> Any:
    """Return a list and those inside as tuples, which are hashable."""
    return tuple(map(_tupled, x)) if isinstance(x, (list, tuple)) else x

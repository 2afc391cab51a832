"""A function of JAX's as one of ours, by its name alone.

In: a function of `jax.random`, `jax.scipy`, ... that a module of ours hands on (loading.py). Out: a
function with its signature and text, and our errors: one dispatch where nothing is recorded; where
something is, one program for each signature (jax_functions.py). A call that has none, because it
takes a function or needs values, runs in JAX's Python, through the bridge.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable
from typing import Any

import jax

from functrans import errors, runtime
from functrans.caching import Cache
from functrans.interop.jax_functions import JaxFunction
from functrans.ir.tracebacks import named_boundary
from functrans.mlir import MLIRError
from functrans.trace import Tracer, state

# Annotations of arguments that are, or may be, arrays or functions; all others are options.
_OPERAND = re.compile(r"_empty|Array|Any|float|complex|Callable")
_MAY_BE_FUNCTION = re.compile(r"_empty|Any|Callable")
# In the annotation of a result that is no array.
_OF_PYTHON = re.compile(r"\b(bool|int|float|str|DType|Initializer)\b")
# What reads from outside reads again with each call.
_READS = {"from_dlpack", "frombuffer", "fromfile", "fromiter", "fromstring", "load"}
_Jitted: Any = jax.jit(lambda: 0).__class__
_REFUSED = (TypeError, ValueError, IndexError)


@runtime.answers(runtime.delegated)
def delegated(theirs: Any, name: str, module: str) -> Any:
    """A function of JAX's as one of ours: its signature and text, our errors.

    Arguments:
      theirs: a function of `jax.numpy`, `jax.scipy`, ...
      name, module: what it is called here, and where.

    Returns: a function like it; what is no function of JAX's, a class or a constant, as it is.

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
    """The array that an object says it is, which jit does not take."""
    given = getattr(x, "__jax_array__", None)  # None: a tracer of JAX's
    return x if given is None else given()


def _jaxs(x: Any) -> Any:
    """JAX's function for one of ours of that name: it knows its own, such as lax.add in a fold."""
    module = str(getattr(x, "__module__", ""))
    twin = sys.modules.get(f"jax{module.removeprefix('functrans')}")
    ours = module.startswith("functrans.") and _is_function(x)
    return getattr(twin, getattr(x, "__name__", ""), x) if ours else x


def _is_at_once(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Is what touches no traced value computed, not recorded (ensure_compile_time_eval)?"""
    if not getattr(state.trace, "at_once", False):
        return False
    return not any([isinstance(x, Tracer) for x in jax.tree.leaves((args, kwargs))])


def _is_function(x: Any) -> bool:
    return callable(x) and not isinstance(x, type)


class _Delegated(JaxFunction):
    """One function of JAX's with its programs; un-jitted it is JAX's own, jitted if it was not."""

    def __init__(self, fun: Callable[..., Any]):
        signature = inspect.signature(fun)
        notes = {n: str(p.annotation) for n, p in signature.parameters.items()}
        jitted = fun.__class__ is _Jitted
        if jitted:
            options = fun._jit_info.static_argnames  # type: ignore[attr-defined]
        else:
            known = getattr(fun, "nondiff_argnums", ())  # of a function with a rule
            options = tuple([
                n for i, (n, note) in enumerate(notes.items())
                if i in known or not _OPERAND.search(note)
            ])  # fmt: skip
        super().__init__(fun, None, options)
        self.takes_functions = any(map(_MAY_BE_FUNCTION.search, notes.values()))
        of_python = _OF_PYTHON.search(str(signature.return_annotation))
        self.in_python = not jitted and (bool(of_python) or self.name in _READS)
        self.compiled = fun if jitted else jax.jit(fun, static_argnames=options)
        self.ways = (self.compiled, self.knowing, fun)
        # for the classes of the arguments: which way is the first
        self.first = Cache("ways to call JAX's functions", 256)

        def read(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            args, kwargs = jax.tree.map(_read, (args, kwargs), is_leaf=_is_known)
            return fun(*args, **kwargs)

        read.__name__ = self.name
        self.known: Any = jax.jit(read)

    def clear(self) -> None:
        super().clear()
        self.known.clear_cache()

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if any([hasattr(x, "__jax_array__") for x in (*args, *kwargs.values())]):
            args = tuple([_held(x) for x in args])
            kwargs = {k: _held(x) for k, x in kwargs.items()}
        given_functions = self.takes_functions and any(map(_is_function, (*args, *kwargs.values())))
        if given_functions or self.in_python:
            out = self.fun(*map(_jaxs, args), **{k: _jaxs(x) for k, x in kwargs.items()})
            return named_boundary(out, self.name) if inspect.isfunction(out) else out
        if state.trace is not None and not _is_at_once(args, kwargs):
            try:
                return self.by_program(args, kwargs)
            except (errors.UnhashableStatic, errors.IntegerOverflow, errors.NotAnArray):
                return self.fun(*args, **kwargs)
        if kwargs and kwargs.get("sharding") is not None:
            return self.fun(*args, **kwargs)  # jitted, an array is not bound to its devices
        if not self.first:  # all calls so far went the first way
            try:
                return self.compiled(*args, **kwargs)
            except (OverflowError, MLIRError, *_REFUSED):
                pass
        classes = (*map(type, args), *kwargs, *map(type, kwargs.values()))
        first = self.first.get(classes) or 0
        for i, way in enumerate(self.ways[first:], first):
            try:
                out = way(*args, **kwargs)
            except OverflowError:  # a number of Python's, such as a seed, in more than 32 bits
                return self.fun(*args, **kwargs)
            except MLIRError as error:  # such as a negative size
                raise ValueError(str(error).rpartition(": ")[2]) from error
            except _REFUSED:  # it needs values, or says what is wrong
                if i == len(self.ways) - 1:
                    raise
                continue
            if i > first:
                self.first.replace(classes, i)
            return out

    def knowing(self, *args: Any, **kwargs: Any) -> Any:
        """JAX's function, compiled for the integers, truth values and names that it is given."""
        return self.known(_known(args), _known(kwargs))

    def with_values(
        self, error: Exception, leaves: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        return self.fun(*args, **kwargs)


class _Known(tuple[Any, ...]):
    """A value of Python's, with its class, that is part of the structure of the arguments."""

    __slots__ = ()


jax.tree_util.register_pytree_node(_Known, lambda x: ((), tuple(x)), lambda x, _: _Known(x))


def _known(x: Any) -> Any:
    """Arguments in which the integers, truth values and names are part of the structure."""
    kind = x.__class__
    if kind in (int, bool, str):
        return _Known((kind, x))
    if kind in (tuple, list):
        return kind([_known(v) for v in x])
    return {k: _known(v) for k, v in x.items()} if kind is dict else x


def _is_known(x: Any) -> bool:
    return x.__class__ is _Known


def _read(x: Any) -> Any:
    return x[1] if x.__class__ is _Known else x

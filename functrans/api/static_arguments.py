"""Static arguments, and tracing a function over its dynamic ones. `jit`, `make_ir`, `eval_shape`
and the tools of `inspect` all trace here."""

from __future__ import annotations

import functools
import inspect
import itertools
import operator
import weakref
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import jax
import numpy as np

from functrans import errors, runtime
from functrans import pytrees as tree
from functrans.ir.program import Arguments, Parameters, Program
from functrans.ir.source import brief, describe, here
from functrans.ir.types import ArrayType
from functrans.lax.arguments import check_fits
from functrans.primitives.distributed.sharding import typed_by_jax
from functrans.pytrees.functions import FlatFunction, argument_names, function_name
from functrans.records import NamedTuple
from functrans.trace import AnyTracer, Tracer, leaked, stage, state, typeof
from functrans.tracer import check_kept, is_jax_tracer, not_an_array, type_like


class Staged(NamedTuple):
    """A program, the values of its inputs, and the treedef of its result."""

    program: Program
    leaves: list[Any]
    out_tree: Any


class StaticArguments:
    """The static arguments of a function, by position and by name. `option`: how their options begin."""

    def __init__(self, fun: Any, argnums: Any, argnames: Any, option: str = "static"):
        self._fun = weakref.ref(fun) if fun.__class__ is FunctionType else lambda: fun
        signature = self.signature
        parameters = signature.parameters.values() if signature is not None else ()
        self.positional: list[str] = [
            p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        positional = self.positional
        rest = [p.name for p in parameters if p.kind is p.VAR_POSITIONAL]
        numbers, names = self._given(option, argnums, argnames)
        self.names: set[str] = names
        self.numbers: set[int] = numbers
        # where `jit` is given both, neither is inferred from the other, as in JAX
        if argnums is None or argnames is None or option != "static":
            self.names = names | {n for i, n in enumerate(positional) if i in numbers}
            self.numbers = numbers | {positional.index(n) for n in names if n in positional}
        dynamic = tuple([name for i, name in enumerate(positional) if i not in self.numbers])
        self.parameters: Parameters = Parameters(dynamic, *rest)

    def _given(self, option: str, argnums: Any, argnames: Any) -> tuple[set[int], set[str]]:
        """Return the positions and names that a user gave by `{option}_argnums` and `{option}_argnames`;
        raise an error for arguments that the function does not have."""
        numbers = _numbers(f"{option}_argnums", argnums)
        names = _names(f"{option}_argnames", argnames)
        signature = self.signature if numbers or names else None
        n = len(self.positional)  # those before -n are among *args: they count from the end of a call
        if signature is not None:
            parameters = signature.parameters
            kinds = [p.kind for p in parameters.values()]
            # of custom rules JAX ignores names that the function does not have
            accepts_any = inspect.Parameter.VAR_KEYWORD in kinds or option == "nondiff"
            wrong: dict[str, set[Any]] = {
                "nums": set() if inspect.Parameter.VAR_POSITIONAL in kinds else numbers - {*range(-n, n)},
                "names": set() if accepts_any else names - parameters.keys(),
            }
            has = [f"{i} ({name})" for i, name in enumerate(self.positional)]
            has += [k for k, p in parameters.items() if p.kind is p.KEYWORD_ONLY]
            for kind, those in wrong.items():
                if those:
                    raise errors.InvalidArgument(
                        f"{option}_arg{kind}={', '.join(map(repr, sorted(those)))}: "
                        f"{function_name(self.fun)} has no such argument, {here()}\n"
                        f"Its arguments are {', '.join(has) or 'no arguments'}."
                    )
        return {i + n if -n <= i < 0 else i for i in numbers}, names

    def donates(self, argnums: Any, argnames: Any) -> bool:
        """Return whether arguments are donated; raise an error for unknown or static ones."""
        numbers, names = self._given("donate", argnums, argnames)
        if numbers & self.numbers:
            raise errors.InvalidArgument(
                f"argument {min(numbers & self.numbers)} of {function_name(self.fun)} is both "
                f"static and donated, {here()}\n"
                "A static argument is a Python value, which has no buffer to donate."
            )
        return bool(numbers or names)

    @property
    def fun(self) -> Callable[..., Any]:
        """The function. A plain Python function is held weakly; the object `jit` returned holds it."""
        return self._fun()  # type: ignore[return-value]

    @property
    def signature(self) -> inspect.Signature | None:
        """The signature of the function. Not cached, since it holds the default values."""
        try:
            return inspect.signature(self.fun)
        except (TypeError, ValueError):
            return None

    def numbers_of(self, args: Sequence[Any]) -> set[int]:
        """Return the positions of the static ones among the arguments of a call."""
        return {i + len(args) if i < 0 else i for i in self.numbers}

    def split(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Return a key of the static arguments, and `(dynamic args, dynamic kwargs)`."""
        if not self.names and not self.numbers:
            return (), (args, kwargs)
        numbers = self.numbers_of(args)
        static_args = tuple([(i, x) for i, x in enumerate(args) if i in numbers])
        static_kwargs = tuple([(k, v) for k, v in sorted(kwargs.items()) if k in self.names])
        dynamic = tuple([x for i, x in enumerate(args) if i not in numbers])
        named = {k: v for k, v in kwargs.items() if k not in self.names}
        return (static_args, static_kwargs), (dynamic, named)

    def bound(self, static: tuple[Any, ...]) -> Callable[..., Any]:
        """Return the function of the dynamic arguments only."""
        if not static:
            return self.fun
        static_args, static_kwargs = static

        @functools.wraps(self.fun)
        def call(*args: Any, **kwargs: Any) -> Any:
            return self.fun(*joined(static_args, args), **kwargs, **dict(static_kwargs))

        signature = self.signature
        if signature is not None:  # error messages name the arguments of `call` by it
            bound = self.names | {self.positional[i] for i, _ in static_args if i < len(self.positional)}
            left = [p for p in signature.parameters.values() if p.name not in bound]
            call.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return call

    def check(self, static: tuple[Any, ...]) -> None:
        """Raise UnhashableStatic if one of the static arguments that `split` found is not hashable."""
        for name, value in itertools.chain(*static):
            try:
                hash(value)
            except TypeError:
                plain = value.__class__.__repr__ is object.__repr__
                shown = "an object" if plain else brief(value)
                raise errors.UnhashableStatic(
                    f"static argument {name!r} of {function_name(self.fun)} is {shown} of type "
                    f"{type(value).__qualname__}, which is not hashable, {here()}\n"
                    f"{_hashable_instead(value)}"
                ) from None

    def traced(
        self,
        static: tuple[Any, ...],
        in_tree: Any,
        types: Sequence[ArrayType],
        run: Callable[..., Program] = stage,
    ) -> tuple[Program, Any]:
        """Trace the function for dynamic arguments; return the program and the treedef of its result."""
        flat = FlatFunction(self.bound(static), in_tree)
        program = run(flat, types, function_name(self.fun).rpartition(".")[2])
        program.arguments = Arguments(self.parameters, in_tree, program.inputs, flat.out_tree)
        return program, flat.out_tree

    def staged(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Staged:
        """Trace the function for the arguments of one call."""
        static, dynamic = self.split(args, kwargs)
        self.check(static)
        leaves, in_tree = tree.flatten(dynamic)
        types = [type_like(x) for x in leaves]
        if state.trace is None and typed_by_jax(leaves):
            program, out_tree = self.traced(static, in_tree, leaves, runtime.stage_by_jax)
        else:
            program, out_tree = self.traced(static, in_tree, types)
        return Staged(program, leaves, out_tree)


def joined(static_args: Sequence[tuple[int, Any]], args: Sequence[Any]) -> list[Any]:
    """Merge static arguments, with their positions, and dynamic ones into the full list."""
    full = list(args)
    for i, x in static_args:
        full.insert(i, x)
    return full


def _numbers(option: str, argnums: Any) -> set[int]:
    if argnums is None:
        return set()
    try:
        listed = list(argnums) if isinstance(argnums, (set, frozenset)) else argnums
        return {operator.index(i) for i in np.atleast_1d(listed)}
    except TypeError:
        raise errors.TypeMismatch(
            f"{option} takes the positions of arguments, got {brief(argnums)}, {here()}\n"
            f"For names, use {option.replace('nums', 'names')}."
        ) from None


def _names(option: str, argnames: Any) -> set[str]:
    try:
        listed = [argnames] if isinstance(argnames, str) else list(argnames or ())
        if all([isinstance(name, str) for name in listed]):
            return set(listed)
        raise TypeError
    except TypeError:
        raise errors.TypeMismatch(
            f"{option} takes the names of arguments, got {brief(argnames)}, {here()}\n"
            f"For positions, use {option.replace('names', 'nums')}."
        ) from None


def _hashable_instead(value: Any) -> str:
    """Suggest what to pass instead of a static argument that is not hashable."""
    if isinstance(value, AnyTracer):
        return (
            "It is traced, so it has no value yet: make it static in the enclosing function too, "
            "or do not make it static here."
        )
    if isinstance(value, (list, dict, set, np.ndarray, jax.Array)):
        return "Pass a tuple for a list, a number for an array, or do not make it static."
    return (
        "Static arguments are cache keys: define __hash__ and __eq__, or register the class as a "
        "pytree (tree_util.register_dataclass) and do not make it static."
    )


# --- errors of a call -----------------------------------------------------------------------------


def explain_arguments(
    error: Exception, statics: StaticArguments, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Raise one of our errors if the arguments caused `error`, which JAX raised."""
    static, dynamic = statics.split(args, kwargs)
    statics.check(static)
    if isinstance(error, jax.errors.UnexpectedTracerError):
        _check_captured(statics.staged(args, kwargs).program, str(error))
    leaves = tree.leaves(dynamic)
    numbers = statics.numbers_of(args)
    traced = [(i, x) for i, x in enumerate(args) if i not in numbers]
    names = argument_names(statics.fun, traced, dynamic[1])
    for x, name in zip(leaves, names, strict=True):
        if isinstance(x, Tracer):
            raise leaked(x) from None
        check_kept(x)
        if isinstance(x, jax.Ref):
            continue
        try:
            typeof(x)
        except errors.SymbolicSize:
            return
        except errors.NotAnArray:
            raise errors.NotAnArray(not_an_array(x, name)) from None
        if x.__class__ is int:
            check_fits(x, typeof(x))
    if "donate" in str(error):
        _check_distinct(leaves, names)


def _check_captured(program: Program, said: str) -> None:
    """Raise LeakedTracer if a program captured a tracer of JAX, whose transformation has ended."""
    kept = {v for v, x in zip(program.constants, program.values, strict=True) if is_jax_tracer(x)}
    for e in program.equations:
        for v in kept.intersection(e.inputs):
            raise errors.LeakedTracer(
                f"a JAX tracer {v.type} was used after its transformation had ended, at\n"
                f"    {describe(e.source)}\nJAX says: {said}"
            ) from None


def _check_distinct(leaves: Sequence[Any], names: Sequence[str]) -> None:
    first: dict[int, int] = {}
    for i, x in enumerate(leaves):
        j = first.setdefault(id(x), i)
        if j != i and isinstance(x, jax.Array):
            raise errors.DonatedTwice(
                f"{names[j]} and {names[i]} are the same array {typeof(x)}, whose buffer was donated, "
                f"{here()}\nPass a copy as one of them (jnp.array(x)), or do not donate it."
            ) from None

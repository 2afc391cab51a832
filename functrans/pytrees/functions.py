"""Convert a user's function of pytrees to a function of flat lists of values."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax

from functrans import errors
from functrans import pytrees as tree
from functrans.ir.source import brief_with_type, definition, describe, here, is_users, location, user_source
from functrans.ir.tracebacks import frames, guarded, raised_at
from functrans.runtime import F
from functrans.tracer import CALLS, Tracer, typeof

_UNNAMED = "<unnamed function>"  # as in JAX, what a transformation makes of a callable object
_NEEDS_VALUE = {  # JAX's error -> ours
    jax.errors.TracerBoolConversionError: errors.AbstractBoolError,
    jax.errors.TracerIntegerConversionError: errors.AbstractIndexError,
    jax.errors.TracerArrayConversionError: errors.AbstractArrayError,
    jax.errors.ConcretizationTypeError: errors.AbstractValueError,
    jax.errors.NonConcreteBooleanIndexError: errors.NonConcreteMask,
}
_NEED_VALUES = tuple(_NEEDS_VALUE)


class FlatFunction:
    """A user's function of pytrees as one of flat lists; `out_tree` is set when it is called. With
    `has_aux` its result is `(out, aux)`: the tracers among the leaves of aux follow those of out; its
    other leaves may be any objects."""

    __slots__ = ("aux", "fun", "has_aux", "in_tree", "named", "out_tree")

    def __init__(self, fun: Callable[..., Any], in_tree: Any, named: Any = None, has_aux: bool = False):
        self.fun: Callable[..., Any] = fun
        self.named: Any | Callable[..., Any] = named or fun  # the function named in messages
        self.in_tree: Any = in_tree
        self.out_tree: Any = None
        self.has_aux: bool = has_aux
        self.aux: Any = None

    def __call__(self, *leaves: Any) -> list[Any]:
        args, kwargs = tree.unflatten(self.in_tree, leaves)
        out = whole = self.run(args, kwargs)
        if self.has_aux:
            if not isinstance(whole, (tuple, list)) or len(whole) != 2:
                raise errors.NotAnArray(
                    f"with has_aux=True, {function_name(self.named)} must return a pair (out, aux), "
                    f"got {_kind_of(whole)}, {here()}\nReturn (loss, aux), or leave out has_aux."
                )
            out, self.aux = whole = tuple(whole)
        outs, self.out_tree = tree.flatten(out)
        for i, y in enumerate(outs):
            check_result(self.named, y, whole, i)
        if self.has_aux:
            outs += [x for x in tree.leaves(self.aux) if isinstance(x, Tracer)]
        return outs

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function; translate JAX's errors about unknown values."""
        try:
            return self.fun(*args, **kwargs)
        except _NEED_VALUES as error:
            if isinstance(error, errors.FunctransError):
                raise
            raise needs_value(error) from error


def _kind_of(result: Any) -> str:
    try:
        return str(typeof(result))
    except errors.NotAnArray:
        return f"a {type(result).__name__}"


def needs_value(error: Exception, name: str = "", static: str = "static_argnums") -> Exception:
    """Return our error for one of a JAX function that needs the concrete value of a tracer. `name`:
    that function, if known. `static`: the option that marks its arguments static."""
    users = [(tb.tb_frame.f_code, tb.tb_lasti, "") for tb in frames(error) if is_users(tb.tb_frame.f_code)]
    source = users[-1] if users else user_source()
    lines = [line for line in str(error).split("\n")[:2] if line and not line.startswith("See ")]
    said = "".join(lines) if lines[-1].startswith(" (") else lines[-1]  # which says what the value is for
    kinds = [ours for theirs, ours in _NEEDS_VALUE.items() if isinstance(error, theirs)]
    return (kinds or [errors.AbstractValueError])[0](
        f"{f'{name} needs' if name else 'JAX needs'} the concrete value of an array, but only its "
        f"type is known, at\n    {describe(source)}\n"
        f"JAX says: {said}\n"
        f"Mark the argument that it comes from as static ({static}), or fix the size of the result "
        "(size=, length=, num_segments=) if the function takes it."
    )


def argument_names(
    fun: Any, numbered: Iterable[tuple[int, Any]], kwargs: Mapping[str, Any] | None = None
) -> list[str]:
    """Return a name per leaf of the arguments of a call, for messages: `state['w']`, or `args[2]` of
    one that `fun` does not name. `numbered`: the positional arguments with their positions."""
    try:
        own = inspect.unwrap(fun, stop=_takes_its_own)
        parameters = [*inspect.signature(own, follow_wrapped=False).parameters.values()]
    except (TypeError, ValueError):
        parameters = []
    known = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = [p.name for p in parameters if p.kind is p.VAR_POSITIONAL]

    def named(i: int) -> str:
        if 0 <= i < len(known):
            return known[i]
        return f"{rest[0]}[{i - len(known)}]" if rest and i >= 0 else f"args[{i}]"

    given = [(named(i), x) for i, x in numbered]
    given += sorted((kwargs or {}).items())
    return [name for what, x in given for name in tree.path_names(x, what)]


def _takes_its_own(fun: Any) -> bool:
    """Return whether a wrapper has parameters of its own, not those of what it wraps: a user's, or one with
    static arguments."""
    return hasattr(fun, "__signature__") or (hasattr(fun, "__code__") and is_users(fun.__code__))


def _named_leaves(call: dict[str, Any]) -> tuple[Any, list[str]]:
    """Return the leaves of a call of a FlatFunction, and their names from the function's parameters."""
    flat, leaves = call["self"], call["leaves"]
    args, kwargs = tree.unflatten(flat.in_tree, leaves)
    return leaves, argument_names(flat.named, enumerate(args), kwargs)


CALLS[FlatFunction.__call__.__code__] = _named_leaves


def refused(error: TypeError, fun: Any) -> bool:
    """Return whether the error is that `fun` does not accept the arguments, not one raised inside it."""
    last = raised_at(error)
    outside = last is not None and not is_users(last.tb_frame.f_code)
    return outside and str(error).startswith(f"{function_name(fun)}() ")


def check_result(fun: Callable[..., Any], y: Any, out: Any, i: int) -> None:
    """Raise the error for a result that is not an array."""
    try:
        typeof(y)
    except errors.NotAnArray:
        path = tree.path_names(out, "result")[i]
        code = getattr(_innermost(inspect.unwrap(fun)), "__code__", None)
        where = "called" if code is None else "defined"
        line = describe(user_source()) if code is None else definition(code)
        said = f"{function_name(fun)} returned {brief_with_type(y)} at {path}; a transformed function must "
        said += f"return arrays, scalars or pytrees of them. It is {where} at\n    {line}"
        if isinstance(y, jax.Ref):
            raise errors.InvalidArgument(f"{said}\nReturn the value of the reference, ref[...].") from None
        raise errors.NotAnArray(said) from None


def update_wrapper(made: Any, fun: Any, **how: Any) -> None:
    """Do what `functools.update_wrapper` does; a `partial` has the name of its function, as in JAX."""
    functools.update_wrapper(made, fun, **how)
    if not hasattr(fun, "__name__"):
        made.__name__ = made.__qualname__ = getattr(_innermost(fun), "__name__", _UNNAMED)


def named_after(fun: Any) -> Callable[[F], F]:
    """Decorate what a transformation makes of the user's function: it has its name, docstring and
    signature, and its errors show none of our frames."""

    def decorate(made: F) -> F:
        call: Any = guarded(made)
        update_wrapper(call, fun)
        call.made = made  # for tools
        return call

    return decorate


def function_name(fun: Any) -> str:
    """Return the name of a function; for a `partial` that of its function, for an object its class's."""
    fun = _innermost(fun)
    if getattr(fun, "__name__", "") == _UNNAMED:
        return function_name(fun.__wrapped__)
    name = getattr(fun, "__qualname__", None) or getattr(fun, "__name__", None)
    return name or type(fun).__qualname__


def where_defined(fun: Any) -> str:
    """Return the source line where a function is defined; its name if it has none."""
    code = getattr(_innermost(inspect.unwrap(fun)), "__code__", None)
    return function_name(fun) if code is None else location((code, 0, ""))


def _innermost(fun: Any) -> Any:
    """Return the function of a `partial`, and of what `jax.grad` makes of one and its `argnums`; another
    function as it is."""
    while True:
        if isinstance(fun, functools.partial):
            fun = fun.func
        elif getattr(fun, "__qualname__", None) == "argnums_partial2.<locals>.f_wrapped":
            fun = inspect.getclosurevars(fun).nonlocals["f"]
        else:
            return fun

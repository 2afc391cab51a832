"""Tracebacks that show only the user's frames.

In: an exception that leaves this package. Out: the same, without our frames and those of JAX below
us; `FUNCTRANS_TRACEBACK=full` in the environment keeps them, for debugging. `named_boundary` adds
the user's call to an error that does not mention it.

Every public entry point ends with `except Exception as error: hide_frames(error); raise`, which
costs nothing unless an exception is raised. `boundary` wraps functions that do not write this out.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable
from types import FrameType, FunctionType, TracebackType
from typing import Any, TypeVar

import jax
import numpy as np

from functrans import errors
from functrans.flags import flags
from functrans.ir.source import brief, here, is_library, is_users
from functrans.ir.types import ArrayType

if os.environ.get("FUNCTRANS_TRACEBACK") == "full" and "JAX_TRACEBACK_FILTERING" not in os.environ:
    flags.update("jax_traceback_filtering", "off")

_KEYS = (
    "The key is the first argument. Create one with random.key(seed), and new ones from it "
    "with random.split(key).\n"
)
_SIZES = (
    "Only the types of traced values are known. Mark the argument that the size comes from as static "
    "(static_argnums), or use a fixed size and a mask.\n"
)
_F = TypeVar("_F", bound=Callable[..., Any])
_NOTE = "(frames of functrans and JAX are hidden: FUNCTRANS_TRACEBACK=full shows them)"
_NOTE_OF_JAX = "JAX has removed its internal frames"


def hide_frames(error: BaseException) -> None:
    """Remove our frames from the tracebacks of an error, its causes and contexts."""
    if os.environ.get("FUNCTRANS_TRACEBACK") == "full":
        return
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        e = waiting.pop()
        if e is None or id(e) in seen:
            continue
        seen.add(id(e))
        waiting += [e.__cause__, e.__context__]
        _tell(e)
        e.__traceback__ = _of_users(e.__traceback__)


def _of_users(tb: TracebackType | None) -> TracebackType | None:
    """Drop our frames and JAX's, and those of machinery (functools, NumPy) that these called.
    Frames that the user's code calls directly are kept."""
    kept = []
    hidden = True
    while tb is not None:
        code = tb.tb_frame.f_code
        hidden = is_library(code) or (hidden and not is_users(code))
        if not hidden:
            kept.append(tb)
        tb = tb.tb_next
    for t in reversed(kept):
        tb = TracebackType(tb, t.tb_frame, t.tb_lasti, t.tb_lineno)
    return tb


def frames(error: BaseException) -> list[TracebackType]:
    """Return the entries of an error's traceback, the innermost last."""
    found, tb = [], error.__traceback__
    while tb is not None:
        found.append(tb)
        tb = tb.tb_next
    return found


def raised_at(error: BaseException) -> TracebackType | None:
    """Return the innermost frame of an error's traceback."""
    return next(reversed(frames(error)), None)


def _tell(error: BaseException) -> None:
    """Note that frames are hidden, if the error was raised in them and is not ours; drop JAX's own note."""
    notes = getattr(error, "__notes__", None)
    if notes is not None:
        notes[:] = [n for n in notes if _NOTE_OF_JAX not in n]
    last = raised_at(error)
    if isinstance(error, errors.FunctransError) or last is None or not is_library(last.tb_frame.f_code):
        return
    if notes is None or _NOTE not in notes:
        error.add_note(_NOTE)


def boundary(function: _F) -> _F:
    """Wrap a public function so that its errors show none of our frames."""
    made = guarded(function)
    functools.update_wrapper(made, function)
    return made


def guarded(function: _F) -> _F:
    """Do as `boundary`, where nobody reads the name and the docstring: wrapping costs a quarter."""

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            hide_frames(error)
            raise

    return call  # type: ignore[return-value]


# Errors of Python, NumPy or JAX that our functions let through -> our class for them.
_OURS = {
    TypeError: errors.TypeMismatch,
    ValueError: errors.InvalidArgument,
    IndexError: errors.InvalidIndex,
    OverflowError: errors.IntegerOverflow,
    NotImplementedError: errors.UnsupportedChoice,
    ZeroDivisionError: errors.DivisionByZero,
    np.exceptions.AxisError: errors.AxisOutOfBounds,
    AttributeError: errors.NotAnArray,
    jax.dtypes.TypePromotionError: errors.ImplicitPromotion,
    AssertionError: errors.InvalidArgument,
}


_OF_WORDS = {
    "every element be nonnegative": errors.NegativeSize,
    "The 'out' argument": errors.NotSupported,
    "Unsupported dtype": errors.UnsupportedDtype,
    "Unrecognized padding type": errors.UnknownPadding,
    "must have an integer type": errors.NotIntegers,
    "unbound axis name": errors.UnboundAxis,
    "tuple index out of range": errors.AxisOutOfBounds,  # of a shape
    "assignment index out of range": errors.AxisOutOfBounds,
}


def our_class(error: Exception) -> type[Exception] | None:
    """Return our class for an error; a more specific one if its message says so."""
    found = _OURS.get(type(error))
    words = str(error) if found is not None or type(error) in (NameError, RuntimeError) else ""
    return next((c for said, c in _OF_WORDS.items() if said in words and issubclass(c, type(error))), found)


def named_boundary(function: _F, name: str | None = None) -> _F:
    """Wrap a function that users call by `name` in a `boundary`. Its errors mention that name and
    the arguments of the call. An error of Python, NumPy or JAX raised below us becomes one of ours;
    an error raised in a user's function stays as it is."""
    own = function.__name__
    name = own if name is None else name

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except LeftToJax as left:
            theirs = left.theirs
        except Exception as error:
            if name != own:
                _rename(error, own, name)
            found = _with_call(error, name, args, kwargs)
            try:
                if found is error:
                    raise
                raise found from error
            finally:
                hide_frames(found)
        return _by_jax(theirs, args, kwargs)

    call.__name__ = call.__qualname__ = name
    return call  # type: ignore[return-value]


class LeftToJax(Exception):
    """Ends a call of one of our functions, in whose place its `named_boundary` calls JAX's."""

    def __init__(self, theirs: Callable[..., Any]):
        self.theirs: Callable[..., Any] = theirs


def leave_to_jax() -> None:
    """If the user called one of our functions that JAX has too, run JAX's instead. The call is found
    on the stack, so nothing is paid for this elsewhere."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if is_users(code) or code is _by_jax.__code__:
            return
        if code.co_name == "call" and code.co_filename == __file__ and "own" in frame.f_locals:
            theirs = _of_jax(frame.f_locals["function"].__module__, frame.f_locals["name"])
            if theirs is not None:
                raise LeftToJax(theirs)
        frame = frame.f_back


def _of_jax(module: str, name: str) -> Any:
    """Return JAX's function of a name for a module of ours (`functrans.numpy.ufuncs`), or None."""
    package, _, inside = module.partition(".")
    theirs = sys.modules.get(f"jax.{inside.split('.')[0]}")
    return getattr(theirs, name, None) if package == "functrans" else None


def _by_jax(theirs: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return theirs(*args, **kwargs)


def _with_call(error: Exception, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the error, or one of ours in its place, that describes the call. Its traceback begins
    with the frame of a boundary."""
    found, ours = error, our_class(error)
    if (ours or isinstance(error, errors.FunctransError)) and _came_from_below(error):
        if ours:
            found = ours(_told(name, error, args, kwargs))
        else:
            _complete(error, name, args, kwargs)
    return found


def _rename(error: Exception, own: str, name: str) -> None:
    """Replace a function's name at the start of an error message by the name it was called by."""
    text = error.args[0] if error.args else None
    if isinstance(text, str) and re.match(rf"{own}\b", text):
        error.args = (name + text.removeprefix(own), *error.args[1:])


def _came_from_below(error: Exception) -> bool:
    """Return whether an error was raised below our function, and not in a user's."""
    below = frames(error)[1:]  # the first frame is `call`
    if not below:  # its frames are hidden already, or Python rejected the arguments
        return isinstance(error, errors.FunctransError)
    return not any(is_users(tb.tb_frame.f_code) for tb in below)


def _told(name: str, error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    texts = [x for x in error.args if isinstance(x, str)]
    said = str(error) if error.args[:1] == tuple(texts[:1]) else " ".join(texts)
    first, *rest = said.strip().split("\n")
    if first.endswith("verifier errors:") and rest:
        first = rest[0].strip()
    if our_class(error) is errors.AxisOutOfBounds and " index out of range" in first:
        first = f"an axis is out of bounds ({first})"
    if our_class(error) is errors.NotSupported:
        first = f"out= is not supported, as arrays are immutable ({first.rstrip('.')})"
    advice = _KEYS if re.search("PRNG key (type|data)", first) else ""
    advice = _SIZES if "using `static_argnums`" in said else advice
    unbound = re.match(r"Found an unbound axis name: (\S+)\.", first)
    if unbound:
        first = f"no axis of the name {unbound[1]} is in scope"
        advice = f"Call it inside a function that is mapped with vmap(f, axis_name={unbound[1]!r}).\n"
    if "not supported between instances of" in first:
        first = f"an argument is of the wrong type ({first})"
    what = first.rstrip(".") or "does not take these arguments"
    what = what if what.startswith(f"{name}()") else f"{name}: {what}"
    what += "".join(re.findall(r" \(it depends on [^()]*\)$", said))
    return f"{what}, {here()}\n{advice}{_call(name, args, kwargs)}"


def _complete(error: Exception, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Add the call to an error of ours, unless it already names the function and its array types,
    or is about a function that was passed as an argument."""
    text, given = str(error), [*args, *kwargs.values()]
    first = text.split("\n")[0]  # the rest may quote the user's line
    functions = [x for x in given if callable(x) and not isinstance(x, type)]
    if functions:
        names = [name, *[getattr(f, "__name__", name) for f in functions]]
        said = any(word in first for word in names)
    else:
        said = name in first and all(str(t) in text for x in given if (t := _type(x)) is not None)
    alone = re.sub(r"\nCalled as .*$", "", text)  # drop the call added by an inner function
    if (alone != text or not said) and text in error.args:
        error.args = (f"{alone}\n{_call(name, args, kwargs)}", *error.args[1:])


def _call(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    given = ", ".join([*map(_shown, args), *[f"{k}={_shown(x)}" for k, x in kwargs.items()]])
    return f"Called as {name}({given})."


def _type(x: Any) -> ArrayType | None:
    """Return the type of an array or tracer, or None."""
    if isinstance(getattr(x, "type", None), ArrayType):
        return x.type
    if isinstance(getattr(x, "shape", None), tuple) and hasattr(x, "dtype"):
        return ArrayType(x.shape, x.dtype, getattr(x, "weak_type", False))
    return None


def _shown(x: Any) -> str:
    """Show an argument in a message; an array by its type."""
    if isinstance(x, (list, tuple)):
        inside = ", ".join(map(_shown, x[:8])) + ", ..." * (len(x) > 8)
        return f"[{inside}]" if isinstance(x, list) else f"({inside}{',' * (len(x) == 1)})"
    t = _type(x)
    if t is None and isinstance(x, (FunctionType, type)):
        return x.__name__
    return brief(x) if t is None else str(t)


def shown(package: str, name: str, value: Any) -> Any:
    """Wrap a function of our modules in a `named_boundary` for export by a package. Our own calls
    use the defining module and skip the wrapper."""
    if not isinstance(value, FunctionType) or not value.__module__.startswith("functrans"):
        return value
    made = named_boundary(value, name)
    made.__module__ = package  # for pickle
    return made

"""Explanations of why a jitted function was traced again.

Each trace, that is each cache miss, adds a record of the function and its arguments, keyed by where
the function is defined. An explanation lists the differences from the most similar earlier record.
With `FUNCTRANS_EXPLAIN_CACHE=1` in the environment, explanations are logged as warnings to the
logger `functrans.cache`; otherwise at level DEBUG.
"""

from __future__ import annotations

import functools
import itertools
import logging
import os
import weakref
from collections import deque
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import jax
import numpy as np

from functrans import pytrees as tree
from functrans.caching import Cache
from functrans.flags import DECISIVE, flags
from functrans.ir.source import Source, brief, describe, is_library, line_of, location, user_source
from functrans.ir.types import ArrayType
from functrans.records import NamedTuple
from functrans.trace import Tracer, typeof

_KEPT = 64  # records per function
_logger = logging.getLogger("functrans.cache")
serials: Iterator[int] = itertools.count()  # of calls of `jit`, and of function objects


class Value(NamedTuple):
    """A part of a cache key: what is shown of it, and what identifies it, for an array its type."""

    shown: Any
    identity: Any

    def __str__(self) -> str:
        return str(self.shown)


class Record(NamedTuple):
    """One trace of a function."""

    jitted: int  # serial number of the call of `jit`
    function: int  # serial number of the function object
    number: int  # index among the traces of functions defined here, from 1
    source: Source | None  # where it was called
    nested: bool  # called while another function was traced
    structures: dict[str, Value]  # treedef of each argument, by name
    leaves: dict[str, Value]  # by argument name and path
    passed: dict[str, Value]  # how each argument was passed
    closure: dict[str, Value]
    flags: dict[str, Value]


class TraceInfo(NamedTuple):
    """One trace: its number, the user line of the call, and the reasons (none for the first)."""

    number: int
    file: str
    line: int
    where: str
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        reasons = "".join(f"\n  - {r}" for r in self.reasons) or "\n  - first trace"
        return f"trace {self.number}, called at\n    {self.where}{reasons}"


class History:
    """The records of the functions defined at one source location."""

    def __init__(self, name: str, defined: str):
        self.name = name
        self.defined = defined
        self.count = 0
        self.records: deque[Record] = deque(maxlen=_KEPT)

    def explained(self) -> tuple[TraceInfo, ...]:
        """Return what is said of each stored record."""
        records = list(self.records)
        return tuple([_told(made, records[:i]) for i, made in enumerate(records)])


# Lasting: `clear_caches` does not empty this log, since it is one of the reasons it reports.
_HISTORIES = Cache("records of traces", 1024, lasting=True)


def codes(fun: Any) -> tuple[CodeType, ...]:
    """Return the code objects of a function and of those it wraps, from the outside in."""
    calls = [(f, vars(type(f)).get("__call__")) for f in _wrapped(fun)]  # of callable objects
    found = [getattr(f, "__code__", None) or getattr(call, "__code__", None) for f, call in calls]
    return tuple([code for code in found if code is not None])


def _wrapped(fun: Any) -> Iterator[Any]:
    """Return a function and those it wraps, from the outside in."""
    for _ in range(100):
        yield fun
        fun = getattr(fun, "__wrapped__", None) or getattr(fun, "func", None)
        if fun is None:
            return


def _defined_at(code: CodeType) -> Any:
    """Return what identifies a definition; what is typed at a prompt has no line of its own."""
    if code.co_filename.startswith("<"):
        return code
    return code.co_filename, code.co_firstlineno, code.co_qualname


def history_of(fun: Any) -> History:
    """Return the history of all functions defined at the same location as `fun`."""
    chain = codes(fun)
    key = tuple([_defined_at(c) for c in chain]) or repr(fun)
    found = _HISTORIES.get(key)
    if found is None:
        name = getattr(fun, "__qualname__", None) or (chain[-1].co_qualname if chain else repr(fun))
        defined = location((chain[-1], 0, "")) if chain else "<unknown>"
        found = _HISTORIES.keep(key, History(name, defined))
    return found


# --- recording ------------------------------------------------------------------------------------


def record(serial: int, statics: Any, args: tuple[Any, ...], kwargs: dict[str, Any], nested: bool) -> None:
    """Record that the function with these static arguments is traced for these arguments."""
    fun = statics.fun
    history = history_of(fun)
    history.count += 1
    signature = _signature(statics, args, kwargs)
    flagged = {name: _value(getattr(flags, name)) for name in DECISIVE}
    source = user_source()
    made = Record(serial, _number(fun), history.count, source, nested, *signature, _closure(fun), flagged)
    before = list(history.records)
    history.records.append(made)
    loud = os.environ.get("FUNCTRANS_EXPLAIN_CACHE", "0") not in ("", "0")
    level = logging.WARNING if loud and before else logging.DEBUG
    if _logger.isEnabledFor(level):
        _logger.log(level, "%s, %s", history.name, _told(made, before))


def _reasons(made: Record, before: list[Record]) -> list[str]:
    """Return the differences from the most similar earlier trace."""
    if not before:
        return [] if made.number == 1 else ["earlier traces were not kept"]
    nearest = min([why(made, r) for r in reversed(before)], key=_distance)
    return nearest or [_hidden_reason(made)]


def _distance(reasons: list[str]) -> tuple[int, int, int]:
    """Return a sort key: fewer reasons first, then fewer arguments that only one call has."""
    absent = [r for r in reasons if r.endswith(("not there", "not given")) or ": gone, was" in r]
    return len(reasons), len(absent), len("".join(reasons))


def _told(made: Record, before: list[Record]) -> TraceInfo:
    """Return what is said of a trace, after those before it."""
    source = made.source
    place = ("<unknown>", 0) if source is None else (source[0].co_filename, line_of(source))
    return TraceInfo(made.number, *place, describe(source), tuple(_reasons(made, before)))


_NUMBERS: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


def _number(fun: Any) -> int:
    """Return a serial number of a function object, unique even if its `id` is reused."""
    try:
        return _NUMBERS.setdefault(fun, next(serials))
    except TypeError:  # not hashable or not weakly referenceable
        return next(serials)


def _signature(
    statics: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[dict[str, Value], dict[str, Value], dict[str, Value]]:
    """Return by name each argument's treedef, the types or static values in it, and how it was passed."""
    names = statics.positional
    given = {names[i] if i < len(names) else f"args[{i}]": x for i, x in enumerate(args)}
    static = statics.numbers_of(args)
    fixed = {name for i, name in enumerate(given) if i in static} | statics.names
    structures: dict[str, Value] = {}
    leaves: dict[str, Value] = {}
    passed: dict[str, Value] = {}
    for name, x in {**given, **kwargs}.items():
        how = "passed by name" if name in kwargs else "passed by position"
        passed[name] = Value(how, how)
        if name in fixed:
            value = _value(x, static=True)
            leaves[name] = value._replace(shown=f"the static value {value.shown}")
            continue
        found, structure = tree.flatten(x)
        structures[name] = Value(structure, structure)
        leaves.update(zip(tree.path_names(x, name), map(_type, found), strict=True))
    return structures, leaves, passed


def _type(x: Any) -> Value:
    t = ArrayType(x.shape, x.dtype) if isinstance(x, jax.Ref) else typeof(x)
    return Value(t, t)


def _closure(fun: Any) -> dict[str, Value]:
    """Return the values that the user's function depends on besides its arguments: closure cells,
    defaults, scalar globals, `self`, and arguments of a partial."""
    found: dict[str, Value] = {}
    for f in _wrapped(fun):
        code = getattr(f, "__code__", None)
        if code is not None and not is_library(code):
            for name, cell in zip(code.co_freevars, getattr(f, "__closure__", None) or (), strict=False):
                found[name] = _cell(cell)
            defaults = getattr(f, "__defaults__", None) or ()
            named = code.co_varnames[: code.co_argcount]
            for name, x in zip(named[len(named) - len(defaults) :], defaults, strict=True):
                found[f"{name} (its default)"] = _value(x)
            for name in code.co_names:
                x = getattr(f, "__globals__", {}).get(name)
                if isinstance(x, (bool, int, float, complex, str)):
                    found[f"the global {name}"] = _value(x)
            if getattr(f, "__self__", None) is not None:
                found["self"] = _value(f.__self__)
        if isinstance(f, functools.partial):
            given = {**{f"args[{i}]": x for i, x in enumerate(f.args)}, **f.keywords}
            found.update({f"{name} of the partial": _value(x) for name, x in given.items()})
    return found


def _cell(cell: Any) -> Value:
    try:
        return _value(cell.cell_contents)
    except ValueError:  # an empty cell
        return Value("not assigned yet", None)


def _value(x: Any, static: bool = False) -> Value:
    """Return a Python value as text of bounded length, and what to compare it by. Only static
    values use their own `repr`: they are hashable, so not containers of arrays."""
    if isinstance(x, (bool, int, float, complex, str, bytes, type(None))):
        return Value(brief(x), (x.__class__, repr(x)))
    if isinstance(x, (jax.Array, np.ndarray, Tracer)):
        return Value(f"an array {x.dtype}{list(x.shape)}", id(x))
    if isinstance(x, (tuple, list)) and len(x) <= 8:
        parts = [_value(part, static) for part in x]
        text = ", ".join([p.shown for p in parts])
        return Value(f"{type(x).__name__}({text})", tuple([p.identity for p in parts]))
    kind = type(x).__qualname__
    if isinstance(x, (FunctionType, MethodType, ModuleType, type)):
        kind = f"{type(x).__name__} {getattr(x, '__qualname__', x.__name__)}"
    try:
        return Value(brief(x) if static else f"a {kind}", (type(x), hash(x)))
    except Exception:  # the user's own __repr__ or __hash__
        return Value(f"a {kind}", id(x))


# --- comparing ------------------------------------------------------------------------------------


def why(made: Record, before: Record) -> list[str]:
    """Return the differences from an earlier trace, one line each."""
    found = []
    if made.nested != before.nested:
        where = "inside another transformation" if made.nested else "outside any transformation"
        found.append(f"its first call {where}, which is traced separately")
    if made.jitted != before.jitted:
        found.append(_OTHER_OPTIONS if made.function == before.function else _OTHER_FUNCTION)
        found += _changed("{}, which it closes over", made.closure, before.closure)
    here, there = made.leaves, before.leaves
    for name, x in here.items():
        if name in there:
            found += _changed("{}", {name: x}, there)
        else:
            found.append(f"{name}: {x}, was {'not there' if '[' in name or '.' in name else 'not given'}")
    found += [f"{name}: gone, was {x}" for name, x in there.items() if name not in here]
    found += _changed("{}", made.passed, before.passed)
    # of an argument whose leaves have other names, the lines above say so already
    kept = [name for name in made.structures if _within(name, here) == _within(name, there)]
    found += _changed("the structure of {}", {n: made.structures[n] for n in kept}, before.structures)
    return found + _changed("the flag {}", made.flags, before.flags)


_OTHER_OPTIONS = "jit was called again on the same function with different options"
_OTHER_FUNCTION = (
    "a new function object, defined at the same line: create it once, outside the loop or function that "
    "creates it, and pass what changes as arguments"
)


def _within(name: str, leaves: dict[str, Value]) -> list[str]:
    return [k for k in leaves if k.startswith(name)]


def _changed(label: str, now: dict[str, Value], before: dict[str, Value]) -> list[str]:
    """Return a line for each value of the same name that changed."""
    pairs = [(name, x, before[name]) for name, x in now.items() if name in before]
    return [
        f"{label.format(name)}: {x}, was {y}{_aspects(x, y)}"
        for name, x, y in pairs
        if x.identity != y.identity
    ]


def _aspects(now: Value, before: Value) -> str:
    """Return what to add about two different values."""
    x, was = now.identity, before.identity
    if not (isinstance(x, ArrayType) and isinstance(was, ArrayType)):
        return " (a different object)" if str(now) == str(before) else ""
    found = [f"different {what}" for what in ("shape", "dtype") if getattr(x, what) != getattr(was, what)]
    if x.weak_type != was.weak_type:
        kinds = ("a Python number", "an array")
        found.append("a weak type: {}, was {}".format(*kinds[:: 1 if x.weak_type else -1]))
    return f" ({', '.join(found)})"


def _hidden_reason(made: Record) -> str:
    """Return the reason to give when nothing that is recorded differs."""
    if made.nested:
        return (
            "the same arguments: it closes over a value of a transformation that has ended, a "
            "named axis differs, or the cache was cleared"
        )
    return "the same arguments: the cache was cleared, or a device, sharding, mesh or JAX setting differs"

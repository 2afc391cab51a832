"""Caches. Every cache of functrans is bounded, counts hits and misses, and is emptied by
`ft.clear_caches`.

    @cached(name, limit)          memoize a function of hashable arguments
    Cache(name, limit)            key -> value, where the key does not suffice to compute the value
    CachePerFunction(name, limit) a Cache per user function, freed with the function
    memo(program, derive, *key)   results derived from a program, stored on the program
    @memoized                     a function of a program whose results are stored so
    exactly(value)                a key of a static value: 1, True and 1.0 differ

Full caches evict the least recently used entries. `ft.doctor` and `report()` list all caches and count
that. A hit must cost no more than a dict look-up: an eager operation takes microseconds and makes
several.
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections.abc import Callable, Hashable
from typing import Any, Concatenate, ParamSpec, TypeVar, TypeVarTuple

import numpy as np

from functrans.records import NamedTuple

_turning = threading.RLock()  # reentrant: dropped values may run a user's `__del__`

P = ParamSpec("P")
R = TypeVar("R")
Key = TypeVarTuple("Key")


class Row(NamedTuple):
    """A row of `report`: the caches of one name. `limit` is that of each cache."""

    name: str
    entries: int
    limit: int
    hits: int
    misses: int
    evictions: int


_FUNCTIONS: list[_Function] = []
_CACHES: set[weakref.ref[Cache]] = set()


# --- functions of hashable arguments --------------------------------------------------------------


def cached(
    name: str, limit: int, lasting: bool = False
) -> Callable[[Callable[P, R]], functools._lru_cache_wrapper[R]]:
    """Memoize a function of hashable arguments, keeping at most `limit` results. `clear` does not empty
    a `lasting` one, for results that are costly, small and never stale."""

    def decorate(make: Callable[P, R]) -> functools._lru_cache_wrapper[R]:
        found = functools.lru_cache(limit)(make)
        _FUNCTIONS.append(_Function(name, limit, lasting, found))
        return found

    return decorate


class _Function(NamedTuple):
    """A memoized function, as `report` and `clear` see it."""

    name: str
    limit: int
    lasting: bool
    found: functools._lru_cache_wrapper[Any]

    def row(self) -> Row:
        info = self.found.cache_info()
        gone = max(0, info.misses - info.currsize)
        return Row(self.name, info.currsize, self.limit, info.hits, info.misses, gone)

    def clear(self) -> None:
        if not self.lasting:
            self.found.cache_clear()


# --- values by keys -------------------------------------------------------------------------------


class Cache:
    """A map from hashable keys to values, of at most `limit` entries. A value cannot be None.

    Entries live in two generations. Entries that are added or found go to `recent`. When that
    reaches half the limit it becomes the older generation, and the previous older one is dropped.
    Callers for which nanoseconds matter may read `recent` directly; that is not counted as a
    hit.
    """

    __slots__ = (
        "__weakref__",
        "_lasting",
        "_older",
        "evictions",
        "hits",
        "limit",
        "misses",
        "name",
        "recent",
    )

    def __init__(self, name: str, limit: int, lasting: bool = False):
        self.name: str = name
        self.limit: int = limit
        self._lasting = lasting
        self.recent: dict[Hashable, Any] = {}
        self._older: dict[Hashable, Any] = {}
        self.hits: int = 0
        self.misses: int = 0
        self.evictions: int = 0
        _CACHES.add(weakref.ref(self, _CACHES.discard))

    def __len__(self) -> int:
        return len(self.recent) + len(self._older)

    def get(self, key: Hashable) -> Any:
        found = self.recent.get(key)
        if found is None:
            return self._from_older(key)
        self.hits += 1
        return found

    def _from_older(self, key: Hashable) -> Any:
        found = self._older.pop(key, None)
        if found is None:
            self.misses += 1
            return None
        self.hits += 1
        return self.keep(key, found)

    def keep(self, key: Hashable, value: R) -> R:
        """Add a value and return it; if another thread added one first, return that."""
        kept = self.recent.setdefault(key, value)
        if 2 * len(self.recent) >= self.limit:
            self._turn()
        return kept

    def replace(self, key: Hashable, value: R) -> R:
        """Set the value of a key."""
        self.recent[key] = value
        return self.keep(key, value)

    def values(self) -> list[Any]:
        return [*self._older.copy().values(), *self.recent.copy().values()]

    def remove(self, is_gone: Callable[[Any], bool]) -> None:
        """Remove the values of which `is_gone` is true."""
        for entries in self._older, self.recent:
            for key in [key for key, value in entries.copy().items() if is_gone(value)]:
                entries.pop(key, None)

    def _turn(self) -> None:
        with _turning:
            if 2 * len(self.recent) < self.limit:
                return  # another thread did it
            gone, self._older, self.recent = self._older, self.recent, {}
            self.evictions += len(gone)
        _let_go(list(gone.values()))

    def row(self) -> Row:
        return Row(self.name, len(self), self.limit, self.hits, self.misses, self.evictions)

    def clear(self) -> None:
        """Empty the cache, unless it is lasting."""
        if not self._lasting:
            self._empty()

    def _empty(self) -> None:
        gone = self.values()
        self.recent, self._older = {}, {}
        _let_go(gone)

    def __del__(self, at_the_end: Callable[[], bool] = sys.is_finalizing) -> None:
        if (self.recent or self._older) and not at_the_end():
            self._empty()


def _let_go(values: list[Any]) -> None:
    """Remove the compiled functions from the programs among dropped values, and from those derived from
    them; not from programs that their equations call, which others may call too. JAX keeps a program
    that it compiled as long as the compiled function lives, and the program holds that function: a
    reference cycle through JAX's caches, which the garbage collector does not see."""
    seen: set[Derivable] = set()
    while values:
        x = values.pop()
        if isinstance(x, (tuple, list)):
            values += x
        elif isinstance(x, Derivable) and x._derived is not None and x not in seen:
            seen.add(x)
            x._derived.remove(lambda value: hasattr(value, "clear_cache"))
            values += x._derived.values()
        else:
            values += getattr(x, "owned_programs", ())


class CachePerFunction:
    """A Cache per user function (or other object), freed with it: its values must not refer to that."""

    __slots__ = ("_limit", "_name", "_of")

    def __init__(self, name: str, limit: int):
        self._name, self._limit = name, limit
        self._of: weakref.WeakKeyDictionary[Any, Cache] = weakref.WeakKeyDictionary()

    def of(self, function: Any) -> Cache:
        """Return the function's cache; a new one if it is not hashable or not weakly referenceable."""
        try:
            found = self._of.get(function)
            return self._of.setdefault(function, self._new()) if found is None else found
        except TypeError:
            return self._new()

    def _new(self) -> Cache:
        return Cache(self._name, self._limit)


# --- what is derived from a program ---------------------------------------------------------------

_DERIVED = 256  # per program: its batched forms for different sizes, ...
_NONE: Any = object()  # stands for a derived None


class Derivable:
    """Base of objects on which `memo` stores results: programs, rules."""

    __slots__ = ("__weakref__", "_derived")

    _derived: Cache | None

    def known(self, name: tuple[Any, ...]) -> Any:
        """Return the result stored under `(derive, *key)`, or None."""
        kept = self._derived
        return None if kept is None else kept.get(name)

    def keep(self, name: tuple[Any, ...], value: R) -> R:
        """Store a derived result."""
        kept = self._derived
        if kept is None:
            kept = self._derived = Cache("derived from programs", _DERIVED)
        return kept.keep(name, value)


D = TypeVar("D", bound=Derivable)


def memo(
    program: D, derive: Callable[[D, *Key], R], *key: *Key
) -> R:  # keys must be hashable, which a TypeVarTuple cannot express
    """Return `derive(program, *key)`, computed once and stored on the program."""
    name = (derive, *key)
    kept = program._derived
    found = None if kept is None else kept.get(name)
    if found is None:
        made = derive(program, *key)
        found = program.keep(name, _NONE if made is None else made)
    return None if found is _NONE else found  # type: ignore[return-value]


def memoized(derive: Callable[Concatenate[D, P], R]) -> Callable[Concatenate[D, P], R]:
    """Store the results of a function of a program, called by position, as `memo` does. It gets lists
    as tuples."""

    @functools.wraps(derive)
    def found(program: D, *key: Any) -> R:
        if list in map(type, key):
            key = tuple([tuple(k) if k.__class__ is list else k for k in key])
        return memo(program, derive, *key)

    return found  # type: ignore[return-value]


def memo_as(program: Derivable, name: tuple[Any, *tuple[Hashable, ...]], make: Callable[[], R]) -> R:
    """Return `make()`, stored on the program as `memo` does, for a `make` that is a closure of the
    caller. `name` begins with the function that computes the result."""
    found = program.known(name)
    return program.keep(name, make()) if found is None else found


# --- all of them ----------------------------------------------------------------------------------


def report() -> list[Row]:
    """Return a row per name, most entries first; caches of the same name are summed."""
    rows: dict[str, Row] = {}
    for listed in _all():
        row = listed.row()
        if row.name in rows:
            before = rows[row.name]
            counts = zip(before[1:], row[1:], strict=True)
            entries, _, *rest = [a + b for a, b in counts]
            row = Row(row.name, entries, row.limit, *rest)
        rows[row.name] = row
    return sorted(rows.values(), key=lambda row: (-row.entries, row.name))


def clear() -> None:
    """Empty all caches that are not lasting."""
    for listed in _all():
        listed.clear()


def exactly(x: Any) -> Any:
    """Return a key of a static value that distinguishes 1, True and 1.0, and 0.0 from -0.0."""
    if isinstance(x, tuple):
        return x.__class__, tuple([exactly(v) for v in x])
    if isinstance(x, np.ndarray):
        return x.shape, x.dtype, x.tobytes()
    if isinstance(x, frozenset):
        return x.__class__, frozenset([exactly(v) for v in x])
    return x.__class__, repr(x) if isinstance(x, (float, complex, np.generic)) else x


def _all() -> list[_Function | Cache]:
    alive = [ref() for ref in list(_CACHES)]
    return [*_FUNCTIONS, *[cache for cache in alive if cache is not None]]

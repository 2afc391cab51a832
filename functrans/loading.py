"""Lazy module attributes, and fallback to JAX for names that functrans does not define.

In: the imports of a package. Out: its `__getattr__` (PEP 562), `__dir__` and `__all__`, which import
a name when it is first asked for; then it is an ordinary attribute. Python's import locks make this
thread-safe. Type checkers and editors read the imports as any others.

A name that our module lacks is looked up in JAX's module of the same name (`functrans.lax`,
`jax.lax`). Functions in the packages of `_MADE_OURS` are wrapped as ours on first access
(interop/delegated.py, pytrees/checks.py). Everything else is returned as it is: functions that accept
our tracers unchanged (interop/bridge.py), classes, modules.
"""

from __future__ import annotations

import builtins
import difflib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import pkgutil
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

from functrans import runtime
from functrans.records import NamedTuple
from functrans.runtime import import_module

_OURS = "functrans"
_JAXS = "jax"
_NAMES = "functrans.jax_names"  # JAX's names for type checkers; they are handed on as all others
# package -> how its functions of JAX are made ours: the name of a function of `runtime`
_MADE_OURS = {"tree": "checked"} | dict.fromkeys(
    ("image", "lax", "nn", "numpy", "ops", "random", "scipy"), "delegated"
)
_noting = threading.RLock()  # held while Python's `__import__` is exchanged


class _Named(NamedTuple):
    """What is imported later: `from module import name`."""

    module: str
    name: str


class lazily:
    """Context manager: what a package imports inside it is imported when it is first asked for. Inside it
    `builtins.__import__` only notes what that package imports; imports of other modules go on as usual.

        with lazily(__name__):
            from functrans.api.jit import jit as jit

    Names of JAX's twin of the package are handed on (`_of_jax`), also those that are not imported. Of
    other modules from which all is imported, `*`, each is loaded in turn until its `__all__` has the name
    that is asked for.

    Arguments:
      package: its full name.
      shown: full name of a function `(package, name, value)` that maps each imported value to the
        value that users get.
    """

    def __init__(self, package: str, shown: str = ""):
        self._package, self._shown = package, shown
        self._namespace = vars(sys.modules[package])
        self._table: dict[str, _Named] = {}
        self._homes: list[str] = []

    def __enter__(self) -> None:
        _noting.acquire()
        self._import = builtins.__import__
        builtins.__import__ = self._noted

    def _noted(
        self, name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> Any:
        """Return, in place of a module that the package imports, one of which each name is `_Named`."""
        if globals is not self._namespace:  # another thread imports something else
            return self._import(name, globals, locals, fromlist, level)
        if fromlist == ("*",):
            if name not in (_name_of_twin(self._package), _NAMES):
                self._homes.append(name)
            return SimpleNamespace(__all__=())
        return SimpleNamespace(**{x: _Named(name, x) for x in fromlist})

    def __exit__(self, *_: object) -> None:
        builtins.__import__ = self._import
        _noting.release()
        self._table = {here: x for here, x in self._namespace.items() if x.__class__ is _Named}
        for here in self._table:
            del self._namespace[here]
        self._namespace.update(__getattr__=self._load, __dir__=self._listed)

    def _listed(self) -> list[str]:
        """Return what `dir` lists: the names of `import *`, JAX's modules, and the private names."""
        modules = pkgutil.iter_modules(getattr(_twin(self._package), "__path__", ()))
        public = {*self._all(), *[m.name for m in modules if m.name[0] != "_"]}
        return sorted(public.union([n for n in self._namespace if n[0] == "_"]))

    def _all(self) -> list[str]:
        """Return the names of `import *`: our names and JAX's, without our modules that were loaded."""
        names = {n for n, x in self._namespace.items() if not isinstance(x, ModuleType)}
        names.update(self._table, *[import_module(home).__all__ for home in self._homes])
        return sorted([n for n in names.union(dir(_twin(self._package))) if not n.startswith("_")])

    def _load(self, name: str) -> Any:
        package = self._package
        if name == "__all__":
            return self._all()
        found = self._table.get(name)
        if found is None:
            asked_by = sys._getframe(1).f_code.co_filename
            # `from package import name` asks, before it looks for a submodule of that name.
            if name.startswith("_") or asked_by.startswith("<frozen importlib"):
                raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
            homes = (home for home in self._homes if name in import_module(home).__all__)
            found = next((_Named(home, name) for home in homes), None)
        if found is None or found.module == _name_of_twin(package):
            return _of_jax(package, name, self._listed)
        if found.module == package:
            value = import_module(f"{package}.{found.name}")
        else:
            value = getattr(import_module(found.module), found.name)
            if self._shown:
                home, _, function = self._shown.rpartition(".")
                value = getattr(import_module(home), function)(package, name, value)
        self._namespace[name] = value
        return value


def hand_on(module: str) -> None:
    """Let a module of ours fall back to JAX's module of the same name.

    Arguments:
      module: its full name.

    Example:
      >>> import jax, functrans.scipy.special
      >>> print(functrans.scipy.special.entr(1.0))
      -0.0
    """
    with lazily(module):
        pass


# --- attributes -----------------------------------------------------------------------------------


def _name_of_twin(module: str) -> str:
    return _JAXS + module.removeprefix(_OURS)


def _twin(module: str) -> ModuleType | None:
    """Return JAX's module of the same name, or None. Waits if another thread is importing it."""
    name = _name_of_twin(module)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            return None
        raise  # the module exists, but a library it imports does not


def _of_jax(module: str, name: str, listed: Callable[[], list[str]]) -> Any:
    """Return a public attribute of JAX's module. `listed`: all names, for the error message."""
    twin = _twin(module)
    if twin is None:
        raise _missing(module, name, listed)
    value = vars(twin).get(name, twin)
    if isinstance(value, ModuleType) and _spec_of(f"{twin.__name__}.{name}"):
        try:
            value = importlib.import_module(f"{module}.{name}")
        except ImportError as error:
            raise AttributeError(f"module {module!r} cannot load {name!r}: {error}") from error
    elif value is twin:
        return _late(module, twin, name, listed)
    elif _how_made_ours(module):
        value = getattr(runtime, _how_made_ours(module))(value, name, module)
    vars(sys.modules[module])[name] = value
    return value


def _how_made_ours(module: str) -> str:
    """Return how JAX's functions in a module are made ours; "" if they stay as they are."""
    return _MADE_OURS.get(module.partition(".")[2].partition(".")[0], "")


def _late(module: str, twin: ModuleType, name: str, listed: Callable[[], list[str]]) -> Any:
    """Return what JAX's own `__getattr__` gives: a deprecated name, with JAX's warning attributed
    to the user's line, or JAX's error for a removed one."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            value = getattr(twin, name)
        except AttributeError as error:
            if f"has no attribute {name!r}" in str(error):
                raise _missing(module, name, listed) from None
            raise
    for warning in said:  # stacklevel 4 skips `_of_jax` and the module's `__getattr__`
        warnings.warn(warning.message, warning.category, stacklevel=4)
    return value


def _missing(module: str, name: str, listed: Callable[[], list[str]]) -> AttributeError:
    near = difflib.get_close_matches(name, [n for n in listed() if not n.startswith("_")], n=3)
    hint = f". Did you mean {' or '.join(map(repr, near))}?" if near else ""
    return AttributeError(f"module {module!r} has no attribute {name!r}{hint}", name=name)


# --- modules --------------------------------------------------------------------------------------


class _Modules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Import hook for `import functrans.experimental.ode`: a module that we lack is JAX's of that
    name, or one that falls back to it.

    It is installed twice. The first entry handles submodules of a package that is JAX's: Python
    would find their files and load them a second time. The last handles modules that no other
    finder found.
    """

    def __init__(self, last: bool):
        self.last = last

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name in _AWAITED and not self.last:
            acts = _AWAITED.pop(name)
            return _then(importlib.util.find_spec(name), acts)
        package, _, module = name.rpartition(".")
        if not package.startswith(_OURS) or module.startswith("_"):
            return None
        ours = sys.modules[package].__name__.startswith(_OURS)
        theirs = _name_of_twin(name)
        twin = _spec_of(theirs) if ours == self.last else None
        if twin is None:
            return None
        is_package = twin.submodule_search_locations is not None
        return importlib.machinery.ModuleSpec(name, self, origin=theirs, is_package=is_package)

    def exec_module(self, module: ModuleType) -> None:
        theirs = _name_of_twin(module.__name__)
        if _how_made_ours(module.__name__):
            module.__doc__ = f"The names of `{theirs}`."
            hand_on(module.__name__)
            return
        sys.modules[module.__name__] = importlib.import_module(theirs)


class Later(ModuleType):
    """A module that is imported when one of its attributes is first read.

    Example:
      >>> math = Later("math")
      >>> math.tau == 2 * math.pi
      True
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


_AWAITED: dict[str, list[Callable[[], object]]] = {}


def when_imported(module: str, act: Callable[[], object]) -> None:
    """Call `act` once a module of JAX is imported: now, if it already is.

    Example:
      >>> when_imported("jax", lambda: print("there"))
      there
    """
    if module in sys.modules:
        act()
    else:
        _AWAITED.setdefault(module, []).append(act)


def _then(
    spec: importlib.machinery.ModuleSpec | None, acts: Sequence[Callable[[], object]]
) -> importlib.machinery.ModuleSpec | None:
    """Return a module's spec that also runs the acts after the module is executed."""
    loader: Any = spec and spec.loader
    if loader is not None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            for act in acts:
                act()

        loader.exec_module = exec_module
    return spec


def _spec_of(module: str) -> importlib.machinery.ModuleSpec | None:
    try:
        return importlib.util.find_spec(module)
    except ModuleNotFoundError:  # its package does not exist
        return None


sys.meta_path.insert(0, _Modules(last=False))
sys.meta_path.append(_Modules(last=True))

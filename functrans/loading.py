"""Lazy module attributes, and fallback to JAX for names that functrans does not define.

In: a module's name, and where each of its attributes is defined. Out: its `__getattr__` (PEP 562),
`__dir__` and `__all__`. After the first access an attribute is an ordinary one. Python's import
locks make this thread-safe. Type checkers and editors read the imports under `if TYPE_CHECKING:`
instead; a test checks that the two agree.

A name that our module lacks is looked up in JAX's module of the same name (`functrans.lax`,
`jax.lax`). Functions in the packages of `_MADE_OURS` are wrapped as ours on first access
(interop/delegated.py). Everything else is returned as it is: functions that accept our tracers
unchanged (interop/bridge.py), classes, modules.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import pkgutil
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from functrans import runtime
from functrans.runtime import import_module

_OURS = "functrans"
_JAXS = "jax"
_MADE_OURS = {"image", "lax", "nn", "numpy", "ops", "random", "scipy"}


def lazily(
    package: str, where: Mapping[str, str], modules: str = "", shown: str = ""
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Make the `__getattr__`, `__dir__` and `__all__` of a package.

    Arguments:
      package: its full name.
      where: module -> names imported from it, separated by spaces. The entry of the package itself
        lists its submodules. `name=here` exports `name` as `here`.
      modules: submodules, separated by spaces, whose `__all__` the package exports too. They are
        imported in this order until one has the name that is asked for.
      shown: full name of a function `(package, name, value)` that maps each imported value to the
        value that users get.

    Returns: the three, to be assigned in the package.

    Example:
      >>> getattr_, dir_, all_ = lazily("functrans", {"math": "sqrt tau=turn", "functrans": "ir"})
      >>> all_, "turn" in dir_()
      (['sqrt', 'turn', 'ir'], True)
      >>> round(getattr_("turn"), 3)
      6.283
    """
    table: dict[str, tuple[str, str]] = {}
    for module, names in where.items():
        for word in names.split():
            name, _, here = word.partition("=")
            table[here or name] = (module, name)
    homes = [f"{package}.{module}" for module in modules.split()]
    namespace = sys.modules[package].__dict__

    def exported() -> list[str]:
        return [*table, *[name for home in homes for name in import_module(home).__all__]]

    def load(name: str) -> Any:
        if name == "__all__":  # of a module that falls back to JAX: the names of `import *`
            return [n for n in _listed(package, exported()) if not n.startswith("_")]
        found = table.get(name)
        if found is None:
            asked_by = sys._getframe(1).f_code.co_filename
            # `from package import name` asks, before it looks for a submodule of that name.
            if name.startswith("_") or asked_by.startswith("<frozen importlib"):
                raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
            found = next(((home, name) for home in homes if name in import_module(home).__all__), None)
        if found is None:
            return _of_jax(package, name, exported())
        module, attribute = found
        if module == package:
            value = import_module(f"{package}.{attribute}")
        else:
            value = getattr(import_module(module), attribute)
            if shown:
                home, _, function = shown.rpartition(".")
                value = getattr(import_module(home), function)(package, name, value)
        namespace[name] = value
        return value

    return load, lambda: _listed(package, exported()), list(table)


def hand_on(*modules: str) -> None:
    """Let modules of ours fall back to JAX's modules of the same names.

    Arguments:
      modules: their full names.

    Example:
      >>> import jax, functrans.scipy.special
      >>> print(functrans.scipy.special.entr(1.0))
      -0.0
    """
    for module in modules:
        load, listed, _ = lazily(module, {})
        vars(sys.modules[module]).update(__getattr__=load, __dir__=listed)


# --- attributes -----------------------------------------------------------------------------------


def _twin(module: str) -> ModuleType | None:
    """Return JAX's module of the same name, or None. Waits if another thread is importing it."""
    name = _JAXS + module.removeprefix(_OURS)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            return None
        raise  # the module exists, but a library it imports does not


def _of_jax(module: str, name: str, more: Sequence[str]) -> Any:
    """Return a public attribute of JAX's module. `more` are our names, for the error message."""
    twin = _twin(module)
    if twin is None:
        raise _missing(module, name, more)
    value = vars(twin).get(name, twin)
    if isinstance(value, ModuleType) and _has_module(twin, name):
        try:
            value = importlib.import_module(f"{module}.{name}")
        except ImportError as error:
            raise AttributeError(f"module {module!r} cannot load {name!r}: {error}") from error
    elif value is twin:
        return _late(module, twin, name, more)
    elif _is_made_ours(module):
        value = runtime.delegated(value, name, module)
    vars(sys.modules[module])[name] = value
    return value


def _is_made_ours(module: str) -> bool:
    """Return whether JAX's functions in a module are wrapped as ours."""
    return not _MADE_OURS.isdisjoint(module.split(".")[1:2])


def _late(module: str, twin: ModuleType, name: str, more: Any) -> Any:
    """Return what JAX's own `__getattr__` gives: a deprecated name, with JAX's warning attributed
    to the user's line, or JAX's error for a removed one."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            value = getattr(twin, name)
        except AttributeError as error:
            if f"has no attribute {name!r}" in str(error):
                raise _missing(module, name, more) from None
            raise
    for warning in said:  # stacklevel 4 skips `_of_jax` and the module's `__getattr__`
        warnings.warn(warning.message, warning.category, stacklevel=4)
    return value


def _has_module(twin: ModuleType, name: str) -> bool:
    path = getattr(twin, "__path__", None)
    return path is not None and importlib.util.find_spec(f"{twin.__name__}.{name}") is not None


def _missing(module: str, name: str, more: Any) -> AttributeError:
    names = [n for n in _listed(module, more) if not n.startswith("_")]
    near = difflib.get_close_matches(name, names, n=3)
    hint = f". Did you mean {' or '.join(map(repr, near))}?" if near else ""
    return AttributeError(f"module {module!r} has no attribute {name!r}{hint}", name=name)


def _listed(module: str, more: Sequence[str]) -> list[str]:
    """Return what `dir` lists for a module: our names, loaded or not, and JAX's."""
    names = {*vars(sys.modules[module]), *more}
    twin = _twin(module)
    if twin is not None:
        modules = pkgutil.iter_modules(getattr(twin, "__path__", ()))
        theirs = {*dir(twin), *[m.name for m in modules]}
        names |= {name for name in theirs if not name.startswith("_")}
    return sorted(names)


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
        theirs = _JAXS + name.removeprefix(_OURS)
        twin = _spec_of(theirs) if ours == self.last else None
        if twin is None:
            return None
        is_package = twin.submodule_search_locations is not None
        return importlib.machinery.ModuleSpec(name, self, origin=theirs, is_package=is_package)

    def exec_module(self, module: ModuleType) -> None:
        if _is_made_ours(module.__name__):
            module.__doc__ = f"The names of `{_JAXS}{module.__name__.removeprefix(_OURS)}`."
            hand_on(module.__name__)
            return
        theirs = _JAXS + module.__name__.removeprefix(_OURS)
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

"""Functions of upper layers that lower layers call.

Imports go from upper layers to lower ones only. The few calls in the other direction are of
functions of this module, each defined by a module of an upper layer (`@answers`), which is imported
when the function is first called.

Other modules fill tables of lower layers when they are imported, and `load` imports them before the
tables are read: the operators and methods of tracers before the first trace, the rules of our JAX
primitive before its first equation, all primitives before a program is parsed.
"""

from __future__ import annotations

import gc
import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

# The type of a function that is wrapped: mypy does not infer a lambda's type through a ParamSpec.
F = TypeVar("F", bound=Callable[..., Any])

# function -> the module that defines it, which is imported when the function is first asked for
_ANSWERING = {
    "run_operation": "functrans.backends.eager",  # (primitive, args, params), for trace.bind
    "transpose_program": "functrans.transforms.transpose",  # for primitives/custom/calls.py
    "run_in_numpy": "functrans.backends.reference",  # (program, arrays), for primitives/random
    "batch_program": "functrans.transforms.batch",  # for primitives/reductions and random
    "run_sharded": "functrans.interop.sharded_programs",  # for backends/xla.py, inside shard_map
    "stop_at_first": "functrans.inspect.nans",  # for backends/xla.py
    "show": "functrans.ir.text",  # for Program, as are the next two
    "draw": "functrans.inspect.draw",
    "coloured": "functrans.inspect.draw",
    "delegated": "functrans.interop.delegated",  # for loading.py, as is the next one
    "checked": "functrans.pytrees.checks",
    "at_by_jax": "functrans.interop.bridge",  # for `x.at` of numpy/indexing.py
    "jax_policy": "functrans.interop.jaxprs.calls",  # (policy), for primitives/calls/checkpoint.py
    "stage_by_jax": "functrans.interop.sharded_types",  # for where a function is traced
}
# what is read -> the modules that fill it, separated by spaces, until they are imported
waiting = {
    "operations": "functrans.primitives.catalogue",
    "tracers": "functrans.interop.bridge functrans.interop.transformations",
    "rules in JAX": "functrans.interop.jax_rules",
    "rules in checkify": "functrans.interop.checkify",
    "rules in key_reuse": "functrans.interop.key_reuse",
}


def import_module(name: str) -> ModuleType:
    """Import a module of ours, without collections of garbage in between.

    Modules make tens of thousands of objects that stay. After `import jax` they would cause a full
    collection, which takes as long as the import itself.

    Example:
      >>> import_module("functrans.lax").__name__
      'functrans.lax'
    """
    if not gc.isenabled():
        return importlib.import_module(name)
    try:
        gc.disable()
        return importlib.import_module(name)
    finally:
        gc.enable()


def load(purpose: str) -> None:
    """Import the modules for a purpose, unless that was done."""
    for module in waiting.get(purpose, "").split():
        import_module(module)
    waiting.pop(purpose, None)  # last, so that other threads also wait for the imports


def answers(name: str) -> Callable[[F], F]:
    """Return a decorator that makes a function the one of this name here.

    Example:
      >>> from functrans import runtime
      >>> from functrans.ir.text import show
      >>> runtime.show is show
      True
    """

    def fill(function: F) -> F:
        globals()[name] = function
        return function

    return fill


def __getattr__(name: str) -> Any:
    """Import the module that defines a function, and return the function."""
    if name not in _ANSWERING:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    import_module(_ANSWERING[name])
    return globals()[name]

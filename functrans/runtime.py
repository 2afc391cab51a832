"""Hooks: functions of upper layers that lower layers call.

Imports go from upper layers to lower ones only. The few calls in the other direction go through the
functions of this file, each implemented by a module of an upper layer (`@answers`), which is
imported when its hook is first called.

Other modules implement no hook, but fill tables of lower layers when they are imported, and `load`
imports them before the tables are read: the operators and methods of tracers before the first
trace, the rules of our JAX primitive before its first equation, all primitives before a program is
parsed.
"""

from __future__ import annotations

import gc
import importlib
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NoReturn, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

# hook, or what is read -> its modules (separated by spaces), until they are imported
waiting = {
    "run_operation": "functrans.backends.eager",  # called by trace.bind
    "transpose_program": "functrans.transforms.transpose",  # by primitives/custom/calls.py
    "batch_program": "functrans.transforms.batch",  # by primitives/reductions
    "run_sharded": "functrans.interop.sharded_programs",  # by backends/xla.py, inside shard_map
    "stop_at_first": "functrans.inspect.nans",  # by backends/xla.py
    "show": "functrans.ir.text",  # by Program, as are the next two
    "draw": "functrans.inspect.draw",
    "coloured": "functrans.inspect.draw",
    "delegated": "functrans.interop.delegated",  # by loading.py
    "at_by_jax": "functrans.interop.bridge",  # by `x.at` of numpy/indexing.py
    "stage_by_jax": "functrans.interop.sharded_types",  # where a function is traced
    "part_by_jax": "functrans.interop.sharded_types",  # by api/shard_map.py
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


def answers(question: Callable[..., Any]) -> Callable[[F], F]:
    """Return a decorator that makes a function the implementation of a hook of this file.

    Example:
      >>> from functrans.ir.text import show as answer
      >>> show is answer
      True
    """
    name = question.__name__

    def fill(function: F) -> F:
        globals()[name] = function
        return function

    return fill


def _answer(question: Callable[..., Any]) -> Callable[..., Any]:
    name = question.__name__
    load(name)
    found = globals()[name]
    assert found is not question, f"no room answers {name}"
    return found


def run_operation(primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
    """Run one primitive on concrete arrays, eagerly."""
    return _answer(run_operation)(primitive, args, params)


def transpose_program(program: Any, linear: tuple[Any, ...], ct_active: tuple[Any, ...]) -> Any:
    """Return the program from cotangents of the outputs to cotangents of the linear inputs."""
    return _answer(transpose_program)(program, linear, ct_active)


def batch_program(program: Any, size: int) -> Any:
    """Return the program for stacks of so many operands, with stacks of results."""
    return _answer(batch_program)(program, size)


def run_sharded(program: Any, operands: Sequence[Any], preparation: Any) -> list[Any]:
    """Run a program whose collectives use axes of an enclosing `jax.shard_map`."""
    return _answer(run_sharded)(program, operands, preparation)


def stop_at_first(program: Any, values: Sequence[Any]) -> NoReturn:
    """Raise NotFinite for the first equation that produces a NaN or an infinity."""
    raise _answer(stop_at_first)(program, values)


def delegated(theirs: Any, name: str, module: str) -> Any:
    """Wrap a function of JAX as one of ours."""
    return _answer(delegated)(theirs, name, module)


def at_by_jax(x: Any, index: Any) -> Any:
    """Return JAX's `x.at[index]`."""
    return _answer(at_by_jax)(x, index)


def stage_by_jax(function: Callable[..., Any], values: Sequence[Any], name: str) -> Any:
    """Let JAX trace a function, for arrays whose types have shardings; return its program."""
    return _answer(stage_by_jax)(function, values, name)


def part_by_jax(mapped: Callable[..., Any], types: Sequence[Any]) -> Any:
    """Let JAX trace a checked `shard_map`; return the function of one part, and what it captured."""
    return _answer(part_by_jax)(mapped, types)


def show(program: Any) -> str:
    """Return the text of a program."""
    return _answer(show)(program)


def draw(program: Any, path: Any) -> Any:
    """Draw the graph of a program into a file."""
    return _answer(draw)(program, path)


def coloured(program: Any) -> str:
    """Return the text of a program as HTML with syntax colours."""
    return _answer(coloured)(program)

"""What lower floors ask of upper ones.

Imports point down everywhere. A few questions go the other way: each is a function here, which an
upper room answers (`@answers`). Where that room stands says the root package, which alone knows all
rooms (`functrans/__init__.py`); it is loaded when it is first asked.

    lower room                         asks                     answered by
    trace.bind                         run_operation            backends/eager.py
    primitives/custom/derivatives.py               transpose_program        transforms/transpose.py
    backends/xla.py, inside shard_map  run_sharded              interop/sharded_programs.py
    backends/debug_nans.py             stop_at_first            inspect/nans.py
    Program                            show, draw, coloured     ir/text.py, inspect/draw
    loading.py                         delegated                interop/delegated.py

Others are not asked anything, but must be there, and fill tables of lower rooms: what tracers can
do, before the first trace; the rules of our JAX primitive, before its first equation; all
operations, before a program is read by their names (`load`).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

waiting: dict[str, tuple[str, ...]] = {}  # for each purpose the modules that are not loaded yet


def wire(rooms: Mapping[str, str]) -> None:
    """Say which modules, apart by spaces, serve each purpose."""
    waiting.update({purpose: tuple(modules.split()) for purpose, modules in rooms.items()})


def load(purpose: str) -> None:
    """Import what serves a purpose, if it is not there."""
    for module in waiting.get(purpose, ()):
        importlib.import_module(module)
    waiting.pop(purpose, None)  # only now: another thread must wait until they are there


def answers(question: Callable[..., Any]) -> Callable[[F], F]:
    """Make a function the answer to a question of this file.

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
    """Run one operation on arrays, now."""
    return _answer(run_operation)(primitive, args, params)


def transpose_program(program: Any, linear: tuple[Any, ...], ct_active: tuple[Any, ...]) -> Any:
    """The program from cotangents of the results to those of its linear inputs."""
    return _answer(transpose_program)(program, linear, ct_active)


def run_sharded(program: Any, operands: Sequence[Any], preparation: Any) -> list[Any]:
    """Run a program whose collectives go over axes of the `jax.shard_map` around."""
    return _answer(run_sharded)(program, operands, preparation)


def stop_at_first(program: Any, values: Sequence[Any]) -> NoReturn:
    """Raise NotFinite for the equation that makes the first NaN or infinity."""
    raise _answer(stop_at_first)(program, values)


def delegated(theirs: Any, name: str, module: str) -> Any:
    """A function of JAX's as one of ours."""
    return _answer(delegated)(theirs, name, module)


def show(program: Any) -> str:
    """The text of a program."""
    return _answer(show)(program)


def draw(program: Any, path: Any) -> Any:
    """Draw the graph of a program into a file."""
    return _answer(draw)(program, path)


def coloured(program: Any) -> str:
    """The text of a program in colours, as HTML."""
    return _answer(coloured)(program)

"""Detect whether a call of `jax.jit` comes from the program, or from JAX or functrans.

This module imports nothing of functrans: a program may import JAX by importing functrans, and then
this is needed during that import.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import jax
from jax._src import pjit

_LIBRARIES = tuple(
    [
        os.path.join(os.path.dirname(os.path.abspath(path)), "")
        for path in (jax.__file__, os.path.dirname(__file__))
    ]
)


def _codes(fun: Any) -> list[CodeType]:
    """Return the code objects of a public JAX function, whose frames are between caller and us."""
    inner = fun.__wrapped__.__code__
    return [fun.__code__, inner, *[c for c in inner.co_consts if isinstance(c, CodeType)]]


_ENTRANCES = {*_codes(jax.jit), *_codes(pjit.pjit)}


def is_programs(frame: FrameType | None) -> bool:
    """Return whether neither JAX nor functrans called `jax.jit`. `frame`: `make_jit`'s caller."""
    while frame is not None and frame.f_code in _ENTRANCES:
        frame = frame.f_back
    return frame is not None and not frame.f_code.co_filename.startswith(_LIBRARIES)


def when_first_asked(act: Callable[[], None]) -> None:
    """Run `act`, which replaces `make_jit`, when the program first calls `jax.jit`."""
    make = pjit.make_jit

    def first(fun: Any, **options: Any) -> Any:
        if not is_programs(sys._getframe(1)):
            return make(fun, **options)
        if pjit.make_jit is first:
            pjit.make_jit = make
        act()
        return pjit.make_jit(fun, **options)

    _ENTRANCES.add(first.__code__)
    pjit.make_jit = first

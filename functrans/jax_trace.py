"""JAX's current trace, as functrans reads and sets it; nothing else in functrans does.

While functrans traces, JAX's current trace is a `Bridge`: what JAX is asked to do with our tracers
comes to us (interop/bridge.py). Three levels stand above one another, to any nesting:

    a trace of JAX's      jax.vmap, jax.grad, a body that jax.lax.scan stages
    a bridge              with the traces of functrans that stand on it
    its parent            a trace of JAX's around functrans; JAX's evaluation if there is none
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from jax._src import traceback_util
from jax._src.core import Trace, eval_trace, extend_axis_env_nd, trace_ctx
from jax._src.core import trace_state_strong_ref as current  # `current.value`
from jax._src.interpreters.partial_eval import DynamicJaxprTrace

# Our frames are no user's: `jax.debug.breakpoint` shows, and hands to Python, what others hold.
traceback_util.register_exclusion(os.path.dirname(__file__) + os.sep)


class Bridge(Trace):
    """What JAX takes for its current trace while functrans traces. What it does is given to it by
    interop/bridge.py.

    parent : the trace of JAX's that stood there before; it does what is not ours to do
    stages : is everything recorded, or only what touches our tracers?
    """

    __slots__ = ("parent", "stages")

    def __init__(self, parent: Any, stages: bool):
        super().__init__()
        self.parent: Any = parent
        self.stages: bool = stages


# On evaluation there are these two alone, for JAX's caches know a call by its trace.
_ON_EVALUATION = {stages: Bridge(eval_trace, stages) for stages in (False, True)}


class _Thread(threading.local):
    bridge: Any = None  # on which the innermost traces of functrans stand


_thread = _Thread()
Place = tuple[Any, Any]  # JAX's current trace, the bridge


def is_above() -> bool:
    """Does a trace of JAX's stand above those of functrans?"""
    top = current.value
    if top.__class__ is Bridge:
        return False
    bridge = _thread.bridge
    return bridge is not None and top is not bridge.parent and top is not eval_trace


def is_innermost() -> bool:
    """Does functrans trace, and no trace of JAX's stand above?"""
    return current.value.__class__ is Bridge


def is_recording() -> bool:
    """Does JAX's current trace record everything, as in the body of a loop or a jitted function?"""
    return isinstance(current.value, DynamicJaxprTrace)


def bridge() -> Any:
    """The bridge on which functrans stands in this thread; None where it is not tracing."""
    return _thread.bridge


def place() -> Place:
    """Where this thread stands."""
    return current.value, _thread.bridge


def go_to(place: Place) -> None:
    """Stand there again."""
    trace_ctx.set_trace(place[0])
    _thread.bridge = place[1]


def enter(stages: bool) -> None:
    """Stand on a bridge: on JAX's current trace, or on the parent of the bridge that is there."""
    top = current.value
    parent = top
    if top.__class__ is Bridge:
        if top.stages is stages:
            return
        parent = top.parent
    made = _ON_EVALUATION[stages] if parent is eval_trace else Bridge(parent, stages)
    trace_ctx.set_trace(made)
    _thread.bridge = made


def return_to_bridge() -> Place:
    """Stand on the bridge again, to run a rule while its parent is current; the place left."""
    before = place()
    top, bridge = before
    if bridge is not None and top is bridge.parent:
        trace_ctx.set_trace(bridge)
    return before


def leave() -> Bridge | None:
    """Stand on the parent of the bridge that is JAX's current trace, which is returned."""
    top = current.value
    if top.__class__ is not Bridge:
        return None
    come_back(top.parent)
    return top


come_back: Callable[[Any], None] = trace_ctx.set_trace  # to what `leave` returned


def named_axis(name: Any, size: int) -> AbstractContextManager[Any]:
    """Let JAX's collectives know a mapped axis."""
    return extend_axis_env_nd([(name, size)])


@contextmanager
def outside() -> Iterator[None]:
    """Compute by JAX what does not concern functrans's traces: constants, keys, concrete values."""
    left = leave()
    try:
        yield
    finally:
        if left is not None:
            come_back(left)


@contextmanager
def evaluating() -> Iterator[None]:
    """Stand where nothing is traced, by JAX or by us."""
    before = place()
    go_to((eval_trace, None))
    try:
        yield
    finally:
        go_to(before)

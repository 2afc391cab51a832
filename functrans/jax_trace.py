"""The only module that reads and sets JAX's current trace.

While functrans traces, JAX's current trace is a `Bridge`, which forwards JAX's operations on our
tracers to us (interop/bridge.py). Three levels lie above one another, nested to any depth:

    a trace of JAX        jax.vmap, jax.grad, a body that jax.lax.scan stages
    a bridge              with the traces of functrans on it
    its parent            the trace of JAX around functrans, or JAX's eager evaluation
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from jax._src import config as _config
from jax._src import core as _core
from jax._src import source_info_util, traceback_util
from jax._src.config import _check_vma
from jax._src.core import Trace, eval_trace, extend_axis_env_nd, trace_ctx
from jax._src.core import trace_state_strong_ref as current  # `current.value`
from jax._src.interpreters.batching import is_vmappable as is_vmappable
from jax._src.interpreters.batching import vmappables as vmappables
from jax._src.interpreters.partial_eval import DynamicJaxprTrace
from jax._src.xla_bridge import backends_are_initialized as backends_are_initialized
from jax.sharding import use_abstract_mesh

# Hide our frames from JAX: from `jax.debug.breakpoint`, and where its errors name the user's line.
traceback_util.register_exclusion(os.path.dirname(__file__) + os.sep)
source_info_util.register_exclusion(os.path.dirname(__file__) + os.sep)


class Bridge(Trace):
    """JAX's current trace while functrans traces. interop/bridge.py defines its behaviour.

    parent : the trace of JAX that was current before; it handles operations that are not ours
    stages : whether everything is recorded, or only operations on our tracers
    """

    __slots__ = ("parent", "stages")

    def __init__(self, parent: Any, stages: bool):
        super().__init__()
        self.parent: Any = parent
        self.stages: bool = stages
        self.requires_low = False  # JAX does not expand its high-level operations for us

    def cur_qdd(self, x: Any) -> Any:
        return x.cur_qdd()


# The only bridges above eager evaluation: the current trace is part of JAX's cache keys.
_ON_EVALUATION = {stages: Bridge(eval_trace, stages) for stages in (False, True)}


class _Thread(threading.local):
    bridge: Any = None  # the bridge below the innermost traces of functrans


_thread = _Thread()
Place = tuple[Any, Any]  # JAX's current trace, the bridge


def is_above() -> bool:
    """Return whether a trace of JAX is above those of functrans."""
    top = current.value
    if top.__class__ is Bridge:
        return False
    bridge = _thread.bridge
    return bridge is not None and top is not bridge.parent and top is not eval_trace


def is_innermost() -> bool:
    """Return whether functrans traces with no trace of JAX above."""
    return current.value.__class__ is Bridge


def is_recording() -> bool:
    """Return whether JAX's current trace records everything, as in a loop or a jitted function."""
    return isinstance(current.value, DynamicJaxprTrace)


def bridge() -> Any:
    """Return the bridge of this thread's traces, or None if functrans is not tracing."""
    return _thread.bridge


def place() -> Place:
    """Return this thread's current JAX trace and bridge."""
    return current.value, _thread.bridge


def go_to(place: Place) -> None:
    trace_ctx.set_trace(place[0])
    _thread.bridge = place[1]


def _all_settings(folding: bool) -> tuple[Any, ...]:
    with _config.eager_constant_folding(folding):
        return _config.trace_context()


# The position among them of the one that says whether JAX computes constants while it traces. It does
# while we trace a function once for all its calls, and what it computes is the same.
_FOLDING = [a is b for a, b in zip(*map(_all_settings, (False, True)), strict=True)].index(False)


def settings() -> tuple[Any, ...]:
    """Return JAX's settings that a trace depends on, hashable: part of the keys of traced programs."""
    found = _config.trace_context()
    return found[:_FOLDING] + found[_FOLDING + 1 :]


def for_new_thread() -> Callable[[], None]:
    """Return a function that gives a new thread what is this thread's own: JAX's flags and contexts,
    its current trace and named axes, and the bridge."""
    known = (*_config.config_states.values(), *vars(_config).values(), *vars(_core).values())
    local = [(x, x.get_local()) for x in known if isinstance(x, _config.config_ext.Config)]
    bridge = _thread.bridge

    def adopt() -> None:
        for x, value in local:
            if value is not _config.config_ext.unset:
                x.set_local(value)
                changed = getattr(x, "_update_thread_local_hook", None)
                if changed is not None:
                    changed(value)
        _thread.bridge = bridge

    return adopt


def enter(stages: bool) -> None:
    """Make a bridge current, on JAX's current trace or on the parent of a bridge that is current."""
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
    """Make the bridge current again if its parent is, in order to run a rule; return the previous place."""
    before = place()
    top, bridge = before
    if bridge is not None and top is bridge.parent:
        trace_ctx.set_trace(bridge)
    return before


def leave() -> Bridge | None:
    """If JAX's current trace is a bridge, make its parent current and return the bridge."""
    top = current.value
    if top.__class__ is not Bridge:
        return None
    come_back(top.parent)
    return top


come_back: Callable[[Any], None] = trace_ctx.set_trace  # undo `leave`


def named_axis(name: Any, size: int) -> AbstractContextManager[Any]:
    return extend_axis_env_nd([(name, size)])


def axes_in_scope() -> dict[Any, int]:
    """Return the axes that JAX's transformations around us have named, with their sizes."""
    return dict(trace_ctx.axis_env.axis_sizes)


def is_checked_map() -> bool:
    """Return whether this runs in a `jax.shard_map` that checks over which axes values vary."""
    return bool(_check_vma.value)


def without_varying() -> AbstractContextManager[Any]:
    """Trace without `shard_map`'s check of the axes over which values vary, which our types do not tell."""
    return _check_vma(False) if is_checked_map() else nullcontext()


def varies(aval: Any) -> bool:
    """Return whether a type of JAX says that values vary over axes of a checked `jax.shard_map`."""
    kind = getattr(aval, "manual_axis_type", None)
    return kind is not None and bool(kind.varying)


@contextmanager
def as_varying(avals: Iterable[Any]) -> Iterator[None]:
    """Trace as inside the checked `jax.shard_map` over whose axes the values vary, if they do."""
    mesh = next((a.sharding.mesh for a in avals if varies(a)), None)
    if mesh is None:
        yield
        return
    with use_abstract_mesh(mesh), _check_vma(True):
        yield


@contextmanager
def outside() -> Iterator[None]:
    """Compute with JAX outside of functrans's traces: constants, keys, concrete values."""
    left = leave()
    try:
        yield
    finally:
        if left is not None:
            come_back(left)


@contextmanager
def evaluating() -> Iterator[None]:
    """Leave all traces, JAX's and ours: operations inside run eagerly."""
    before = place()
    go_to((eval_trace, None))
    try:
        yield
    finally:
        go_to(before)

"""Mutable references, `jax.new_ref`, in functions that functrans traces.

A reference made while tracing is a Python object that holds its current value, a tracer or not.
Reading returns that value and writing replaces it, in the order in which Python runs, so programs
contain only values. For a JAX operation on references (an indexed read, write or add; a loop, a
branch, a jitted function) JAX's state discharge gives an equivalent function from the old values to
the results and the new values.

    made in the running trace       held by it
    made outside of ft.jit          an input of the program and, if written, an output, which is
                                    written to the reference after the program has run
    made outside of grad, vmap      readable; writable with values that do not belong to these
    given to a custom_vjp function  handed to its rules, but not in a loop, a branch or a checkpoint
    in a function that is staged    error: its program is cached, and may run more than once
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import jax
from jax._src.core import DebugInfo, Jaxpr, empty_ref_p, eval_jaxpr, ref_p, set_current_trace
from jax._src.state import discharge

from functrans import errors, jax_trace
from functrans.interop.jaxprs import walk
from functrans.interop.jaxprs.walk import in_jaxpr
from functrans.ir.program import Var
from functrans.ir.source import here
from functrans.primitives.custom.calls import as_type
from functrans.trace import full, materialize, staging_trace, state
from functrans.tracer import ARRAYS, OURS, AnyTracer, Tracer, is_active


class Reference(jax.core.Tracer[Any]):
    """A reference of the trace `owner`, with the current value `value`.

    outside    : the JAX reference, made outside, that it represents
    is_written : whether it has been written to
    """

    __slots__ = ("is_written", "outside", "owner", "value")

    def __init__(self, owner: Any, aval: Any, value: Any, outside: Any = None):
        self.owner: Any = owner
        self.aval = aval
        self.value: Any = value
        self.outside: Any = outside
        self.is_written: bool = False

    @property
    def _trace(self) -> Any:
        self.check_alive()
        return jax_trace.bridge()

    @property
    def __jax_array__(self) -> Any:
        raise AttributeError("__jax_array__")  # a reference is not convertible to an array

    @property
    def _debug_info(self) -> Any:
        """JAX reads this to report a leaked tracer: raise our error instead."""
        raise self.ended()

    def check_alive(self) -> None:
        """Raise an error unless it belongs to an active trace."""
        if self.owner is not None and not is_active(self.owner, state.innermost, state.below):
            raise self.ended()

    def ended(self) -> errors.LeakedTracer:
        """Return the error for a reference that is used after its trace has ended."""
        return errors.LeakedTracer(
            f"a reference {_text(self)} was used after the transformation that created it had "
            f"ended, {here()}\n"
            "Return its value, ref[...], or create the reference outside."
        )

    def __repr__(self) -> str:
        return f"Traced<{_text(self)}>"


OURS.add(Reference)
MAKING = (ref_p, empty_ref_p)


# Classes whose instances are not references: `isinstance` of JAX's class takes microseconds.
_OTHERS: set[type[Any]] = set()


def are_in(primitive: Any, values: Sequence[Any]) -> bool:
    """Return whether an equation makes references or takes some as operands."""
    if primitive.ref_primitive:
        return True
    if _OTHERS.issuperset([x.__class__ for x in values]):
        return False
    return any([is_reference(x) for x in values])


def is_reference(x: Any) -> bool:
    """Return whether a value is a reference (`jax.new_ref`), of JAX's or ours."""
    kind = x.__class__
    found = isinstance(x, jax.Ref)
    if not found and (kind in ARRAYS or not issubclass(kind, AnyTracer)):
        _OTHERS.add(kind)
    return found


def results(eqn: Any, values: Sequence[Any]) -> list[Any]:
    """Run an equation that makes references or takes some as operands."""
    if eqn.primitive in MAKING:
        (made,) = eqn.outvars
        kind = walk.type_of_aval(made.aval.inner_aval)
        value = as_type(values[0], kind) if values else full(0, kind)
        return [Reference(state.innermost, made.aval, value)]
    if eqn.primitive.name == "jit":  # its custom rules may take references too
        inner = eqn.params["jaxpr"]
        with set_current_trace(jax_trace.bridge()):
            return eval_jaxpr(inner.jaxpr, walk.constants_of(inner), *values)
    given = [_known(x) if is_reference(x) else None for x in values]
    stand = [x if r is None else r.value for x, r in zip(values, given, strict=True)]
    closed = _of_values(in_jaxpr(eqn))
    outs = walk.run(closed.jaxpr, walk.constants_of(closed), stand)
    n = len(eqn.outvars)
    left = iter(outs[n:])
    for r in given:
        if r is not None:
            _put(r, materialize(next(left, r.value)))  # a freed reference has no final value
    return outs[:n]


def _of_values(eqn: Any) -> Any:
    """Discharge the references of an equation: return a jaxpr of their values, which returns the
    results and the final values."""
    names = DebugInfo("references", eqn.primitive.name, None, None)
    alone = Jaxpr([], eqn.invars, eqn.outvars, [eqn], eqn.effects, debug_info=names)
    _kept.rules = True
    try:
        return discharge.discharge_state(walk.close(alone))
    finally:
        _kept.rules = False


class _Kept(threading.local):
    """rules: whether discharged functions keep their custom rules. JAX drops them, because it has
    differentiated before."""

    rules = False


_kept = _Kept()
_jax_discharge_state = discharge._discharge_state


def _discharge_state(closed: Any, which: Any, lower: bool, *more: Any) -> Any:
    """Discharge a jaxpr, or one inside of it, as JAX does."""
    return _jax_discharge_state(closed, which, lower and not _kept.rules, *more)


discharge._discharge_state = _discharge_state  # type: ignore[assignment]


@discharge._eval_jaxpr_ad_error.defjvp
def _rule_of_references(*_: Any) -> Any:
    """Raise our error where a function is differentiated that a discharged jaxpr calls with references."""
    raise errors.NotSupported(
        "a custom_vjp function that takes a reference (new_ref) is differentiated inside a loop, a branch or "
        f"a checkpoint, {here()}\n"
        "Call it outside of these, or return what its rule writes."
    )


def _known(x: Any) -> Reference:
    """Return our reference for an operand, which may be a JAX reference."""
    stages = staging_trace()
    if x.__class__ is Reference:
        x.check_alive()
        if stages is not None and not is_active(stages, x.owner, None):
            raise made_outside(x)
        return x
    if stages is None:
        return Reference(None, x.aval, x[...], x)
    if stages.references is None:
        raise made_outside(x)
    found = stages.references.get(id(x))
    if found is None:
        kind = walk.type_of_aval(x.aval.inner_aval)
        var, _ = stages.captures[id(x)] = Var(kind), x
        found = Reference(stages, x.aval, Tracer(stages, kind, var), x)
        stages.references[id(x)] = found
    return found


def _put(reference: Reference, value: Any) -> None:
    """Write a value to a reference; raise an error if the value's trace ends before the reference's."""
    if value is reference.value:
        return
    owner = value.owner if isinstance(value, Tracer) else None
    if owner is not None and not is_active(owner, reference.owner, None):
        raise errors.NotSupported(
            f"a differentiated or mapped value was written to a reference {_text(reference)} that "
            f"was created outside the transformed function, {here()}\n"
            "Create the reference inside that function, or write a value that does not depend on "
            "its arguments (stop_gradient(x))."
        )
    if reference.owner is None:
        reference.outside[...] = value
    reference.value, reference.is_written = value, True


def made_outside(x: Any) -> errors.OutsideReference:
    """Return the error for a reference in a function whose program is cached."""
    return errors.OutsideReference(
        f"a reference {_text(x)} created outside is used in a function whose program is cached, "
        f"{here()}\n"
        "Create the reference inside that function, or pass the function the value, ref[...], and "
        "return the new value."
    )


def _text(x: Any) -> str:
    return x.aval.str_short()

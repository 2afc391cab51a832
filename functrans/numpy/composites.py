"""Functions of several operations that run as one compiled operation in eager mode.

In: a function of `functrans.numpy`. Out: the public function: those listed below are `composite`
(primitives/calls/jit.py); those with a parameter `out` raise an error if it is used.
Internal calls use the defining modules directly, without this overhead. Python numbers that are
likely to change between calls are operands, so nothing is recompiled for them.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

from functrans.ir import tracebacks
from functrans.numpy import ufunc_methods as ufunc_methods  # gives ufuncs their methods
from functrans.numpy.ufuncs import refusing_out
from functrans.primitives.calls.jit import composite

# Functions of arrays; Python numbers are operands.
_ELEMENTWISE = (
    "arctan2 divide divmod equal floor_divide greater greater_equal less less_equal logaddexp "
    "logaddexp2 mod nextafter not_equal remainder true_divide where"
)
# Functions of arrays and static integers, strings and None; floats are operands.
_WITH_OPTIONS = (
    "argmax argmin cumprod cumsum diag diagonal dot imag inner outer clip ravel round sinc trace "
    "trunc unstack vdot"
)
# Functions of arrays and options, where floats are static too: fill values must be concrete.
_WITH_FILLING = "take take_along_axis"


_OPERANDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(_ELEMENTWISE.split(), (int, float, complex)),
    **dict.fromkeys(_WITH_OPTIONS.split(), (float,)),
    **dict.fromkeys(_WITH_FILLING.split(), ()),
}


def shown(package: str, name: str, value: Any) -> Any:
    """Return the public version of a name that a module of `functrans.numpy` defines."""
    if isinstance(value, FunctionType):
        made = composite(value, _OPERANDS[name]) if name in _OPERANDS else value
        if not hasattr(value, "reduce"):  # ufuncs raise the error themselves
            made = refusing_out(made)
        return tracebacks.shown(package, name, made)
    return value

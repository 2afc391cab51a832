"""Functions of several operations that run as one where nothing is recorded.

In: the names of `functrans.numpy`. Out: the same, those below as `composite` (primitives/call.py);
what has a parameter `out` raises for it.
Our own calls go to the modules that define them and pay nothing. Python numbers that may well be
others the next time are operands: nothing is compiled for each.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any

from functrans.flags import flags
from functrans.numpy.ufunc_objects import NATIVE
from functrans.numpy.ufuncs import refusing_out
from functrans.primitives.call import composite

# Of arrays; a Python number among them is an operand.
_ELEMENTWISE = (
    "allclose arctan2 array_equal copysign divide divmod equal float_power floor_divide fmax fmin "
    "fmod greater greater_equal heaviside hypot isclose less less_equal logaddexp logaddexp2 mod "
    "nextafter not_equal remainder true_divide where"
)
# Of arrays and integers, names and None, which say what is computed; a float is an operand.
_WITH_OPTIONS = (
    "angle append argmax argmin argpartition argsort atleast_1d atleast_2d atleast_3d average "
    "bitwise_count broadcast_arrays count_nonzero cumprod cumsum deg2rad degrees diag diagonal "
    "digitize dot imag inner isinf kron log10 log2 matvec modf nan_to_num outer clip ptp rad2deg "
    "radians ravel resize rollaxis rot90 round searchsorted signbit sinc sort_complex trace tril "
    "triu trunc unpackbits unstack vander vdot vecmat"
)
# Of arrays and options; a float among these is no operand: what fills must be known.
_WITH_FILLING = "take take_along_axis"
# As those, but the two bounds are operands where they are integers too.
_BETWEEN = "geomspace linspace logspace"


def run_at_once(names: dict[str, Any]) -> None:
    """Replace in a namespace the functions that this file names."""
    made: dict[int, Any] = {}  # two names of one function stay one function
    groups: list[tuple[str, tuple[type, ...]]] = [
        (_ELEMENTWISE, (int, float, complex)), (_WITH_OPTIONS, (float,)), (_WITH_FILLING, ()),
    ]  # fmt: skip
    for group, numbers in groups:
        for name in group.split():
            function = names[name]
            if isinstance(function, FunctionType):
                made[id(function)] = composite(function, numbers)
    for name in _BETWEEN.split():
        made[id(names[name])] = _with_float_bounds(composite(names[name], (float,)))
    ours = {
        name: value
        for name, value in names.items()
        if isinstance(value, FunctionType) and not name.startswith("_")
    }
    for value in {id(value): value for value in ours.values()}.values():
        if value not in NATIVE:  # those raise themselves
            made[id(value)] = refusing_out(made.get(id(value), value))
    names.update({name: made.get(id(value), value) for name, value in ours.items()})


def _with_float_bounds(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with bounds that are Python integers as floats, which is what they become;
    beside an array of 32 bits or less they do not, where Python's floats have 64."""

    @functools.wraps(function)
    def call(start: Any, stop: Any, *args: Any, **kwargs: Any) -> Any:
        alone = isinstance(start, (int, float)) and isinstance(stop, (int, float))
        if alone or not flags.jax_enable_x64:
            start, stop = (float(x) if x.__class__ is int else x for x in (start, stop))
        return function(start, stop, *args, **kwargs)

    return call

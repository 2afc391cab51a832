"""The exception classes.

Each class also derives from the built-in or `jax.errors` class that JAX raises for the same misuse,
so the `except` clauses of a script still work after its import is changed.
"""

from __future__ import annotations

import jax

from functrans.loading import hand_on as _hand_on


class FunctransError(Exception):
    """Base class of all errors that functrans raises about a user's program."""

    def __init__(self, message: str):
        Exception.__init__(self, message)

    def __str__(self) -> str:
        return Exception.__str__(self)  # KeyError's quotes the message, that of JAX's needs a status


class TypeMismatch(FunctransError, TypeError):
    """The operands of an operation have invalid shapes or dtypes."""


class ShapeMismatch(TypeMismatch, ValueError):
    """The shapes of the operands cannot be broadcast together."""


class UnsupportedDtype(TypeMismatch, NotImplementedError):
    """The underlying libraries do not support a dtype: decompositions of 16-bit floats."""


class InvalidArgument(FunctransError, ValueError):
    """The value of an argument is invalid (an axis out of range, ...)."""


class IntegerOverflow(InvalidArgument, OverflowError):
    """A Python integer does not fit its dtype."""


class DivisionByZero(InvalidArgument, ZeroDivisionError):
    """A static divisor is 0: a step, a number of sections."""


class DonatedTwice(FunctransError, jax.errors.JaxRuntimeError):  # type: ignore[misc]
    """A call donates a buffer that another of its arguments uses too."""


class NotFinite(FunctransError, FloatingPointError):
    """A result holds a NaN or an infinity, and `debug_nans` or `debug_infs` is on."""


class NotMeasured(FunctransError, RuntimeError):
    """A profile cannot be recorded, or holds no device events."""


class ImplicitPromotion(InvalidArgument, jax.dtypes.TypePromotionError):
    """Dtypes or ranks differ where the promotion flags require them to be equal."""


class TreeMismatch(InvalidArgument, TypeError):
    """Pytrees do not match each other, a structure, or what a pytree function requires."""


class NotAStructure(FunctransError, TypeError, AttributeError, RuntimeError):
    """The argument must be the structure of a pytree."""


class InvalidIndex(FunctransError, IndexError):
    """An index has more entries than the array has axes, or exceeds a static bound."""


class NotIntegers(TypeMismatch, ValueError):
    """Indices must be integers."""


class UnsupportedChoice(InvalidArgument, NotImplementedError):
    """An option of NumPy that arrays here do not support: a memory order, a mode, an accuracy."""


class NotAPermutation(InvalidArgument, TypeError):
    """Axes must name each axis of an array exactly once."""


class AxisOutOfBounds(InvalidArgument, InvalidIndex):
    """The array has no such axis. A ValueError and an IndexError, as NumPy's AxisError is."""


class NegativeSize(InvalidArgument, TypeError):
    """A shape has a negative size."""


class MissingArgument(InvalidArgument, TypeError):
    """A transformation refers to an argument that the call does not pass."""


class NotAnArray(FunctransError, TypeError):
    """A value that is passed or returned must be an array or a scalar."""


class NonScalarLoss(FunctransError, TypeError):
    """`grad` needs a function with a scalar result."""


class NonDifferentiable(FunctransError, TypeError):
    """Integers and booleans cannot be differentiated, nor differentiated with respect to."""


class LeakedTracer(FunctransError, jax.errors.UnexpectedTracerError):
    """A tracer was used after its transformation had ended."""

    owner: object = None  # its trace


class DeletedArray(FunctransError, ValueError, RuntimeError):
    """An array was used after its buffer was donated to a jitted function."""


class ClosedOverTracer(FunctransError, jax.errors.UnexpectedTracerError):
    """A function with a custom rule closes over a tracer that the rule does not handle."""


class UnknownAttribute(FunctransError, AttributeError):
    """Tracers have no attribute of this name."""


class MissingCustomRule(FunctransError, AttributeError):
    """A function was called before its custom rule was defined."""


class UnknownUpdate(FunctransError, AttributeError):
    """`x.at[i]` has no method of this name."""


class UnknownPadding(InvalidArgument, RuntimeError):
    """There is no padding mode of this name."""


class UnknownOption(InvalidArgument, jax.errors.JaxRuntimeError):  # type: ignore[misc]
    """The compiler has no such option, or the option no such value."""


class RuleMismatch(TypeMismatch):
    """A custom rule returned another structure or other types than its function."""


class CotangentMismatch(RuleMismatch, ValueError):
    """A bwd rule returned a cotangent whose type differs from that of its argument."""


class BatchRuleMismatch(FunctransError, ValueError):
    """The result of a custom vmap rule does not match its function."""


class AbstractValueError(FunctransError, jax.errors.ConcretizationTypeError):
    """Python needs a concrete value, but only the type is known while tracing."""


class AbstractBoolError(AbstractValueError, jax.errors.TracerBoolConversionError):
    """`if`, `while`, `and`, ... need a concrete value, but only the type is known while tracing."""


class AbstractIndexError(AbstractValueError, jax.errors.TracerIntegerConversionError):
    """A concrete Python integer is needed, but only the type is known while tracing."""


class AbstractArrayError(AbstractValueError, jax.errors.TracerArrayConversionError):
    """A NumPy array is needed, but only the type is known while tracing."""


class NonConcreteMask(FunctransError, jax.errors.NonConcreteBooleanIndexError):
    """The shape of a boolean mask's result depends on its values, which are not known while tracing."""


class NotSupported(FunctransError, TypeError, NotImplementedError):
    """NumPy arrays support it, tracers do not: assignment to elements, results by `out=`."""


class OutsideReference(NotSupported):
    """A function whose program is cached uses a reference (`new_ref`) created outside of it."""


class SymbolicSize(NotSupported):
    """An array has a size that is a symbol (`jax.export`) where functrans needs a number."""


class NotLinear(FunctransError, TypeError, NotImplementedError):
    """The function to be transposed is not linear."""


class MissingRule(FunctransError, NotImplementedError, ValueError):  # JAX raises the one or the other
    """A primitive has no rule for a transformation."""


class OpaqueCallback(FunctransError, ValueError):
    """A Python callback cannot be differentiated."""


class CallbackResult(FunctransError, RuntimeError):
    """The result of a Python callback does not have the declared type."""


class InvalidFormat(InvalidArgument, IndexError, KeyError):
    """A format string does not match its arguments."""


class UnhashableStatic(FunctransError, ValueError):
    """A static argument of `jit` is not hashable."""


class BatchSizeMismatch(FunctransError, ValueError):
    """The mapped axes of the arguments of `vmap` differ in size."""


class UnboundAxis(FunctransError, NameError):
    """A collective names an axis that no enclosing transformation binds."""


class TruncatedDtype(UserWarning):
    """A 64-bit dtype was requested while 64-bit types are disabled. A warning, as in JAX."""


class ParseError(FunctransError, ValueError):
    """The text is not a program."""


class CheckError(FunctransError, TypeError):
    """A program is malformed: a variable is used before it is assigned, or has another type than
    its primitive computes."""


_hand_on(__name__)

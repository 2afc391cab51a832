"""One exception family.

Every class also derives from the built-in or `jax.errors` class that JAX raises for the same
misuse, so a script's `except` clauses go on working after its import is changed.
"""

from __future__ import annotations

import jax

from functrans.loading import hand_on as _hand_on


class FunctransError(Exception):
    """Base of every error that functrans raises about a user's program."""

    def __init__(self, message: str):
        Exception.__init__(self, message)


class TypeMismatch(FunctransError, TypeError):
    """An operation was given operands whose shapes or dtypes it does not take."""


class ShapeMismatch(TypeMismatch, ValueError):
    """Operands whose shapes cannot be broadcast together."""


class UnsupportedDtype(TypeMismatch, NotImplementedError):
    """A dtype that the libraries below have no code for: decompositions of 16-bit floats."""


class InvalidArgument(FunctransError, ValueError):
    """An argument has a value that the function does not take (an axis out of range, ...)."""


class IntegerOverflow(InvalidArgument, OverflowError):
    """A Python integer is beyond the integers of its dtype."""


class DivisionByZero(InvalidArgument, ZeroDivisionError):
    """A number to divide by, known before anything is computed, is 0: a step, a number of parts."""


class DonatedTwice(FunctransError, jax.errors.JaxRuntimeError):  # type: ignore[misc]
    """A call was to take over the buffer of an array that it is given a second time."""

    def __str__(self) -> str:
        return Exception.__str__(self)  # JAX's asks for a status


class NotFinite(FunctransError, FloatingPointError):
    """A result holds a NaN or an infinity, which `debug_nans` or `debug_infs` forbids."""


class NotMeasured(FunctransError, RuntimeError):
    """A profile cannot be recorded, or tells of nothing that the device ran."""


class ImplicitPromotion(InvalidArgument):
    """Dtypes or numbers of axes are mixed where the promotion flags forbid it."""


class TreeMismatch(InvalidArgument, TypeError):
    """Pytrees that do not fit: each other, a structure, what a function of pytrees needs."""


class NotAStructure(FunctransError, TypeError, AttributeError, RuntimeError):
    """Something else was given where the structure of a pytree is needed."""


class InvalidIndex(FunctransError, IndexError):
    """An index with more entries than the array has axes, or beyond a static bound."""


class NotIntegers(TypeMismatch, ValueError):
    """Indices that are not integers."""


class UnsupportedChoice(InvalidArgument, NotImplementedError):
    """A choice that NumPy has and arrays here have not: an order of memory, a mode, an accuracy."""


class NotAPermutation(InvalidArgument, TypeError):
    """Axes that do not name each axis of an array once."""


class AxisOutOfBounds(InvalidArgument, InvalidIndex):
    """An axis that the array has not. A ValueError and an IndexError, as NumPy's AxisError is."""


class NegativeSize(InvalidArgument, TypeError):
    """A shape with a size below zero."""


class MissingArgument(InvalidArgument, TypeError):
    """A transformation refers to an argument that the function was not called with."""


class NotAnArray(FunctransError, TypeError):
    """Something that is not an array or a scalar was given or returned where one is needed."""


class NonScalarLoss(FunctransError, TypeError):
    """`grad` was asked to differentiate a function whose result is not a scalar."""


class NonDifferentiable(FunctransError, TypeError):
    """Differentiation was asked for with respect to, or of, integers or booleans."""


class LeakedTracer(FunctransError, jax.errors.UnexpectedTracerError):
    """A traced value was used after the transformation that made it had ended."""

    owner: object = None  # its trace


class DeletedArray(FunctransError, ValueError, RuntimeError):
    """An array was used after a jitted function that it was donated to had taken its buffer."""


class ClosedOverTracer(FunctransError, jax.errors.UnexpectedTracerError):
    """A function with a custom rule closes over a traced value that the rule says nothing about."""


class UnknownAttribute(FunctransError, AttributeError):
    """A traced array was asked for something that arrays do not have."""


class MissingCustomRule(FunctransError, AttributeError):
    """A function made for a custom rule was called before the rule was defined."""


class UnknownUpdate(FunctransError, AttributeError):
    """`x.at[i]` was asked for something that it has not."""


class UnknownPadding(InvalidArgument, RuntimeError):
    """A padding by a name that there is not."""


class UnknownBackend(InvalidArgument, RuntimeError):
    """A platform by a name that there is not."""


class RuleMismatch(TypeMismatch):
    """What a custom rule returned does not fit its function: another structure, other types."""


class CotangentMismatch(RuleMismatch, ValueError):
    """A bwd rule returned a cotangent of another type than its argument."""


class BatchRuleMismatch(FunctransError, ValueError):
    """What a custom vmap rule returned does not fit its function."""


class AbstractValueError(FunctransError, jax.errors.ConcretizationTypeError):
    """A value is needed in Python, but while tracing only its type is known."""


class AbstractBoolError(AbstractValueError, jax.errors.TracerBoolConversionError):
    """`if`, `while`, `and`, ... need a value, but while tracing only its type is known."""


class AbstractIndexError(AbstractValueError, jax.errors.TracerIntegerConversionError):
    """A Python integer is needed, but while tracing only the type of the value is known."""


class AbstractArrayError(AbstractValueError, jax.errors.TracerArrayConversionError):
    """A NumPy array is needed, but while tracing only its type is known."""


class NonConcreteMask(FunctransError, jax.errors.NonConcreteBooleanIndexError):
    """A boolean mask of unknown values selects an unknown number of elements."""


class NotSupported(FunctransError, TypeError, NotImplementedError):
    """What arrays of NumPy allow and traced arrays do not: assignment to elements, hashing."""


class OutsideReference(NotSupported):
    """A function whose program is kept uses a reference (`new_ref`) that was made outside."""


class NotLinear(FunctransError, NotImplementedError):
    """A function that is to be transposed is not linear."""


class MissingRule(FunctransError, NotImplementedError):
    """An operation lacks the rule that a transformation needs."""


class OpaqueCallback(FunctransError, ValueError):
    """A derivative of a Python callback was asked for: nobody knows what it computes."""


class CallbackResult(FunctransError, RuntimeError):
    """A Python callback returned something else than it was declared to return."""


class InvalidFormat(InvalidArgument, IndexError, KeyError):
    """A format string and the values to be put into it do not fit."""

    def __str__(self) -> str:
        return Exception.__str__(self)  # a KeyError's would show the message quoted


class UnhashableStatic(FunctransError, ValueError):
    """A static argument of `jit` or `pmap` cannot be hashed."""


class BatchSizeMismatch(FunctransError, ValueError):
    """`vmap` or `pmap` was given arguments whose mapped axes differ in size."""


class UnboundAxis(FunctransError, NameError):
    """A collective speaks of a mapped axis by a name that nothing around it has given."""


class TruncatedDtype(UserWarning):
    """A 64-bit type was asked for by name while 64-bit types are off. A warning, as in JAX."""


class ParseError(FunctransError, ValueError):
    """The text is not a program."""


class CheckError(FunctransError, TypeError):
    """A program is malformed: a variable used before it is assigned, or a type that is not what its
    operation gives."""


_hand_on(__name__)

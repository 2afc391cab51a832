"""One exception family.

Every class also derives from the built-in or `jax.errors` class that JAX raises for the same
misuse, so a script's `except` clauses go on working after its import is changed.
"""

from __future__ import annotations

import jax


class FunctransError(Exception):
    """Base of every error that functrans raises about a user's program."""

    def __init__(self, message: str):
        Exception.__init__(self, message)


class TypeMismatch(FunctransError, TypeError):
    """An operation was given operands whose shapes or dtypes it does not take."""


class ShapeMismatch(TypeMismatch, ValueError):
    """Operands whose shapes cannot be broadcast together."""


class InvalidArgument(FunctransError, ValueError):
    """An argument has a value that the function does not take (an axis out of range, ...)."""


class InvalidIndex(FunctransError, IndexError):
    """An index with more entries than the array has axes, or beyond a static bound."""


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


class NotSupported(FunctransError, TypeError):
    """What arrays of NumPy allow and traced arrays do not: assignment to elements, hashing."""


class NotLinear(FunctransError, NotImplementedError):
    """A function that is to be transposed is not linear."""


class MissingRule(FunctransError, NotImplementedError):
    """An operation lacks the rule that a transformation needs."""


class UnhashableStatic(FunctransError, ValueError):
    """A static argument of `jit` cannot be hashed."""


class BatchSizeMismatch(FunctransError, ValueError):
    """`vmap` was given arguments whose mapped axes differ in size."""


class ParseError(FunctransError, ValueError):
    """The text is not a program."""


class CheckError(FunctransError, TypeError):
    """A program is malformed: a variable used before it is assigned, or a type that is not what its
    operation gives."""

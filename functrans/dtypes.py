"""Dtypes and dtype promotion: the names of `jax.dtypes`."""

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any

from jax import dtypes as _dtypes

from functrans.loading import hand_on as _hand_on
from functrans.numpy.dtypes import untraced as _untraced

if _TYPE_CHECKING:
    from jax.dtypes import *


def result_type(*args: Any, return_weak_type_flag: bool = False) -> Any:  # type: ignore[no-redef]
    """Return the dtype that arrays, scalars and dtypes promote to in JAX.

    Arguments:
      return_weak_type_flag: also return whether it is weak.

    Source: `jax.dtypes.result_type`.

    Example:
      >>> from functrans import dtypes
      >>> dtypes.result_type(1, return_weak_type_flag=True)
      (dtype('int32'), True)
    """
    return _dtypes.result_type(*_untraced(args), return_weak_type_flag=return_weak_type_flag)


_hand_on(__name__)

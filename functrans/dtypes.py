"""Dtypes and dtype promotion: the names of `jax.dtypes`."""

from typing import Any

from jax import dtypes as _dtypes
from jax.dtypes import TypePromotionError as TypePromotionError
from jax.dtypes import bfloat16 as bfloat16
from jax.dtypes import canonicalize_dtype as canonicalize_dtype
from jax.dtypes import extended as extended
from jax.dtypes import finfo as finfo
from jax.dtypes import float0 as float0
from jax.dtypes import iinfo as iinfo
from jax.dtypes import issubdtype as issubdtype
from jax.dtypes import itemsize_bits as itemsize_bits
from jax.dtypes import prng_key as prng_key
from jax.dtypes import scalar_type_of as scalar_type_of

from functrans.loading import hand_on as _hand_on
from functrans.numpy.dtypes import untraced as _untraced


def result_type(*args: Any, return_weak_type_flag: bool = False) -> Any:
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

"""The names of `jax.scipy.sparse`."""

from functrans.loading import hand_on as _hand_on
from functrans.scipy.sparse import linalg as linalg

_hand_on(__name__)

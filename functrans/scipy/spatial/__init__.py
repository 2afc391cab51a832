"""The names of `jax.scipy.spatial`."""

from functrans.loading import hand_on as _hand_on
from functrans.scipy.spatial import transform as transform

_hand_on(__name__)

"""The names of `jax.scipy.cluster`."""

from functrans.loading import hand_on as _hand_on
from functrans.scipy.cluster import vq as vq

_hand_on(__name__)

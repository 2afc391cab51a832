"""`jax.experimental.jet`: Taylor mode."""

from functrans.api.jet import jet as jet
from functrans.loading import hand_on as _hand_on

__all__ = ["jet"]

_hand_on(__name__)

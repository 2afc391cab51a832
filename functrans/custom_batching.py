"""`jax.custom_batching`: functions with custom batching rules."""

from functrans.api.custom_rules import custom_vmap as custom_vmap
from functrans.loading import hand_on as _hand_on

_hand_on(__name__)

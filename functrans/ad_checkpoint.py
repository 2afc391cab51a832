"""The names of `jax.ad_checkpoint`."""

from functrans.api.checkpoint import checkpoint as checkpoint
from functrans.api.checkpoint import print_saved_residuals as print_saved_residuals
from functrans.api.checkpoint import remat as remat
from functrans.api.checkpoint import saved_residuals as saved_residuals
from functrans.loading import hand_on as _hand_on

_hand_on(__name__)

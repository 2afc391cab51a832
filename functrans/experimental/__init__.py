"""`jax.experimental`: what JAX keeps under this name."""

from typing import TYPE_CHECKING

from functrans.api.callbacks import io_callback as io_callback
from functrans.loading import hand_on as _hand_on

if TYPE_CHECKING:
    from jax.experimental import checkify as checkify
    from jax.experimental import mesh_utils as mesh_utils
    from jax.experimental import multihost_utils as multihost_utils
    from jax.experimental import ode as ode
    from jax.experimental import pallas as pallas
    from jax.experimental import sparse as sparse

_hand_on(__name__)

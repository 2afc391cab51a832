"""`jax.experimental`: what JAX keeps under this name."""

from functrans.api.callbacks import io_callback as io_callback

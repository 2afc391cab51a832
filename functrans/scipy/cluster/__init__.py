"""The names of `jax.scipy.cluster`."""

from functrans.scipy.cluster import vq as vq

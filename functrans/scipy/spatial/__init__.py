"""The names of `jax.scipy.spatial`."""

from functrans.scipy.spatial import transform as transform

"""The names of `jax.scipy.sparse`."""

from functrans.scipy.sparse import linalg as linalg

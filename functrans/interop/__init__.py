"""Where functrans and JAX meet."""

from functrans.interop import arrays as arrays

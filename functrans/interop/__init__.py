"""Interoperation of functrans and JAX. `from_jax` is loaded on first use."""

from functrans.loading import lazily as _lazily

with _lazily(__name__):
    from functrans.interop import jit_callers as jit_callers
    from functrans.interop.jax_functions import from_jax as from_jax
    from functrans.interop.takeover import take_over as take_over

"""`jax.lax` names over primitives/convolution.py."""

__all__: list[str] = []

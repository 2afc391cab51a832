"""`jax.lax` names over primitives/elementwise.py."""

__all__: list[str] = []

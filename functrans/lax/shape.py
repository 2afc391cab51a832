"""`jax.lax` names over primitives/shape.py."""

__all__: list[str] = []

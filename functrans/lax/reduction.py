"""`jax.lax` names over primitives/reduction.py."""

__all__: list[str] = []

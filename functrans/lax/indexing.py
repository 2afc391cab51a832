"""`jax.lax` names over primitives/indexing.py."""

__all__: list[str] = []

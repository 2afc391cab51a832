"""`jax.lax` names over primitives/sorting.py."""

__all__: list[str] = []

"""`jax.lax` names over primitives/contraction.py."""

__all__: list[str] = []

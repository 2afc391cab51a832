"""Primitives that move, broadcast, drop and join elements."""

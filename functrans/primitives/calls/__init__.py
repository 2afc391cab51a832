"""Calls of programs, of Python and of JAX; what they keep for later."""

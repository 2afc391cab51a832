"""Calls of programs, of Python and of JAX, and their residuals."""

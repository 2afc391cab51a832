"""Transformations of programs: differentiation, transposition, batching."""

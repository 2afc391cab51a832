"""Transformations for users: flatten the arguments, trace, rewrite, run."""

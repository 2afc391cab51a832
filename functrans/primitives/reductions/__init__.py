"""Reductions over axes or windows."""

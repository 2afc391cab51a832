"""Elementwise primitives."""

"""Primitives that read, write and order elements by index."""

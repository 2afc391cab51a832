"""Primitives for devices, meshes and platforms."""

"""Backends, which run programs: XLA, the NumPy reference, operations one by one."""

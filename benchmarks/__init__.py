"""functrans and JAX side by side: `python -m benchmarks`."""

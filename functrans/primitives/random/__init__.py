"""Random bits and PRNG keys."""

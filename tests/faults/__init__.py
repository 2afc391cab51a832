"""Planted faults: small edits of the package, each of which the tests must catch."""

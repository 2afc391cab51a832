"""Primitives, each a class with all its rules; `catalogue.py` lists the modules."""

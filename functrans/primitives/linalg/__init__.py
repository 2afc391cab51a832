"""Factorizations and solutions of linear systems."""

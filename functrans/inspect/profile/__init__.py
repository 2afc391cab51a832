"""Measured milliseconds per line; `report.profile` measures them."""

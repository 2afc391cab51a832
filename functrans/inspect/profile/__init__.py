"""Measured milliseconds per line; `entry.profile` measures them."""

"""Measured milliseconds by line; `entry.profile` measures them."""

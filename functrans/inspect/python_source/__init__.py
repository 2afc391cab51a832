"""Programs as NumPy source; `entry.to_python` writes it."""

"""Functions with rules of their own, and what is differentiated implicitly."""

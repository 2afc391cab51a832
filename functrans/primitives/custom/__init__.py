"""Functions with custom rules or implicit differentiation."""

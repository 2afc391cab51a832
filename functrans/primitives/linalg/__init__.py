"""Matrix factorizations and solvers of linear systems."""

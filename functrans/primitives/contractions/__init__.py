"""Sums of products: contractions, convolutions, Fourier transforms."""

"""Sums of products: contraction, convolution, Fourier transform."""

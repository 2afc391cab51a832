"""Integrals of samples."""

from functrans.numpy import trapezoid as trapezoid

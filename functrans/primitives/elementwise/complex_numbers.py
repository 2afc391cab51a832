"""Complex numbers and their parts.

Tangents and cotangents of complex numbers are complex. Their pairing is the real part of `ct * dx`,
so transposing does not conjugate.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from functrans.ir.types import ArrayType, dtype_class
from functrans.mlir import hlo
from functrans.primitives.base import LinearInput, Primitive
from functrans.primitives.elementwise.conversion import real_dtype
from functrans.primitives.elementwise.families import Binary, Unary, add, div, full_like, ge, mul, neg
from functrans.primitives.elementwise.selection import one_for_zero, select_n
from functrans.trace import typeof


def complex_dtype(dtype: Any) -> Any:
    """Return the complex dtype of a real or imaginary part."""
    narrow = ("float16", "bfloat16", "float32")
    whole = {"float64": "complex128", **dict.fromkeys(narrow, "complex64")}
    return np.dtype(whole.get(dtype.name, dtype))


class Part(Unary):
    """The real or the imaginary part."""

    def transpose(self, ct: Any, x: Any) -> Any:
        if self is real:
            return (complex_(ct, full_like(ct, 0)),)
        return (complex_(full_like(ct, 0), neg(ct)),)


class Conj(Unary):
    """The complex conjugate; for a real number, as a complex one."""

    def abstract_eval(self, x: ArrayType) -> ArrayType:
        made = super().abstract_eval(x)
        if x.dtype.name not in ("float32", "float64", "complex64", "complex128"):
            raise self.mismatch((x,), f"there is no complex dtype for {x.dtype}")
        return made

    def lower(self, ctx: Any, x: Any) -> Any:
        t = ctx.in_types[0]
        if dtype_class(t.dtype) != "complex":
            return hlo.complex(x, ctx.full(0, t))
        return hlo.complex(hlo.real(x), hlo.negate(hlo.imag(x)))

    def transpose(self, ct: Any, x: Any) -> Any:
        return (self(ct) if dtype_class(x.dtype) == "complex" else real(ct),)


class Complex(Binary):
    """x + i y."""

    linear_in: tuple[int, ...] = (0, 1)

    def abstract_eval(self, x: ArrayType, y: ArrayType) -> ArrayType:
        self.check_equal((x, y))
        if x.dtype.name not in ("float32", "float64"):
            raise self.mismatch((x, y), f"takes float32 or float64, not {x.dtype}")
        return ArrayType(x.shape, complex_dtype(x.dtype), x.weak_type and y.weak_type)

    def reference(self, x: Any, y: Any) -> Any:
        out = np.empty(x.shape, complex_dtype(x.dtype))
        out.real, out.imag = x, y
        return out

    def jvp(self, primals: Any, tangents: Any, out: Any) -> Any:
        return Primitive.jvp(self, primals, tangents, out)  # that of a linear operation

    def transpose(self, ct: Any, x: Any, y: Any) -> Any:
        return (
            real(ct) if isinstance(x, LinearInput) else None,
            neg(imag(ct)) if isinstance(y, LinearInput) else None,
        )


class Abs(Unary):
    """|x|; real for a complex number."""

    def jvp(self, primals: Any, tangents: Any, out: Any) -> Any:
        (x,), (dx,) = primals, tangents
        if dtype_class(typeof(x).dtype) != "complex":
            return mul(dx, select_n(ge(x, 0), full_like(x, -1), full_like(x, 1)))
        size = one_for_zero(out)  # divisions of real numbers: of complex ones XLA is slow
        return add(mul(real(dx), div(real(x), size)), mul(imag(dx), div(imag(x), size)))


real: Part = Part("real", ("complex",), linear=True, result=real_dtype)
imag: Part = Part("imag", ("complex",), linear=True, result=real_dtype)
conj: Conj = Conj("conj", ("float", "complex"), op=hlo.complex, linear=True, result=complex_dtype)
abs_: Abs = Abs("abs", ("int", "float", "complex"), via={"complex": jax.lax.abs}, result=real_dtype)
complex_: Complex = Complex("complex", ("float",), numpy=np.add, op=hlo.complex)

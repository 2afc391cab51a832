"""NumPy functions of arrays and tracers, with the names and signatures of `jax.numpy`.

What is not defined here is JAX's (loading.py).
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from jax.numpy import __array_api_version__ as __array_api_version__
from jax.numpy import __array_namespace_info__ as __array_namespace_info__

from functrans.loading import lazily as _lazily

if _TYPE_CHECKING:
    from typing import Any

    from jax.numpy import fft as fft
    from jax.numpy import linalg as linalg

    from functrans.numpy import operators as operators
    from functrans.numpy.arithmetic import *
    from functrans.numpy.creation import *
    from functrans.numpy.dtypes import *
    from functrans.numpy.einsums import *
    from functrans.numpy.linear import *
    from functrans.numpy.moments import *
    from functrans.numpy.reductions import *
    from functrans.numpy.selecting import *
    from functrans.numpy.shaping import *
    from functrans.numpy.taking import *
    from functrans.numpy.ufunc_methods import *
    from functrans.numpy.ufuncs import *

    def __getattr__(name: str) -> Any: ...

else:
    __getattr__, __dir__, _ = _lazily(
        __name__,
        {
            "functrans.numpy": "fft linalg operators",
            "functrans.numpy.arithmetic": (
                "around divmod floor_divide isnan logaddexp logaddexp2 mod pow power remainder round "
                "sinc trunc"
            ),
            "functrans.numpy.creation": (
                "arange array asarray empty empty_like full full_like ones ones_like zeros zeros_like"
            ),
            "functrans.numpy.dtypes": (
                "bfloat16 bool bool_ can_cast cdouble character complex128 complex64 complex_ "
                "complexfloating ComplexWarning csingle double dtype finfo flexible float16 float32 "
                "float4_e2m1fn float64 float6_e2m3fn float6_e3m2fn float8_e3m4 float8_e4m3 "
                "float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz "
                "float8_e8m0fnu float_ floating generic iinfo inexact int1 int16 int2 int32 int4 "
                "int64 int8 int_ integer isdtype issubdtype ndarray number object_ promote_types "
                "result_type signedinteger single uint uint1 uint16 uint2 uint32 uint4 uint64 uint8 "
                "unsignedinteger"
            ),
            "functrans.numpy.einsums": "einsum",
            "functrans.numpy.linear": "diag dot inner matmul outer tensordot vdot",
            "functrans.numpy.moments": "mean std var",
            "functrans.numpy.reductions": (
                "all amax amin any argmax argmin cumprod cumsum max min prod sum trace"
            ),
            "functrans.numpy.selecting": "astype clip where",
            "functrans.numpy.shaping": (
                "broadcast_shapes broadcast_to concatenate copy diagonal expand_dims "
                "matrix_transpose moveaxis ndim permute_dims ravel reshape shape size split squeeze "
                "stack swapaxes transpose unstack"
            ),
            "functrans.numpy.taking": "nonzero take take_along_axis",
            "functrans.numpy.ufunc_methods": "frompyfunc ufunc",
            "functrans.numpy.ufuncs": (
                "abs absolute acos acosh add arccos arccosh arcsin arcsinh arctan arctan2 arctanh "
                "asin asinh atan atan2 atanh bitwise_and bitwise_invert bitwise_left_shift "
                "bitwise_not bitwise_or bitwise_right_shift bitwise_xor cbrt ceil conj conjugate cos "
                "cosh divide equal exp exp2 expm1 floor greater greater_equal imag invert isfinite "
                "left_shift less less_equal log log1p logical_and logical_not logical_or logical_xor "
                "maximum minimum multiply negative nextafter not_equal positive real right_shift rint "
                "sign sin sinh sqrt square subtract tan tanh true_divide"
            ),
        },
        "functrans.numpy.ufunc_methods.shown",
    )

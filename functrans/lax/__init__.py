"""Operations with the names and signatures of `jax.lax`.

What is not defined here is JAX's (loading.py).
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from functrans.loading import lazily as _lazily

if _TYPE_CHECKING:
    from typing import Any

    from functrans.lax.barriers import *
    from functrans.lax.collective import *
    from functrans.lax.contraction import *
    from functrans.lax.control_flow import *
    from functrans.lax.convolution import *
    from functrans.lax.elementwise import *
    from functrans.lax.exchange import *
    from functrans.lax.indexing import *
    from functrans.lax.loops import *
    from functrans.lax.reduction import *

    def __getattr__(name: str) -> Any: ...

else:
    __getattr__, __dir__, _ = _lazily(
        __name__,
        {
            "functrans.lax.barriers": "optimization_barrier stop_gradient with_sharding_constraint",
            "functrans.lax.collective": "axis_index axis_size pmax pmean pmin psum",
            "functrans.lax.contraction": "batch_matmul dot dot_general DotAlgorithmPreset Precision",
            "functrans.lax.control_flow": "cond fori_loop switch while_loop",
            "functrans.lax.convolution": (
                "conv conv_dimension_numbers conv_general_dilated conv_with_general_padding "
                "ConvDimensionNumbers padtype_to_pads"
            ),
            "functrans.lax.elementwise": (
                "abs AccuracyMode acos acosh add asin asinh atan atan2 atanh bitcast_convert_type "
                "bitwise_and bitwise_not bitwise_or bitwise_xor cbrt ceil clamp clz complex conj "
                "convert_element_type cos cosh digamma div eq erf erf_inv erfc exp exp2 expm1 floor "
                "ge gt imag integer_pow is_finite le lgamma log log1p log2 logistic lt max min mul "
                "mulhi ne neg nextafter one_minus_square polygamma population_count pow "
                "random_gamma_grad real reciprocal reduce_precision rem round RoundingMethod rsqrt "
                "select select_n shift_left shift_right_arithmetic shift_right_logical sign sin sinh "
                "sqrt square sub tan tanh Tolerance zeta"
            ),
            "functrans.lax.exchange": (
                "all_gather all_to_all pbroadcast pcast ppermute pshuffle psum_scatter pswapaxes "
                "ragged_all_to_all"
            ),
            "functrans.lax.indexing": (
                "dynamic_index_in_dim dynamic_slice dynamic_slice_in_dim dynamic_update_index_in_dim "
                "dynamic_update_slice dynamic_update_slice_in_dim gather GatherDimensionNumbers "
                "GatherScatterMode index_take scatter scatter_add scatter_apply scatter_max "
                "scatter_min scatter_mul scatter_sub ScatterDimensionNumbers"
            ),
            "functrans.lax.loops": "associative_scan map scan",
            "functrans.lax.reduction": (
                "argmax argmin cumlogsumexp cummax cummin cumprod cumsum reduce_and reduce_max "
                "reduce_min reduce_or reduce_prod reduce_sum reduce_xor"
            ),
        },
        "functrans.ir.tracebacks.shown",
    )

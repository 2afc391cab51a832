"""Neural network functions with the names and signatures of `jax.nn`.

Functions that are not defined here are JAX's (loading.py).
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from functrans.loading import lazily as _lazily

if _TYPE_CHECKING:
    from typing import Any

    from functrans.nn.activations import *
    from functrans.nn.normalizing import *

    def __getattr__(name: str) -> Any: ...

else:
    __getattr__, __dir__, _ = _lazily(
        __name__,
        {
            "functrans.nn.activations": (
                "celu elu gelu glu hard_sigmoid hard_silu hard_swish hard_tanh identity leaky_relu "
                "log1mexp log_sigmoid mish relu relu6 selu sigmoid silu soft_sign softplus "
                "sparse_plus sparse_sigmoid squareplus swish tanh"
            ),
            "functrans.nn.normalizing": "log_softmax logmeanexp logsumexp one_hot softmax standardize",
        },
        "functrans.ir.tracebacks.shown",
    )

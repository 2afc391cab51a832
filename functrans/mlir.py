"""MLIR's Python bindings and the dialects that programs are lowered to, from jaxlib.

`jax.extend.mlir` has the same, but importing it also imports Pallas and every other dialect.
"""

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import chlo, func
from jaxlib.mlir.dialects import stablehlo as hlo
from jaxlib.mlir.ir import MLIRError

__all__ = ["MLIRError", "chlo", "func", "hlo", "ir"]

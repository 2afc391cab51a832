"""`jax.custom_derivatives`: functions with custom derivative rules."""

from jax.custom_derivatives import CustomVJPPrimal as CustomVJPPrimal
from jax.custom_derivatives import SymbolicZero as SymbolicZero
from jax.custom_derivatives import closure_convert as closure_convert
from jax.custom_derivatives import custom_gradient as custom_gradient
from jax.custom_derivatives import custom_vjp_primal_tree_values as custom_vjp_primal_tree_values
from jax.custom_derivatives import zero_from_primal as zero_from_primal

from functrans.api.custom_rules import custom_jvp as custom_jvp
from functrans.api.custom_rules import custom_vjp as custom_vjp
from functrans.loading import hand_on as _hand_on

_hand_on(__name__)

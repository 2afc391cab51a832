"""functrans: composable function transformations for array programs. The public API.

Importing this package loads almost nothing. Each name below is imported on first access.
"""

from functrans.loading import lazily as _lazily

__version__: str = "0.2.0"

with _lazily(__name__):
    from functrans import ad_checkpoint as ad_checkpoint
    from functrans import custom_batching as custom_batching
    from functrans import custom_derivatives as custom_derivatives
    from functrans import debug as debug
    from functrans import dtypes as dtypes
    from functrans import errors as errors
    from functrans import experimental as experimental
    from functrans import interop as interop
    from functrans import ir as ir
    from functrans import lax as lax
    from functrans import nn as nn
    from functrans import numpy as numpy
    from functrans import passes as passes
    from functrans import random as random
    from functrans import tree as tree
    from functrans import tree_util as tree_util
    from functrans import typing as typing
    from functrans.api.callbacks import io_callback as io_callback
    from functrans.api.callbacks import pure_callback as pure_callback
    from functrans.api.checkpoint import checkpoint as checkpoint
    from functrans.api.checkpoint import remat as remat
    from functrans.api.custom_rules import custom_jvp as custom_jvp
    from functrans.api.custom_rules import custom_vjp as custom_vjp
    from functrans.api.derivatives import grad as grad
    from functrans.api.derivatives import jvp as jvp
    from functrans.api.derivatives import linear_transpose as linear_transpose
    from functrans.api.derivatives import linearize as linearize
    from functrans.api.derivatives import value_and_grad as value_and_grad
    from functrans.api.derivatives import vjp as vjp
    from functrans.api.jacobians import fwd_and_bwd as fwd_and_bwd
    from functrans.api.jacobians import hessian as hessian
    from functrans.api.jacobians import jacfwd as jacfwd
    from functrans.api.jacobians import jacrev as jacobian  # noqa: F401
    from functrans.api.jacobians import jacrev as jacrev
    from functrans.api.jit import clear_caches as clear_caches
    from functrans.api.jit import jit as jit
    from functrans.api.memory import keep_memory as keep_memory
    from functrans.api.parallel import pmap as pmap
    from functrans.api.parallel import shard_map as shard_map
    from functrans.api.programs import eval_shape as eval_shape
    from functrans.api.programs import evaluate as evaluate
    from functrans.api.programs import interpret as interpret
    from functrans.api.programs import make_ir as make_ir
    from functrans.api.programs import make_jaxpr as make_jaxpr
    from functrans.api.scopes import ensure_compile_time_eval as ensure_compile_time_eval
    from functrans.api.scopes import named_call as named_call
    from functrans.api.scopes import named_scope as named_scope
    from functrans.api.vmap import vmap as vmap
    from functrans.inspect.cache import explain_cache as explain_cache
    from functrans.inspect.compare import compare as compare
    from functrans.inspect.cost import cost as cost
    from functrans.inspect.doctor import doctor as doctor
    from functrans.inspect.explore import explore as explore
    from functrans.inspect.nans import find_nan as find_nan
    from functrans.inspect.profile.report import profile as profile
    from functrans.inspect.python_source.writer import to_python as to_python
    from functrans.jax_names import *
    from functrans.numpy import ndarray as Array  # noqa: F401
    from functrans.trace import typeof as typeof

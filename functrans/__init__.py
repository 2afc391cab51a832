"""functrans: composable transformations of array programs. The public face.

Importing it loads next to nothing; what is named below is loaded when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from functrans.loading import lazily as _lazily

if TYPE_CHECKING:
    from jax import Device as Device
    from jax import NamedSharding as NamedSharding
    from jax import P as P
    from jax import ShapeDtypeStruct as ShapeDtypeStruct
    from jax import block_until_ready as block_until_ready
    from jax import config as config
    from jax import default_backend as default_backend
    from jax import default_device as default_device
    from jax import default_matmul_precision as default_matmul_precision
    from jax import device_count as device_count
    from jax import device_get as device_get
    from jax import devices as devices
    from jax import effects_barrier as effects_barrier
    from jax import enable_x64 as enable_x64
    from jax import local_devices as local_devices
    from jax import make_mesh as make_mesh
    from jax import sharding as sharding

    from functrans import ad_checkpoint as ad_checkpoint
    from functrans import custom_batching as custom_batching
    from functrans import custom_derivatives as custom_derivatives
    from functrans import debug as debug
    from functrans import dtypes as dtypes
    from functrans import errors as errors
    from functrans import experimental as experimental
    from functrans import image as image
    from functrans import interop as interop
    from functrans import ir as ir
    from functrans import lax as lax
    from functrans import nn as nn
    from functrans import numpy as numpy
    from functrans import ops as ops
    from functrans import passes as passes
    from functrans import random as random
    from functrans import scipy as scipy
    from functrans import tree as tree
    from functrans import tree_util as tree_util
    from functrans.api.callbacks import io_callback as io_callback
    from functrans.api.callbacks import pure_callback as pure_callback
    from functrans.api.checkpoint import checkpoint as checkpoint
    from functrans.api.checkpoint import checkpoint_policies as checkpoint_policies
    from functrans.api.checkpoint import remat as remat
    from functrans.api.custom_rules import closure_convert as closure_convert
    from functrans.api.custom_rules import custom_gradient as custom_gradient
    from functrans.api.custom_rules import custom_jvp as custom_jvp
    from functrans.api.custom_rules import custom_vjp as custom_vjp
    from functrans.api.derivatives import grad as grad
    from functrans.api.derivatives import hessian as hessian
    from functrans.api.derivatives import jacfwd as jacfwd
    from functrans.api.derivatives import jacrev as jacrev
    from functrans.api.derivatives import jvp as jvp
    from functrans.api.derivatives import linear_transpose as linear_transpose
    from functrans.api.derivatives import linearize as linearize
    from functrans.api.derivatives import value_and_grad as value_and_grad
    from functrans.api.derivatives import vjp as vjp
    from functrans.api.devices import device_put as device_put
    from functrans.api.jit import clear_caches as clear_caches
    from functrans.api.jit import disable_jit as disable_jit
    from functrans.api.jit import jit as jit
    from functrans.api.programs import eval_shape as eval_shape
    from functrans.api.programs import evaluate as evaluate
    from functrans.api.programs import interpret as interpret
    from functrans.api.programs import make_ir as make_ir
    from functrans.api.shard_map import shard_map as shard_map
    from functrans.api.vmap import vmap as vmap
    from functrans.inspect.cache import explain_cache as explain_cache
    from functrans.inspect.compare import compare as compare
    from functrans.inspect.cost import cost as cost
    from functrans.inspect.explore.entry import explore as explore
    from functrans.inspect.nans import find_nan as find_nan
    from functrans.inspect.python_source.entry import to_python as to_python
    from functrans.numpy import ndarray as Array  # noqa: F401
else:
    __getattr__, __dir__, __all__ = _lazily(__name__, {
        "jax": (
            "Device NamedSharding P ShapeDtypeStruct block_until_ready config default_backend "
            "default_device default_matmul_precision device_count device_get devices "
            "effects_barrier enable_x64 local_devices make_mesh sharding"
        ),
        "functrans": (
            "ad_checkpoint custom_batching custom_derivatives debug dtypes errors "
            "experimental image interop ir lax nn numpy ops passes random scipy tree tree_util"
        ),
        "functrans.api.callbacks": "io_callback pure_callback",
        "functrans.api.checkpoint": "checkpoint checkpoint_policies remat",
        "functrans.api.custom_rules": "closure_convert custom_gradient custom_jvp custom_vjp",
        "functrans.api.derivatives": (
            "grad hessian jacfwd jacrev jvp linear_transpose linearize value_and_grad vjp"
        ),
        "functrans.api.devices": "device_put",
        "functrans.api.jit": "clear_caches disable_jit jit",
        "functrans.api.programs": "eval_shape evaluate interpret make_ir",
        "functrans.api.shard_map": "shard_map",
        "functrans.api.vmap": "vmap",
        "functrans.inspect.cache": "explain_cache",
        "functrans.inspect.compare": "compare",
        "functrans.inspect.cost": "cost",
        "functrans.inspect.explore.entry": "explore",
        "functrans.inspect.nans": "find_nan",
        "functrans.inspect.python_source.entry": "to_python",
        "functrans.numpy": "ndarray=Array",
    })  # fmt: skip

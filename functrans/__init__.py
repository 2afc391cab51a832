"""functrans: composable function transformations for array programs. The public API.

Importing this package loads almost nothing. Each name below is imported on first access.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from functrans.loading import lazily as _lazily

__version__: str = "0.2.0"

if TYPE_CHECKING:
    from jax import Device as Device
    from jax import NamedSharding as NamedSharding
    from jax import P as P
    from jax import Ref as Ref
    from jax import ShapeDtypeStruct as ShapeDtypeStruct
    from jax import Shard as Shard
    from jax import block_until_ready as block_until_ready
    from jax import check_tracer_leaks as check_tracer_leaks
    from jax import checking_leaks as checking_leaks
    from jax import closure_convert as closure_convert
    from jax import config as config
    from jax import copy_to_host_async as copy_to_host_async
    from jax import custom_gradient as custom_gradient
    from jax import debug_infs as debug_infs
    from jax import debug_key_reuse as debug_key_reuse
    from jax import debug_nans as debug_nans
    from jax import default_backend as default_backend
    from jax import default_device as default_device
    from jax import default_matmul_precision as default_matmul_precision
    from jax import default_prng_impl as default_prng_impl
    from jax import device_count as device_count
    from jax import device_get as device_get
    from jax import devices as devices
    from jax import disable_jit as disable_jit
    from jax import distributed as distributed
    from jax import dlpack as dlpack
    from jax import ds as ds
    from jax import effects_barrier as effects_barrier
    from jax import empty_ref as empty_ref
    from jax import enable_checks as enable_checks
    from jax import enable_custom_prng as enable_custom_prng
    from jax import enable_x64 as enable_x64
    from jax import explain_cache_misses as explain_cache_misses
    from jax import float0 as float0
    from jax import free_ref as free_ref
    from jax import freeze as freeze
    from jax import host_count as host_count
    from jax import host_id as host_id
    from jax import host_ids as host_ids
    from jax import image as image
    from jax import legacy_prng_key as legacy_prng_key
    from jax import live_arrays as live_arrays
    from jax import local_device_count as local_device_count
    from jax import local_devices as local_devices
    from jax import log_compiles as log_compiles
    from jax import make_array_from_callback as make_array_from_callback
    from jax import make_array_from_process_local_data as make_array_from_process_local_data
    from jax import make_array_from_single_device_arrays as make_array_from_single_device_arrays
    from jax import make_mesh as make_mesh
    from jax import make_user_context as make_user_context
    from jax import memory as memory
    from jax import monitoring as monitoring
    from jax import new_ref as new_ref
    from jax import no_execution as no_execution
    from jax import no_tracing as no_tracing
    from jax import numpy_dtype_promotion as numpy_dtype_promotion
    from jax import numpy_rank_promotion as numpy_rank_promotion
    from jax import ops as ops
    from jax import print_environment_info as print_environment_info
    from jax import process_count as process_count
    from jax import process_index as process_index
    from jax import process_indices as process_indices
    from jax import profiler as profiler
    from jax import ref as ref
    from jax import reshard as reshard
    from jax import scipy as scipy
    from jax import set_mesh as set_mesh
    from jax import sharding as sharding
    from jax import smap as smap
    from jax import softmax_custom_jvp as softmax_custom_jvp
    from jax import stages as stages
    from jax import thread_guard as thread_guard
    from jax import threefry_partitionable as threefry_partitionable
    from jax import transfer_guard as transfer_guard
    from jax import transfer_guard_device_to_device as transfer_guard_device_to_device
    from jax import transfer_guard_device_to_host as transfer_guard_device_to_host
    from jax import transfer_guard_host_to_device as transfer_guard_host_to_device

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
    from functrans.api.checkpoint import checkpoint_policies as checkpoint_policies
    from functrans.api.checkpoint import remat as remat
    from functrans.api.custom_rules import custom_jvp as custom_jvp
    from functrans.api.custom_rules import custom_vjp as custom_vjp
    from functrans.api.derivatives import grad as grad
    from functrans.api.derivatives import jvp as jvp
    from functrans.api.derivatives import linear_transpose as linear_transpose
    from functrans.api.derivatives import linearize as linearize
    from functrans.api.derivatives import value_and_grad as value_and_grad
    from functrans.api.derivatives import vjp as vjp
    from functrans.api.devices import device_put as device_put
    from functrans.api.devices import keep_memory as keep_memory
    from functrans.api.jacobians import fwd_and_bwd as fwd_and_bwd
    from functrans.api.jacobians import hessian as hessian
    from functrans.api.jacobians import jacfwd as jacfwd
    from functrans.api.jacobians import jacrev as jacobian  # noqa: F401
    from functrans.api.jacobians import jacrev as jacrev
    from functrans.api.jit import clear_caches as clear_caches
    from functrans.api.jit import jit as jit
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
    from functrans.inspect.profile.entry import profile as profile
    from functrans.inspect.python_source.writer import to_python as to_python
    from functrans.numpy import ndarray as Array  # noqa: F401
    from functrans.trace import typeof as typeof
else:
    __getattr__, __dir__, __all__ = _lazily(
        __name__,
        {
            "jax": (
                "Device NamedSharding P Ref ShapeDtypeStruct Shard block_until_ready "
                "check_tracer_leaks checking_leaks closure_convert config copy_to_host_async "
                "custom_gradient debug_infs debug_key_reuse debug_nans default_backend "
                "default_device default_matmul_precision default_prng_impl device_count "
                "device_get devices disable_jit distributed dlpack ds effects_barrier empty_ref "
                "enable_checks enable_custom_prng enable_x64 explain_cache_misses float0 free_ref "
                "freeze host_count host_id host_ids legacy_prng_key live_arrays "
                "local_device_count local_devices log_compiles make_array_from_callback "
                "make_array_from_process_local_data make_array_from_single_device_arrays "
                "make_mesh make_user_context memory monitoring new_ref no_execution no_tracing "
                "numpy_dtype_promotion numpy_rank_promotion print_environment_info process_count "
                "process_index process_indices profiler ref reshard set_mesh sharding smap "
                "softmax_custom_jvp stages thread_guard threefry_partitionable transfer_guard "
                "transfer_guard_device_to_device transfer_guard_device_to_host "
                "transfer_guard_host_to_device"
            ),
            "functrans": (
                "ad_checkpoint custom_batching custom_derivatives debug dtypes errors "
                "experimental image interop ir lax nn numpy ops passes random scipy tree tree_util "
                "typing"
            ),
            "functrans.api.callbacks": "io_callback pure_callback",
            "functrans.api.checkpoint": "checkpoint checkpoint_policies remat",
            "functrans.api.custom_rules": "custom_jvp custom_vjp",
            "functrans.api.derivatives": ("grad jvp linear_transpose linearize value_and_grad vjp"),
            "functrans.api.devices": "device_put keep_memory",
            "functrans.api.jacobians": "fwd_and_bwd hessian jacfwd jacrev jacrev=jacobian",
            "functrans.api.jit": "clear_caches jit",
            "functrans.api.programs": "eval_shape evaluate interpret make_ir make_jaxpr",
            "functrans.api.scopes": "ensure_compile_time_eval named_call named_scope",
            "functrans.api.parallel": "pmap shard_map",
            "functrans.api.vmap": "vmap",
            "functrans.inspect.cache": "explain_cache",
            "functrans.inspect.compare": "compare",
            "functrans.inspect.cost": "cost",
            "functrans.inspect.doctor": "doctor",
            "functrans.inspect.explore": "explore",
            "functrans.inspect.nans": "find_nan",
            "functrans.inspect.profile.entry": "profile",
            "functrans.inspect.python_source.writer": "to_python",
            "functrans.numpy": "ndarray=Array",
            "functrans.trace": "typeof",
        },
    )

"""functrans: composable transformations of array programs. The public face; no code."""

from jax import Device as Device
from jax import ShapeDtypeStruct as ShapeDtypeStruct
from jax import block_until_ready as block_until_ready
from jax import config as config
from jax import default_backend as default_backend
from jax import default_device as default_device
from jax import default_matmul_precision as default_matmul_precision
from jax import device_count as device_count
from jax import device_get as device_get
from jax import devices as devices
from jax import enable_x64 as enable_x64
from jax import local_devices as local_devices
from jax import sharding as sharding
from jax import tree_util as tree_util

from functrans import errors as errors
from functrans import interop as interop
from functrans import ir as ir
from functrans import lax as lax
from functrans import nn as nn
from functrans import numpy as numpy
from functrans import random as random
from functrans import tree as tree
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
from functrans.api.jit import jit as jit
from functrans.api.programs import eval_shape as eval_shape
from functrans.api.programs import interpret as interpret
from functrans.api.programs import make_ir as make_ir
from functrans.api.vmap import vmap as vmap
from functrans.numpy import ndarray as Array  # noqa: F401

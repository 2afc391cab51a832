"""Functions of neural networks with the names and signatures of `jax.nn`."""

from functrans.nn.activations import *
from functrans.nn.normalizing import *

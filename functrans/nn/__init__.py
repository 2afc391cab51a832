"""Functions of neural networks with the names and signatures of `jax.nn`."""

from functrans.nn import initializers as initializers
from functrans.nn.activations import *
from functrans.nn.attention import *
from functrans.nn.normalizing import *

"""Vector quantisation, by JAX's own program."""

from functrans.scipy.arguments import imported

vq = imported(
    "vq", "The nearest code of each observation, and its distance.", "obs, code_book",
    (), "cluster.vq",
)  # fmt: skip

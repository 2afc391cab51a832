"""PLACEHOLDER so that imports work: the engineer of indexing overwrites this file."""

__all__: list = []


def _later(*args, **kwargs):
    raise RuntimeError("functrans.numpy.indexing has not landed")


getitem = setitem = At = take = take_along_axis = nonzero = _later

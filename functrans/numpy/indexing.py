"""Indexing: x[index], x.at[index], take, nonzero and related functions.

index_structure   index -> its structure, and the arrays in it
index_plans       structure and shape -> which primitives read or write those elements
reading, writing  x[...] and x.at[...]
taking            functions
"""

from functrans.numpy.reading import getitem as getitem
from functrans.numpy.taking import nonzero as nonzero
from functrans.numpy.taking import take as take
from functrans.numpy.taking import take_along_axis as take_along_axis
from functrans.numpy.writing import At as At
from functrans.numpy.writing import AtRef as AtRef
from functrans.numpy.writing import setitem as setitem

"""JAX's programs (jaxprs) as functrans operations.

walk.py runs a jaxpr equation by equation; the other modules hold the table of what each JAX
primitive is here. Importing this package fills the table.
"""

from functrans.interop.jaxprs import arrays as arrays
from functrans.interop.jaxprs import calls as calls
from functrans.interop.jaxprs import effects as effects
from functrans.interop.jaxprs import matrices as matrices
from functrans.interop.jaxprs import opaque as opaque

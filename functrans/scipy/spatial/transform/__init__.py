"""Rotations in three dimensions, and interpolation between them."""

from functrans.scipy.spatial.transform.rotation import Rotation as Rotation
from functrans.scipy.spatial.transform.slerp import Slerp as Slerp

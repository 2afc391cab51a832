"""Rotations in three dimensions, and interpolation between them."""

from functrans.loading import hand_on as _hand_on
from functrans.scipy.spatial.transform.rotation import Rotation as Rotation
from functrans.scipy.spatial.transform.slerp import Slerp as Slerp

_hand_on(__name__)

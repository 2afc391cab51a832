"""What speaks of devices, meshes and platforms."""

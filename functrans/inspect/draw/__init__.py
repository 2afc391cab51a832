"""Pictures of programs; `entry.draw` writes them."""

"""One page with all stages of a function; `entry.explore` writes it."""

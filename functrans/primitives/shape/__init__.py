"""Operations that move, repeat, drop and join elements."""

"""Operations that do the same with each element."""

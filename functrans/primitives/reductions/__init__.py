"""Operations that fold axes or windows."""

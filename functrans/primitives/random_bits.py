"""Operations on bits of the random number generators."""

"""Operations that read, write and order elements by their places."""

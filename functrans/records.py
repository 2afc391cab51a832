"""Named tuples whose classes take no time to make.

`typing.NamedTuple` compiles code for each class, for 0.2 to 0.3 ms. Before its first result functrans
makes fifty such classes.
"""

from __future__ import annotations

from _collections import _tuplegetter
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:

    class _Fields(type):
        """The class of `NamedTuple` and of each class derived from it."""

        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type:
            fields = tuple(body.get("__annotations__", ()))
            if fields:
                body["_fields"] = body["__match_args__"] = fields
                body["_field_defaults"] = {f: body[f] for f in fields if f in body}
                body |= {f: _tuplegetter(i, f"Field {i}.") for i, f in enumerate(fields)}
            return super().__new__(cls, name, bases, {"__slots__": (), **body})

    class NamedTuple(tuple, metaclass=_Fields):
        """Base class of a tuple with named fields, the annotations of the class.

        Source: `typing.NamedTuple`.

        Example:
          >>> class Point(NamedTuple):
          ...     x: float
          ...     y: float = 0.0
          >>> Point(1.0)
          Point(x=1.0, y=0.0)
        """

        def __new__(cls, *args: Any, **named: Any) -> Self:
            missing = cls._fields[len(args) :]
            try:
                args += tuple([named.pop(f) if f in named else cls._field_defaults[f] for f in missing])
            except KeyError as field:
                raise TypeError(f"{cls.__name__}() is missing the field {field}") from None
            if named or len(args) > len(cls._fields):
                raise TypeError(f"{cls.__name__}() has the fields {cls._fields}, got {args} and {named}")
            return tuple.__new__(cls, args)

        def __getnewargs__(self) -> tuple[Any, ...]:
            return tuple(self)

        def __repr__(self) -> str:
            return f"{type(self).__name__}({', '.join([f'{k}={x!r}' for k, x in self._asdict().items()])})"

        @classmethod
        def _make(cls, values: Any) -> Self:
            return cls(*values)

        def _replace(self, **named: Any) -> Self:
            return type(self)(**{**self._asdict(), **named})

        def _asdict(self) -> dict[str, Any]:
            return dict(zip(self._fields, self, strict=True))

"""Names that scripts give to what they record."""

from __future__ import annotations

from tensortap.exceptions import InvalidArgumentError, InvalidTypeError


def check_name(method: str, name: object) -> str:
    """Give a name back that can be one.

    Parameters
    ----------
    method
        Who asks, for the message.

    Raises
    ------
    InvalidTypeError
        It is no string.
    InvalidArgumentError
        It is empty, or has characters that UTF-8 cannot encode (lone surrogates).
    """
    if not isinstance(name, str):
        raise InvalidTypeError(f"{method} takes a name that is a str, not {type(name).__name__}")
    if not name:
        raise InvalidArgumentError(f"{method} needs a name, not an empty str")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"{method}: the name {name!r} is not UTF-8: {error}") from None
    return name

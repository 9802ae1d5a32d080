"""The strict shapes of what crosses the wire, and the check of foreign data against one.

pydantic, strict, no extra field. The names are the protocol's (camelCase); inside, everything is a plain
value with our own names.
"""

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from herd.core.errors import InvalidParams
from herd.core.limits import CODE_CHARACTERS, CUSTODY_ID_CHARACTERS, MESSAGE_ID_CHARACTERS
from herd.core.text import printable

MessageId = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$", max_length=MESSAGE_ID_CHARACTERS)]
CustodyId = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$", max_length=CUSTODY_ID_CHARACTERS)]
PeerId = Annotated[str, Field(pattern=r"^peer-[0-9a-f]{32}$")]
Code = Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]*$", max_length=CODE_CHARACTERS)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Shape = TypeVar("Shape", bound=BaseModel)
Milliseconds = Annotated[int, Field(ge=0, lt=2**53)]


class Wire(BaseModel):
    """A strict shape: exact types, no unknown field, camelCase outside."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        validate_by_name=False,
        # A process that answers its first call pays for the shapes it meets, not for all of them.
        defer_build=True,
    )


def checked(shape: type[Shape], value: Any) -> Shape:
    """Check foreign data against a shape.

    Raises:
        InvalidParams: it does not fit; the message names the first field that does not, `field` repeats it.
    """
    try:
        return shape.model_validate(value)
    except ValidationError as fault:
        first = fault.errors(include_url=False, include_input=False, include_context=False)[0]
        # An unknown field has the name that its sender chose.
        field = printable(".".join(str(part) for part in first["loc"]))
        raise InvalidParams(f"{field or 'params'}: {first['msg']}", field=field) from None

"""An image sent with a question to a model that can see. It is stored nowhere."""

from __future__ import annotations

import base64
from dataclasses import dataclass

MAX_IMAGE_SIZE = 2 * 1024 * 1024
"""The largest image: with the prompt it fits into the agent server's default limit on requests."""

_TOKENS_PER_IMAGE = 1_500
_WEBP_FORM_TYPE = slice(8, 12)  # the form type in the header of a RIFF file


class UnusableImage(ValueError):
    """Data that is not an image that models accept; the message says what is."""


@dataclass(frozen=True, slots=True, repr=False)
class Image:
    """An image and its media type."""

    type: str
    data: bytes

    @classmethod
    def from_bytes(cls, data: bytes) -> Image:
        """Return the image in a file, its type detected by the first bytes. Raises
        UnusableImage."""
        if len(data) > MAX_IMAGE_SIZE:
            raise UnusableImage(f"an image has at most {MAX_IMAGE_SIZE // 1024 // 1024} MB")
        kind = _type_of(data)
        if not kind:
            raise UnusableImage("an image is a PNG, JPEG, GIF or WebP file")
        return cls(kind, data)

    def __repr__(self) -> str:
        """Return the size, not the content."""
        return f"<Image {self.type}, {len(self.data)} bytes>"

    @property
    def tokens(self) -> int:
        """The approximate number of tokens that a model reads for it, whatever its size."""
        return _TOKENS_PER_IMAGE

    @property
    def url(self) -> str:
        """The `data:` URL (RFC 2397) for a chat request."""
        return f"data:{self.type};base64,{base64.b64encode(self.data).decode('ascii')}"


def _type_of(data: bytes) -> str:
    """Return the media type by the file's signature, "" for none that models accept."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data.startswith(b"RIFF") and data[_WEBP_FORM_TYPE] == b"WEBP":
        return "image/webp"
    return ""

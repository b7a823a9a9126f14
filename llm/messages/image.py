"""An image that goes with a question to a model that can see. It is kept nowhere."""

from __future__ import annotations

import base64
from dataclasses import dataclass

MOST_BYTES = 2 * 1024 * 1024
"""Of an image: with the prompt it fits into a request of the agent server's default size."""

_TOKENS = 1_500
_WEBP = slice(8, 12)


class UnusableImage(ValueError):
    """It is no image that models take; the text says what would be."""


@dataclass(frozen=True, slots=True, repr=False)
class Image:
    """An image by its media type."""

    type: str
    data: bytes

    @classmethod
    def from_bytes(cls, data: bytes) -> Image:
        """Return the image in a file, by how that begins. Raises UnusableImage."""
        if len(data) > MOST_BYTES:
            raise UnusableImage(f"an image has at most {MOST_BYTES // 1024 // 1024} MB")
        kind = _type_of(data)
        if not kind:
            raise UnusableImage("an image is a PNG, JPEG, GIF or WebP file")
        return cls(kind, data)

    def __repr__(self) -> str:
        """Tell the size, not what is shown."""
        return f"<Image {self.type}, {len(self.data)} bytes>"

    @property
    def tokens(self) -> int:
        """About how many tokens a model reads for it, whatever its size."""
        return _TOKENS

    @property
    def url(self) -> str:
        """The `data:` URL, as chat requests have it."""
        return f"data:{self.type};base64,{base64.b64encode(self.data).decode('ascii')}"


def _type_of(data: bytes) -> str:
    """Return the media type, "" for none that models take."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data.startswith(b"RIFF") and data[_WEBP] == b"WEBP":
        return "image/webp"
    return ""

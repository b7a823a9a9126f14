"""An image sent with a question to a model that can see. It is stored nowhere."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass

MAX_IMAGE_SIZE = 2 * 1024 * 1024
"""The largest image: with the prompt it fits into the agent server's default limit on requests."""

_TOKENS_PER_IMAGE = 1_500
_SIGNATURE = re.compile(
    rb"(?P<png>\x89PNG\r\n\x1a\n)|(?P<jpeg>\xff\xd8\xff)|(?P<gif>GIF8[79]a)"
    rb"|(?P<webp>RIFF.{4}WEBP)",
    re.DOTALL,
)


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
        kind = _SIGNATURE.match(data)
        if not kind:
            raise UnusableImage("an image is a PNG, JPEG, GIF or WebP file")
        return cls(f"image/{kind.lastgroup}", data)

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

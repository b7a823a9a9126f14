"""Settings table `[pages]`: reading web pages and searching the web."""

from __future__ import annotations

from typing import ClassVar
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from terrarium.config import Settings

PUBLIC_ENGINES = "ddgs"
"""Value of `search` for the metasearch library of that name."""


class PagesSettings(Settings):
    """Reading pages of the web, and searching it (docs/pages.md). Needs the extra `pages`."""

    table: ClassVar[str] = "pages"

    read: bool = Field(
        True,
        description="whether models may open pages whose addresses people write; only public"
        " addresses are ever opened",
    )
    search: str = Field(
        "",
        description='what models search the web with: "ddgs" (public search engines, by the library'
        ' of that name), the address of a SearXNG server, or "" for nothing',
    )

    @field_validator("search")
    @classmethod
    def _is_an_engine(cls, value: str) -> str:
        parts = urlsplit(value)
        is_address = parts.scheme in ("http", "https") and parts.hostname
        if value not in ("", PUBLIC_ENGINES) and not is_address:
            raise ValueError(
                f'write "{PUBLIC_ENGINES}", or the address of a SearXNG server, "https://..."'
            )
        return value.rstrip("/")

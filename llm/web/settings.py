"""Settings table `[pages]`: reading web pages and searching the web."""

from __future__ import annotations

from typing import Annotated, ClassVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from terrarium.config import Settings

PUBLIC_ENGINES = "ddgs"
"""Value of `search` for the metasearch library of that name."""


def _search(text: str) -> str:
    if text in ("", PUBLIC_ENGINES):
        return text
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(
            f'write "{PUBLIC_ENGINES}", or the address of a SearXNG server, "https://..."'
        )
    return text.rstrip("/")


class PagesSettings(Settings):
    """Reading pages of the web, and searching it (docs/pages.md). Needs the extra `pages`."""

    table: ClassVar[str] = "pages"

    read: bool = Field(
        True,
        description="whether models may open pages whose addresses people write; only public"
        " addresses are ever opened",
    )
    search: Annotated[str, AfterValidator(_search)] = Field(
        "",
        description='what models search the web with: "ddgs" (public search engines, by the library'
        ' of that name), the address of a SearXNG server, or "" for nothing',
    )

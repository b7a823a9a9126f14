"""What the search answers with."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from pydantic import BaseModel, Field

from harnesses.web.api.models import LogMessage
from storage.search.models import Facets, Hit, SearchPage


class Snippet(BaseModel):
    """The part of a line that shows why it was found."""

    text: str = Field(examples=["the frogs are awake"])
    marks: list[tuple[int, int]] = Field(
        description="what to highlight, each from a character of `text` to another",
        examples=[[[4, 9]]],
    )


class SearchHit(LogMessage):
    """A line that was found."""

    snippet: Snippet

    @classmethod
    def from_hit(cls, hit: Hit) -> SearchHit:
        """The public form of a hit."""
        snippet = Snippet(text=hit.snippet.text, marks=list(hit.snippet.marks))
        return cls(**LogMessage.from_event(hit.event).model_dump(), snippet=snippet)


class FacetCount(BaseModel):
    """How many of the newest hits have a value in common."""

    value: str = Field(examples=["irc/#terrarium"])
    count: int


class FacetCounts(BaseModel):
    """How the newest few hundred hits spread: channels and nicks with the most first, months in
    UTC with the newest first."""

    channels: list[FacetCount]
    nicks: list[FacetCount]
    months: list[FacetCount]

    @classmethod
    def from_facets(cls, facets: Facets) -> FacetCounts:
        """The public form of facets."""
        channels = [(f"{place.network}/{place.channel}", n) for place, n in facets.channels]
        return cls(
            channels=_facet_counts(channels),
            nicks=_facet_counts(facets.nicks),
            months=_facet_counts(facets.months),
        )


class SearchResults(BaseModel):
    """Lines that people said; `next_cursor` fetches the next page."""

    results: list[SearchHit]
    next_cursor: str | None = Field(examples=["1772366400000.0.0"])
    count: int | None = Field(description="how many there are, on the first page only")
    more_than_counted: bool = Field(description="there are more than `count`, or may be")
    searched_back_to: datetime | None = Field(
        description="set when a hard search used up its time before it came to the beginning:"
        " it came back to this time, and `next_cursor` goes on from there"
    )
    facets: FacetCounts | None = Field(description="on the first page only")

    @classmethod
    def from_page(cls, page: SearchPage, *, first: bool) -> SearchResults:
        """The public form of a page."""
        return cls(
            results=[SearchHit.from_hit(hit) for hit in page.hits],
            next_cursor=page.next_cursor,
            count=page.count if first else None,
            more_than_counted=page.more_than_counted,
            searched_back_to=page.searched_back_to,
            facets=FacetCounts.from_facets(page.facets) if first else None,
        )


def _facet_counts(counts: Iterable[tuple[str, int]]) -> list[FacetCount]:
    return [FacetCount(value=value, count=count) for value, count in counts]

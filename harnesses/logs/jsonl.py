"""JSON Lines: one event a line with all its fields, as `terrarium logs export` writes them."""

from __future__ import annotations

from datetime import UTC
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from harnesses.logs.grammar import Format, Ignored, Parsed, Refused
from storage.chat_log.event import Event, EventType

_Name = Annotated[str, Field(min_length=1, max_length=512)]


class JsonEvent(BaseModel):
    """The JSON object of an event: the log's fields by name, with the time in ISO 8601."""

    model_config = ConfigDict(frozen=True, from_attributes=True)

    network: _Name
    channel: _Name
    type: EventType
    time: AwareDatetime
    nick: str
    text: str = ""
    user: str = ""
    host: str = ""
    account: str | None = None
    target: str = ""
    msgid: str | None = None
    own: bool = False
    private: bool = False

    def event(self) -> Event:
        """Return the event with its time in UTC."""
        values = self.model_dump(exclude={"private"})
        return Event(**{**values, "time": self.time.astimezone(UTC)})


def json_line(event: Event) -> str:
    """Return an event as a line of JSON, without line end."""
    return JsonEvent.model_validate(event).model_dump_json(exclude_defaults=True)


def _parse(line: str) -> Parsed:
    if not line.strip():
        return Ignored()
    try:
        read = JsonEvent.model_validate_json(line)
        event = read.event()
    except (ValidationError, OverflowError):
        return None
    if "private" in read.model_fields_set and read.private != event.private:
        kind = "private conversation" if event.private else "channel"
        return Refused(
            f'"private": {str(read.private).lower()}, but {event.channel!r} is the name of a {kind}'
        )
    return event


JSONL = Format("jsonl", _parse)

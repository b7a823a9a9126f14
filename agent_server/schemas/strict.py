"""A request of which every documented field is decided: it works, or is refused by its name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic_core import CoreSchema

from agent_server.errors import InvalidRequest


class StrictRequest(BaseModel):
    """The fields of the model work; the others stand in `hints` or in `refused`.

    A refused field may be null or false: that asks for nothing.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    hints: ClassVar[frozenset[str]] = frozenset()
    """Documented fields that change nothing about the answer: accepted, not passed on."""

    refused: ClassVar[Mapping[str, str]] = {}
    """Documented fields that cannot be honoured, and why."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Describe the hints, and that there is nothing else."""
        schema = handler(core_schema)
        described = handler.resolve_ref_schema(schema)
        hint = {"description": "Accepted; changes nothing about the answer."}
        described["properties"].update(dict.fromkeys(sorted(cls.hints), hint))
        described["additionalProperties"] = False
        return schema

    def require_known(self) -> None:
        """Raise InvalidRequest for a field that nobody knows or that cannot be honoured."""
        for key, value in (self.model_extra or {}).items():
            if key in self.hints or value is None or (value is False and key in self.refused):
                continue
            if key in self.refused:
                text, code = f"{key} is not supported: {self.refused[key]}", "unsupported_parameter"
            else:
                near = difflib.get_close_matches(key, type(self).model_fields, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                text, code = f"unknown field {key}{hint}", "unknown_parameter"
            raise InvalidRequest(text, param=key, code=code)

"""The base class of validated settings, and the types of their values."""

from __future__ import annotations

from typing import Annotated, Any, Self, cast

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, model_validator
from pydantic_core import CoreSchema

NAME = r"[A-Za-z][A-Za-z0-9_]*"
Text = Annotated[str, Field(min_length=1)]
Name = Annotated[str, Field(pattern=f"^{NAME}$")]  # it names stages and folders


class Section(BaseModel):
    """A mapping with fixed keys, whose values are not converted: true is no number, "3" is not 3."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    @model_validator(mode="after")
    def _values_go_together(self) -> Self:
        self._check()
        return self

    def _check(self) -> None:
        """Raise ValueError where values that are allowed one by one contradict each other."""


class _MappingAnnotation:
    """Annotation that lets a mapping stand for a dataclass, where pydantic's strict mode accepts instances only."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        resolved = cast(dict[str, Any], handler.resolve_ref_schema(schema))
        resolved["strict"] = False  # for the mapping only: its fields stay as strict as the section
        return schema


FromMapping = _MappingAnnotation()

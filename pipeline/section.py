"""Base class of validated settings, and types of their values."""

from __future__ import annotations

from typing import Annotated, Any, Self, cast

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, model_validator
from pydantic_core import CoreSchema

NAME = r"[A-Za-z][A-Za-z0-9_]*"
Text = Annotated[str, Field(min_length=1)]
Name = Annotated[str, Field(pattern=f"^{NAME}$")]  # part of the names of stages and folders


class Section(BaseModel):
    """Base class of settings with fixed keys and unconverted values: true is no number, "3" is not 3."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    @model_validator(mode="after")
    def _validate_combination(self) -> Self:
        self._check()
        return self

    def _check(self) -> None:
        """Raise ValueError if values that are valid one by one contradict each other; subclasses override this."""


class _MappingAnnotation:
    """Annotation that converts a mapping to a dataclass; pydantic's strict mode accepts only instances."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        resolved = cast(dict[str, Any], handler.resolve_ref_schema(schema))
        resolved["strict"] = False  # for the mapping only; the fields of the dataclass stay strict
        return schema


FromMapping = _MappingAnnotation()

"""The form that all sections of the configuration have in common."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A frozen section of the configuration that refuses undeclared keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=False)

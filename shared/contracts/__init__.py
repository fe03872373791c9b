"""Everything that goes over the wire, as frozen pydantic models."""

"""Reading a manifest field by field, so that what nobody reads is known by its path."""

from collections.abc import Iterator, Mapping


class ManifestRefused(Exception):
    """A manifest that cannot be run as it is meant: the file, the field and the reason."""

    def __init__(self, source: str, field: str, reason: str) -> None:
        super().__init__(f"{source}: {field}: {reason}")
        self.source = source
        self.field = field
        self.reason = reason


class Section:
    """One mapping of a manifest. Every key is taken once; ``not_taken`` lists the paths of the others."""

    def __init__(self, source: str, path: str, content: object) -> None:
        if not isinstance(content, Mapping):
            raise ManifestRefused(source, path or "the document", "must be a mapping")
        self._source = source
        self._path = path
        self._content: dict[str, object] = {str(key): value for key, value in content.items()}
        self._children: list[Section] = []

    def field(self, key: str) -> str:
        """Path of a key from the document's root, as ``spec.template.metadata``."""
        return f"{self._path}.{key}" if self._path else key

    def refuse(self, key: str, reason: str) -> ManifestRefused:
        """The error that names this key."""
        return ManifestRefused(self._source, self.field(key), reason)

    def __contains__(self, key: str) -> bool:
        return key in self._content

    def remaining(self) -> tuple[str, ...]:
        """Keys that nobody has taken yet, in their order."""
        return tuple(self._content)

    def content(self) -> Mapping[str, object]:
        """What nobody has taken yet, as it was written."""
        return self._content

    def take(self, key: str) -> object:
        """Value of the key, None where it is absent."""
        return self._content.pop(key, None)

    def ignore(self, *keys: str) -> None:
        """Take keys that mean nothing to a process on this machine."""
        for key in keys:
            self._content.pop(key, None)

    def text(self, key: str, default: str | None = None) -> str:
        """A string; refused where it is absent without a default, or is something else."""
        value = self.take(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or (not value and default is None):
            raise self.refuse(key, "is missing" if value is None else f"must be a string, not {value!r}")
        return value

    def integer(self, key: str, default: int, *, at_least: int, at_most: int) -> int:
        """A whole number within bounds."""
        value = self.take(key)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not at_least <= value <= at_most:
            raise self.refuse(key, f"must be a whole number from {at_least} to {at_most}, not {value!r}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings, empty where it is absent."""
        value = self.take(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.refuse(key, "must be a list of strings")
        return tuple(value)

    def section(self, key: str) -> "Section":
        """The mapping under a key, an empty one where it is absent."""
        child = Section(self._source, self.field(key), self.take(key) or {})
        self._children.append(child)
        return child

    def sections(self, key: str) -> tuple["Section", ...]:
        """The mappings of a list under a key."""
        value = self.take(key)
        if value is None:
            return ()
        if not isinstance(value, list):
            raise self.refuse(key, "must be a list")
        children = tuple(Section(self._source, f"{self.field(key)}[{index}]", item) for index, item in enumerate(value))
        self._children.extend(children)
        return children

    def not_taken(self) -> Iterator[str]:
        """Paths of all keys here and below that nobody took."""
        for key in self._content:
            yield self.field(key)
        for child in self._children:
            yield from child.not_taken()

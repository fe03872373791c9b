"""What can be wrong with the files that a run names. All are ``ConfigInvalid``: refused before anything starts."""

from controller.runs.config.problems import ConfigInvalid, ConfigProblem


class InputRefused(ConfigInvalid):
    """One fault of a path, a file or a row, under the key that named it."""

    def __init__(self, *, field: str, reason: str, suggestion: str) -> None:
        super().__init__([ConfigProblem(field=field, reason=reason, suggestion=suggestion)])


class PathOutsideRoots(InputRefused):
    """The path leaves the configured roots. Whether something is there is not told."""


class PathNotFound(InputRefused):
    """Nothing usable is at the path."""


class FileUnreadable(InputRefused):
    """The file is not in its format."""


class DatasetEmpty(InputRefused):
    """No row is left to use."""


class ColumnMissing(InputRefused):
    """The rows have no column that could be meant."""


class RowInvalid(InputRefused):
    """One row cannot be used; the reason names it."""


class ColumnAmbiguous(InputRefused):
    """The rows have several columns that could be meant."""


class UploadInvalid(InputRefused):
    """An uploaded dataset cannot be used. It is not kept."""


class UploadTooLarge(Exception):
    """An uploaded dataset is larger than the controller's settings allow. It is not kept."""


class DatasetUnknown(Exception):
    """There is no stored dataset of this id."""


class DatasetInUse(Exception):
    """A run that has not ended reads the stored dataset."""

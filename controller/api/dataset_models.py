"""What the API answers about uploaded datasets."""

from typing import Self

from controller.api.json_text import presentable
from controller.api.models import View
from controller.runs.data.dataset_id import uri_of
from controller.runs.data.library import StoredDataset


class DatasetView(View):
    """An uploaded dataset."""

    id: str
    """A hash of its content: the same upload again is the same dataset."""
    uri: str
    """How `data.train_files` and `data.val_files` of a run name it."""
    name: str
    """As it was uploaded first."""
    num_rows: int
    num_bytes: int
    columns: tuple[str, ...]
    """Of its first row."""
    created_at: float

    @classmethod
    def of(cls, dataset: StoredDataset) -> Self:
        """The view of a stored dataset."""
        return cls(
            id=dataset.id,
            uri=uri_of(dataset.id),
            name=dataset.name,
            num_rows=dataset.num_rows,
            num_bytes=dataset.num_bytes,
            columns=tuple(presentable(column) for column in dataset.columns),
            created_at=dataset.created_at,
        )


class DatasetList(View):
    """Uploaded datasets, the newest first."""

    datasets: tuple[DatasetView, ...]

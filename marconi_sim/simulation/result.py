"""What a simulation returns: totals, and one row per request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from marconi_sim.base.errors import check_argument
from marconi_sim.base.files import check_table, whole_file
from marconi_sim.core.outcome import CAUSES

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Result:
    """One run.

    Attributes:
        summary: what `run --json` prints (DESIGN section 8 and more); plain Python values.
        columns: one array per column of `run --requests-out`, one row per request in processing order.
    """

    summary: Mapping[str, Any]
    columns: Mapping[str, NDArray[Any]]

    @property
    def requests(self) -> pd.DataFrame:
        """The requests as a data frame."""
        import pandas as pd

        return pd.DataFrame(dict(self.columns))

    def write_requests(self, path: str | Path) -> None:
        """Write one row per request to a Parquet file.

        Raises:
            UserError: as `write_table`.
        """
        table = pa.table({name: pa.array(column) for name, column in self.columns.items()})
        write_table(table, path)

    def row(self) -> dict[str, Any]:
        """Return the summary as one flat row: `params` and `missed` become columns of their own."""
        flat: dict[str, Any] = {}
        for key, value in self.summary.items():
            if key == "params":
                flat |= {f"param_{name}": str(v) for name, v in value.items()}
            elif key == "missed":
                flat |= {f"missed_{name}": v for name, v in value.items()}
            elif not isinstance(value, Mapping):
                flat[key] = value
        return flat

    def write_summary(self, path: str | Path) -> None:
        """Write the run as a Parquet file with one row.

        Raises:
            UserError: as `write_table`.
        """
        write_rows([self.row()], path)


def write_rows(rows: list[dict[str, Any]], path: str | Path) -> None:
    """Write rows with equal keys as a Parquet file.

    Raises:
        UserError: as `write_table`.
    """
    write_table(pa.Table.from_pylist(rows), path)


def write_table(table: pa.Table, path: str | Path) -> None:
    """Write a Parquet file, whole or not at all.

    Raises:
        UsageError: the file's ending is that of another format.
        UserError: it cannot be written.
    """
    check_argument("path", path, (str, Path), "the path of a file")
    target = Path(path)
    check_table(target)
    with whole_file(target) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def missed_columns(missed: NDArray[np.int32]) -> dict[str, NDArray[np.int32]]:
    """Return one array per miss cause."""
    return {cause: np.ascontiguousarray(missed[:, i]) for i, cause in enumerate(CAUSES)}

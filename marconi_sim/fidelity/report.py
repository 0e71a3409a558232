"""Tables of what each departure is worth, for the terminal and for a page of the documentation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from marconi_sim.base.errors import UserError
from marconi_sim.base.files import readable_file, whole_file
from marconi_sim.base.units import format_bytes
from marconi_sim.fidelity.experiment import Row
from marconi_sim.fidelity.switches import CASES, LEAF_LRU, SWITCHES, TUNED, switches_of

BEGIN, END = "<!-- fidelity -->", "<!-- /fidelity -->"


class Table(NamedTuple):
    """A title, column heads, and rows of cells."""

    title: str
    header: tuple[str, ...]
    rows: list[tuple[str, ...]]


def _points(share: float) -> str:
    """Return a difference of shares in percentage points."""
    points = round(100 * share, 2)
    return f"{points:+.2f}" if points else "0.00"


def _spread(changes: Sequence[float]) -> str:
    """Return mean and range of changes of a share, in percentage points."""
    if not any(changes):
        return "0"
    mean = sum(changes) / len(changes)
    return f"{_points(mean)} ({_points(min(changes))} to {_points(max(changes))})"


def select(rows: Sequence[Row], **wanted: str) -> list[Row]:
    """Return the rows with these values, in their order."""
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def changes(rows: Sequence[Row], case: str, base: str, switch: str, column: str) -> list[float]:
    """Return how much a switch changes a column, for each trace and capacity."""
    before = select(rows, case=case, base=base, switch="")
    after = select(rows, case=case, base=base, switch=switch)
    return [b[column] - a[column] for a, b in zip(before, after, strict=True)]


def _other_alphas(rows: Sequence[Row], case: str, base: str, switch: str) -> str:
    before = select(rows, case=case, base=base, switch="")
    after = select(rows, case=case, base=base, switch=switch)
    pairs = zip(before, after, strict=True)
    return str(sum(a["tuned_alpha"] != b["tuned_alpha"] for a, b in pairs))


def effects(rows: Sequence[Row], case: str) -> Table:
    """Return what every switch of a case changes: mended in the code, and added to the paper's rules."""
    cells = []
    for switch in switches_of(case):
        row = [f"`{switch.name}`", switch.rows]
        for base in ("artifact", "paper"):
            row.append(_spread(changes(rows, case, base, switch.name, "token_hit_rate")))
            row.append(_spread(changes(rows, case, base, switch.name, "flops_saved_share")))
            flipped = select(rows, case=case, base=base, switch=switch.name)
            row.append(f"{max(one['peak_over_capacity'] for one in flipped):.2f}")
            if case == TUNED:
                row.append(_other_alphas(rows, case, base, switch.name))
        cells.append(tuple(row))
    columns = ["hit rate", "FLOPs saved", "peak"] + ["other alpha"] * (case == TUNED)
    heads = [f"{side}: {column}" for side in ("mended", "added") for column in columns]
    count = len(select(rows, case=case, base="paper", switch=""))
    title = (
        f"{case}: what one departure changes, mended in the published code or added to the paper's rules: token hit"
        f" rate and share of FLOPs saved in percentage points, mean (lowest to highest) of {count} traces and"
        " capacities; the highest peak of bytes over capacity"
    )
    if case == TUNED:
        title += "; in how many the tuner chose another alpha"
    return Table(title, ("switch", "rows", *heads), cells)


def together(rows: Sequence[Row], case: str) -> Table:
    """Return the paper's rules beside the code's, for every trace and capacity."""
    pairs = zip(
        select(rows, case=case, base="paper", switch=""),
        select(rows, case=case, base="artifact", switch=""),
        strict=True,
    )
    cells = []
    for paper, code in pairs:
        row = [
            paper["trace"],
            format_bytes(paper["capacity_bytes"]),
            *(f"{one['token_hit_rate']:.2%}" for one in (paper, code)),
            _points(code["token_hit_rate"] - paper["token_hit_rate"]),
            *(f"{one['flops_saved_share']:.2%}" for one in (paper, code)),
            *(f"{one['peak_over_capacity']:.2f}" for one in (paper, code)),
        ]
        if case == TUNED:
            alphas = (one["tuned_alpha"] for one in (paper, code))
            row += ["never" if alpha is None else f"{alpha:g}" for alpha in alphas]
        cells.append(tuple(row))
    columns = ["hit rate", "FLOPs saved", "peak"] + ["alpha"] * (case == TUNED)
    heads = [f"{column}: {side}" for column in columns for side in ("paper", "code")]
    return Table(
        f"{case}: all departures together",
        ("trace", "capacity", *heads[:2], "change", *heads[2:]),
        cells,
    )


def comparison(rows: Sequence[Row]) -> Table:
    """Return by how much marconi with its tuner beats sglang+, by the paper's rules and by the code's."""
    margins = {}
    for base in ("paper", "artifact"):
        pairs = zip(
            select(rows, case=TUNED, base=base, switch=""),
            select(rows, case=LEAF_LRU, base=base, switch=""),
            strict=True,
        )
        margins[base] = [
            (of_marconi, of_marconi["token_hit_rate"] - of_lru["token_hit_rate"])
            for of_marconi, of_lru in pairs
        ]
    cells: list[tuple[str, ...]] = [
        (row["trace"], format_bytes(row["capacity_bytes"]), _points(by_paper), _points(by_code))
        for (row, by_paper), (_, by_code) in zip(margins["paper"], margins["artifact"], strict=True)
    ]
    return Table(
        f"Token hit rate of {TUNED} less that of {LEAF_LRU}, in percentage points",
        ("trace", "capacity", "by the paper's rules", "by the code's rules"),
        cells,
    )


def glossary() -> Table:
    """Return every switch in words."""
    return Table(
        "The switches",
        ("switch", "rows", "the paper", "the published code", "concerns"),
        [
            (f"`{one.name}`", one.rows, one.paper, one.code, ", ".join(one.cases))
            for one in SWITCHES
        ],
    )


def tables(rows: Sequence[Row]) -> list[Table]:
    """Return all tables of results, the most important ones first."""
    return [
        *(effects(rows, case) for case in CASES),
        comparison(rows),
        *(together(rows, case) for case in CASES),
    ]


def provenance(rows: Sequence[Row]) -> str:
    """Return what the numbers were made from, in one paragraph."""
    capacities: dict[str, dict[str, None]] = {}
    for row in rows:
        capacities.setdefault(row["trace"], {})[format_bytes(row["capacity_bytes"])] = None
    of_traces = {
        row["trace"]: f"{row['trace']}{' (SYNTHETIC)' if row['synthetic'] else ''}: {row['title']},"
        f" {row['requests']:,} requests, sha256 {row['trace_sha256'][:12]},"
        f" at {', '.join(capacities[row['trace']])}"
        for row in rows
    }
    first = rows[0]
    return (
        f"Model {first['model']}, paper accounting; arrivals as the traces' recipes say; marconi-sim"
        f" {first['version']}. Traces: {'; '.join(of_traces.values())}."
    )


def _as_markdown(table: Table) -> str:
    lines = [table.header, (":--",) * len(table.header), *table.rows]
    grid = "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
    return f"**{table.title}.**\n\n{grid}\n"


def check_page(path: Path) -> None:
    """Raise early if `write_page` could not write to `path`.

    Raises:
        UserError: the file exists and has no place for the tables, or cannot be read.
    """
    if path.exists():
        text = readable_file(path, "page").read_text("utf-8")
        if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
            raise UserError(
                f"{path}: has no place for the tables; put the lines {BEGIN} and {END} where they belong"
            )


def write_page(path: Path, rows: Sequence[Row]) -> None:
    """Put the tables between the two marks in a Markdown file; a new file gets the marks as well.

    Raises:
        UserError: as `check_page`, or the file cannot be written.
    """
    check_page(path)
    old = path.read_text("utf-8") if path.exists() else f"{BEGIN}\n{END}\n"
    parts = [_as_markdown(table) for table in (glossary(), *tables(rows))]
    made = "\n".join([*parts, f"{provenance(rows)}\n"])
    head, rest = old.split(BEGIN)
    _, tail = rest.split(END)
    with whole_file(path) as temporary:
        temporary.write_text(f"{head}{BEGIN}\n\n{made}\n{END}{tail}", "utf-8")


def print_tables(rows: Sequence[Row], echo: Callable[..., None]) -> None:
    """Print all tables of results, each as wide as it is, and the provenance."""
    for table in tables(rows):
        lines = [table.header, *table.rows]
        plain = [[cell.strip("`") for cell in line] for line in lines]
        widths = [max(len(line[i]) for line in plain) for i in range(len(table.header))]
        echo(f"{table.title}\n")
        for line in plain:
            cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
            echo("  " + "  ".join(cells).rstrip())
        echo("")
    echo(provenance(rows))

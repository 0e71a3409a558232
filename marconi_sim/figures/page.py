"""A figure's page: title, panels, and below them where its numbers come from. The same input gives the same bytes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from marconi_sim.base.files import whole_file
from marconi_sim.figures.style import (
    FOOT_SIZE,
    GREY,
    HEIGHT,
    ROW,
    SETTINGS,
    TITLE_SIZE,
    WIDE,
    WIDTH,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

ENDINGS = (".pdf", ".png")
_DOTS_PER_INCH = 120
COLUMNS = 3  # panels side by side
_FOOT_LETTERS = 17.5  # per inch at FOOT_SIZE
_TITLE_LETTERS = 9.0


class Page:
    """A figure while it is drawn.

    Attributes:
        canvas: the matplotlib figure.
        panels: its axes, left to right.
        title: as it goes on top, in lines.
    """

    def __init__(self, canvas: Canvas, panels: Sequence[Axes], title: str) -> None:
        self.canvas = canvas
        self.panels = panels
        self.title = title

    def legend(self, columns: int = 4, handles: Sequence[Artist] = ()) -> None:
        """Put the title and one legend for all panels above them: as one thing, or the layout would overlap them."""
        shown = handles or self.panels[0].get_legend_handles_labels()[0]
        legend = self.canvas.legend(
            handles=shown, loc="outside upper left", ncols=columns, title=self.title,
            title_fontproperties={"size": TITLE_SIZE, "weight": "bold"}, alignment="left", borderpad=0,
        )  # fmt: skip
        legend.get_title().set_multialignment("left")

    def write(self, folder: Path, name: str) -> list[Path]:
        """Write NAME.pdf and NAME.png, each whole or not at all, without times; return them.

        Raises:
            UserError: they cannot be written.
        """
        written = []
        for ending in ENDINGS:
            path = folder / f"{name}{ending}"
            with whole_file(path) as temporary:
                if ending == ".pdf":
                    self.canvas.savefig(temporary, format="pdf", metadata={"CreationDate": None})
                else:
                    self._save_small(temporary)
            written.append(path)
        return written

    def _save_small(self, path: Path) -> None:
        """Save as a PNG of 256 colours: a third of the bytes, and no difference to the eye."""
        from PIL import Image

        everything = BytesIO()
        self.canvas.savefig(everything, format="png", dpi=_DOTS_PER_INCH)
        image = Image.open(everything).convert("RGB")
        image.quantize(256, dither=Image.Dither.NONE).save(path, format="png", optimize=True)


@contextmanager
def page(
    title: str, foot: Sequence[str], panels: int = 1, *, share_y: bool = True, wide: bool = False
) -> Iterator[Page]:
    """Yield a page with panels, three side by side; what is drawn inside has the common style.

    Args:
        title: what the figure shows.
        foot: paragraphs below it: data, configuration, version.
        panels: how many.
        share_y: whether they have one y axis.
        wide: for one panel that needs the width of several.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    with mpl.rc_context():
        mpl.rcdefaults()  # a user's own style must not leak in
        mpl.rcParams.update(SETTINGS)
        columns = min(panels, COLUMNS)
        rows = -(-panels // columns)
        width = WIDE if panels > 1 or wide else WIDTH
        lines = [textwrap.fill(one, int(width * _FOOT_LETTERS)) for one in foot]
        below = "\n".join(lines)
        canvas = Canvas(
            figsize=(width, HEIGHT + (rows - 1) * ROW + 0.12 * below.count("\n")),
            layout="constrained",
        )
        FigureCanvasAgg(canvas)
        canvas.supxlabel(below, fontsize=FOOT_SIZE, color=GREY, x=0.01, ha="left")
        axes = canvas.subplots(rows, columns, sharey=share_y, squeeze=False).flatten()
        for unused in axes[panels:]:
            unused.remove()
        yield Page(canvas, list(axes[:panels]), textwrap.fill(title, int(width * _TITLE_LETTERS)))

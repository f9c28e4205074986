"""The style of figures: colours, marks with intervals, legends, and names beside marks and lines."""

import io
import logging
import math
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from rag_notes.files import write_atomically


class Look(NamedTuple):
    """How the marks of one kind look: colour, marker, filled or hollow, size in points, and the hatch of bars."""

    colour: str
    marker: str = "o"
    filled: bool = True
    size: float = 4.5
    hatch: str = ""

    @property
    def ink(self) -> tuple[float, ...]:
        """The colour for text, dark enough to be read on white."""
        return tuple(0.75 * part for part in to_rgb(self.colour))

    @property
    def line(self) -> dict[str, Any]:
        """The options of a mark for matplotlib."""
        face = self.colour if self.filled else "white"
        shape = {"marker": self.marker, "markersize": self.size, "markeredgewidth": 0.9, "markerfacecolor": face}
        return {"color": self.colour, "linestyle": "none"} | shape


_FONTS = [f"{mpl.get_data_path()}/fonts/ttf/DejaVuSans.ttf"]
if (_package := find_spec("font_source_sans_pro")) and _package.origin:
    _FONTS += [f"{Path(_package.origin).parent}/files/SourceSansPro-{name}.ttf" for name in ("Regular", "Semibold")]
for _font in _FONTS:  # in front of other files of the same name, for the same bytes everywhere
    fontManager.addfont(_font)
    fontManager.ttflist.insert(0, fontManager.ttflist.pop())
logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # not of fonts that are not installed

STYLE = mpl.rc_params_from_file(Path(__file__).with_name("figures.mplstyle"), use_default_template=False)
"""Settings of matplotlib for every figure; use as `matplotlib.rc_context(STYLE)`."""

_DIRECTIONS = np.radians([0, 180, 90, 270, 45, 135, 315, 225, 20, 160, 340, 200, 65, 115, 245, 295])
_DISTANCES = (5, 8, 12, 17, 23, 30)  # points between a mark and its name
_NAME: dict[str, Any] = {"fontsize": 8, "va": "center", "textcoords": "offset points", "annotation_clip": False}


class NotebookFigure(Figure):
    """A figure that a notebook shows as a sharp image, without pyplot or a backend for the whole process."""

    def _repr_png_(self) -> tuple[bytes, dict[str, float]]:
        return _file(self, "png"), {"width": 130 * self.get_figwidth()}


def save(figure: Figure, data: pd.DataFrame, name: str, folder: str | Path = "figures") -> Figure:
    """Write NAME.png, NAME.pdf and NAME.csv, the data behind the figure; the same frame gives the same bytes."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for kind in ("png", "pdf"):
        Path(folder, f"{name}.{kind}").write_bytes(_file(figure, kind))
    write_atomically(Path(folder, f"{name}.csv"), data.to_csv(index=False, float_format="%.6g", lineterminator="\n"))
    return figure


@contextmanager
def style() -> Iterator[None]:
    """Draw in our style, in silence about letters that no installed font has."""
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        yield


@contextmanager
def figure_of(
    size: tuple[float, float], panels: int = 1, *, sharey: bool = False
) -> Iterator[tuple[NotebookFigure, Any]]:
    """Yield a figure with panels beside each other to draw in, then fix its layout, which would change when saved."""
    with style():
        figure = NotebookFigure(figsize=size, layout="constrained")
        yield figure, figure.subplots(1, panels, sharey=sharey, squeeze=False)[0]
        figure.draw_without_rendering()
        figure.set_layout_engine("none")


def mark(
    axes: Axes, x: float, y: float, look: Look, x_range: Any, y_range: Any = (math.nan, math.nan), **style: Any
) -> None:
    """Draw a mark with its intervals, in the `style` of lines."""
    for xs, ys in ((x_range, (y, y)), ((x, x), y_range)):
        axes.plot(xs, ys, color=look.colour, zorder=2, **{"linewidth": 1.1} | style)
    axes.plot(x, y, zorder=3, **look.line)


def add_legend(figure: Figure, handles: Sequence[Any], where: str, note: str = "") -> None:
    """Draw a legend above or below the axes, under a note, in as many columns as the figure is wide."""
    options: Any = {"handles": handles, "loc": f"outside {where} left", "alignment": "left", "title_fontsize": 8}
    title = textwrap.fill(note, int(18 * figure.get_figwidth()))
    for columns in range(max(1, len(handles)), 0, -1):
        legend = figure.legend(ncols=columns, title=title or None, **options)
        figure.draw_without_rendering()
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            break
        legend.remove()


def name_rows(figure: Figure, first: Axes, *others: Axes) -> None:
    """Align the names of the rows at their left, without an axis between them and the marks."""
    for axes in (first, *others):
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)
    figure.draw_without_rendering()
    labels = first.get_yticklabels()
    width = max(label.get_window_extent().width for label in labels)
    first.tick_params(axis="y", pad=4 + width * 72 / figure.dpi)
    for label in labels:
        label.set_horizontalalignment("left")
    figure.draw_without_rendering()


def label_ends(axes: Axes, ends: Sequence[tuple[float, float, str, Any]]) -> None:
    """Name lines right of the axes, moved up or down as little as possible so that no two names touch.

    `ends` has x, y, name and colour of each line's end. A line that ends far from the right has its name at its end.
    """
    pixels = axes.transData.transform([end[:2] for end in ends])
    scale = axes.figure.dpi / 72
    far = axes.bbox.x1 - pixels[:, 0] > 0.2 * axes.bbox.width
    order = np.flatnonzero(~far)[np.argsort(pixels[~far, 1], kind="stable")]
    steps, heights = 9.5 * scale * np.arange(len(order)), pixels[:, 1].copy()
    if len(order):
        heights[order] = isotonic_regression(pixels[order, 1] - steps).x + steps
        heights[order] += max(0, axes.bbox.y0 + 5 * scale - heights[order].min())
    for (x, y, text, colour), move, beside in zip(ends, (heights - pixels[:, 1]) / scale, far, strict=True):
        anchor, coordinates = ((x, y), "data") if beside else ((1, y), ("axes fraction", "data"))
        axes.annotate(text, anchor, (3, move), xycoords=coordinates, color=colour, **_NAME)


def label_marks(axes: Axes, table: pd.DataFrame, x: str, looks: Mapping[str, Look], steps: NDArray[np.float64]) -> None:
    """Name each mark beside it, where it covers no other name, mark or step; a thin line leads to a distant name."""
    if table.empty:
        return
    scale = axes.figure.dpi / 72
    marks = axes.transData.transform(table[[x, "mean"]])
    corners = axes.transData.transform(steps) if len(steps) else steps
    lines = [np.linspace(start, end, 60) for start, end in pairwise(corners)]
    spots, reach = np.vstack([marks, *lines]), np.repeat([4 * scale, 1.5], [len(marks), 60 * len(lines)])[:, None]
    obstacles = np.hstack([spots - reach, spots + reach])
    texts = [
        axes.annotate(row["label"], (row[x], row["mean"]), (0, 0), color=looks[row["kind"]].ink, ha="center", **_NAME)
        for row in table.to_dict("records")
    ]
    halves = np.array([text.get_window_extent().size for text in texts]) / 2
    units = np.tile(np.column_stack([np.cos(_DIRECTIONS), np.sin(_DIRECTIONS)]), (len(_DISTANCES), 1))
    distances = scale * np.repeat(_DISTANCES, len(_DIRECTIONS))[:, None]
    middles = marks[:, None] + units * (distances + halves[:, None])
    boxes = np.concatenate([middles - halves[:, None], middles + halves[:, None]], axis=2)  # marks x candidates x 4
    outside = np.maximum(axes.bbox.min - boxes[..., :2], 0) + np.maximum(boxes[..., 2:] - axes.bbox.max, 0)
    costs = 50 * outside.sum(axis=2) + 3 * distances[:, 0] / scale + 0.1 * (np.arange(len(units)) % len(_DIRECTIONS))
    costs += np.array([_overlap(candidates, obstacles) for candidates in boxes])
    random, plans = np.random.default_rng(0), []
    for order in [random.permutation(len(marks)) for _ in range(30)]:
        chosen, totals = np.full((len(marks), 4), np.nan), np.zeros(len(marks))
        for index in [*order] * 4:
            candidates = costs[index] + _overlap(boxes[index], np.delete(chosen, index, axis=0))
            chosen[index], totals[index] = boxes[index][candidates.argmin()], candidates.min()
        plans.append((totals.sum(), chosen))
    for text, box, spot in zip(texts, min(plans, key=lambda plan: plan[0])[1], marks, strict=True):
        text.set_position(((box[:2] + box[2:]) / 2 - spot) / scale)
        text.set_in_layout(False)
        nearest = np.clip(spot, box[:2], box[2:])
        if np.hypot(*(nearest - spot)) > 9 * scale:
            ends = axes.transData.inverted().transform([spot, nearest])
            axes.plot(*ends.T, color="#9A9A9A", linewidth=0.5, zorder=1.7, scalex=False, scaley=False)


def _overlap(boxes: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """What each box covers of others: their common area, and a penalty for each that it touches."""
    shared = np.minimum(boxes[:, None, 2:], others[:, 2:]) - np.maximum(boxes[:, None, :2], others[:, :2])
    return np.asarray(np.where((shared > 0).all(axis=2), 150 + shared.prod(axis=2), 0).sum(axis=1))


def _file(figure: Figure, kind: str) -> bytes:
    metadata = {"png": {"Software": None}, "pdf": {"CreationDate": None, "Creator": None, "Producer": None}}
    options: dict[str, Any] = {"pil_kwargs": {"optimize": True}} if kind == "png" else {}
    content = io.BytesIO()
    with style():
        figure.savefig(content, format=kind, dpi=220, metadata=metadata[kind], **options)
    return content.getvalue()

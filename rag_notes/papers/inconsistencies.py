"""What does not add up in the papers' printed numbers, computed from the cells and claims of `data/paper/`.

`python -m rag_notes.papers.inconsistencies` prints it.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import combinations
from typing import Any, NamedTuple

import pandas as pd

from rag_notes.papers.numbers import PAPERS, corpus_sizes, paper_cells, paper_claims
from rag_notes.report.markdown import markdown
from rag_notes.types import InputError

_DEFAULTS: Mapping[str, Mapping[str, str]] = {
    "deepnote": {"top_k": "5", "max_step": "3", "max_failure": "2", "retriever": "bm25"},  # section 4.3, Table 1
    "adaptive_note": {"top_k": "5", "collector_iterations": "3", "invalid_updates": "1"},  # Experimental Setup
    "amber": {"top_k": "5", "max_iterations": "3"},  # Tables 1, 3 and 4
    "chain_of_note": {},
}
_CRUD_TOP_K = "2"  # Adaptive-Note, Retriever & Corpus
_IS_VANILLA = {  # a method without its parts that its paper says is vanilla RAG
    ("deepnote", "without=adaptive_retrieval+init_note"),  # Table 2
    ("adaptive_note", "without=iic+amr"),  # Ablation Study
}
_SHARES = ("em", "acc", "yes_no_acc", "str_hit", "recall")  # of questions: each question counts whole or not at all
_NOT_ABOVE = (("em", "f1"), ("em", "acc"), ("str_hit", "str_em"))  # who has the first has the second, on any question
_NO_SCORES = ("cost", "seconds")
_NO_COINCIDENCE = 2  # equal cells of two rows
_EPSILON = 1e-9

Key = tuple[str, str, str, str, str, str]  # paper, method, dataset, model, setting, metric


class Cell(NamedTuple):
    """A row of `paper_cells`."""

    paper: str
    table: str
    row: str
    method: str
    dataset: str
    model: str
    setting: str
    metric: str
    value: float
    decimals: int


class Finding(NamedTuple):
    """Something that does not add up: a row of `inconsistencies`."""

    check: str
    paper: str
    where: str
    what: str
    printed: str
    other: str


def inconsistencies(
    cells: pd.DataFrame | None = None, claims: pd.DataFrame | None = None, corpora: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Return a row for each number or claim of the papers that their own numbers contradict, always in the same order.

    The arguments are what `paper_cells`, `paper_claims` and `corpus_sizes` give, which is the default. Columns:
    `check`, paper, where, what (the rule that is broken), `printed`, and `other`, recomputed or printed elsewhere.
    Checks: `average` (of a row), `gain` (rows of differences), `repeated` (a cell printed twice), `copied` (equal rows
    of two models), `share` (of a whole number of questions), `bound` (em is not above f1 and the like), `corpus`
    (documented sizes), `claim` (against the cells), `largest` and `least` (gains that the text sums up).

    What rounding explains is not reported. Raises ValueError for a claim or a difference of cells that are not there.
    """
    rows = [Cell(*row) for row in (paper_cells() if cells is None else cells).itertuples(index=False, name=None)]
    tables = [cell for cell in rows if cell.table != "text"]
    index: dict[Key, Cell] = {}
    for cell in tables:
        index.setdefault(_key(cell), cell)
    found = [
        *_averages(tables),
        *_gains(tables),
        *_repeated(rows),
        *_copied(tables),
        *_shares(rows),
        *_bounds(tables),
        *_corpora(rows, corpus_sizes() if corpora is None else corpora),
        *_claims(index, paper_claims() if claims is None else claims),
        *_extremes(rows, index),
    ]
    found.sort(key=lambda finding: PAPERS.index(finding.paper))  # stable: by check and place within a paper
    return pd.DataFrame(found, columns=list(Finding._fields))


def _averages(cells: Iterable[Cell]) -> Iterator[Finding]:
    """`avg` is the mean of a data set's metrics, `average` that of a metric over the data sets."""
    for row in _rows(cells):
        scores = [cell for cell in row if cell.metric not in _NO_SCORES]
        for cell in scores:
            if cell.metric == "avg":
                parts = {c.metric: c for c in scores if c.dataset == cell.dataset and c.metric != "avg"}
            elif cell.dataset == "average":
                parts = {c.dataset: c for c in scores if c.metric == cell.metric and c.dataset != "average"}
            else:
                continue
            mean = statistics.fmean(part.value for part in parts.values())
            if _agrees(mean, cell, *parts.values()):
                continue
            what = f"not mean({', '.join(parts)})"
            for extra in (c for c in scores if (c.dataset, c.metric) == ("musique", "avg") and cell.dataset == "asqa"):
                if _agrees(statistics.fmean([extra.value, *(part.value for part in parts.values())]), cell, extra):
                    what += f" but mean(musique avg, {', '.join(parts)})"
            yield Finding("average", cell.paper, _where(cell), what, _show(cell), f"{mean:.{cell.decimals + 1}f}")


def _gains(cells: Iterable[Cell]) -> Iterator[Finding]:
    """A row of differences is the method's row minus the other's, with the model that it stands for."""
    cells = list(cells)
    in_table = {(cell.table, *_key(cell)): cell for cell in cells}
    models = {paper: list(dict.fromkeys(cell.model for cell in cells if cell.paper == paper)) for paper in PAPERS}
    for cell in cells:
        setting = _settings(cell.setting)
        if "minus" not in setting:
            continue
        other, gains = setting.pop("minus"), {}
        for model in models[cell.paper]:
            place = (cell.dataset, model, _joined(setting), cell.metric)
            own = in_table.get((cell.table, cell.paper, cell.method, *place))
            theirs = in_table.get((cell.table, cell.paper, other, *place))
            if own is not None and theirs is not None:
                gains[model] = (own.value - theirs.value, _agrees(own.value - theirs.value, cell, own, theirs))
        if cell.model not in gains:
            raise InputError(f"{cell.paper}, {_where(cell)}: a difference of rows that are not in the table")
        gain, agrees = gains[cell.model]
        if not agrees:
            what = f"not the gain over {other} of {cell.model}"
            whose = ", ".join(model for model, (_, agrees) in gains.items() if agrees)
            what += f" but of {whose}" if whose else ""
            yield Finding("gain", cell.paper, _where(cell), what, _show(cell), f"{gain:.{cell.decimals}f}")


def _repeated(cells: Iterable[Cell]) -> Iterator[Finding]:
    """A cell that is printed in several places has one value."""
    places: dict[Key, list[Cell]] = defaultdict(list)
    for cell in cells:
        setting = _plain_setting(cell)
        if (cell.method, setting) in _IS_VANILLA:
            places[cell.paper, "vanilla", cell.dataset, cell.model, "", cell.metric].append(cell)
        elif "minus" not in _settings(setting):
            places[cell.paper, cell.method, cell.dataset, cell.model, setting, cell.metric].append(cell)
    for (paper, *named), same in places.items():
        values: list[list[Cell]] = []
        for cell in same:
            for group in values:
                if _rounds_to(group[0], cell):
                    group.append(cell)
                    break
            else:
                values.append([cell])
        for others in values[1:]:
            what = " against ".join(" and ".join(map(_place, group)) for group in (values[0], others))
            yield Finding("repeated", paper, _spaced(*named), what, _show(values[0][0]), _show(others[0]))


def _copied(cells: Iterable[Cell]) -> Iterator[Finding]:
    """Two papers do not get the same numbers from a method with different models."""
    rows: dict[tuple[str, str, str, str], dict[str, Cell]] = defaultdict(dict)
    for cell in cells:
        if cell.method:
            row = (cell.method, _plain_setting(cell), cell.paper, cell.model)
            rows[row].setdefault(_spaced(cell.dataset, cell.metric), cell)
    for (theirs, their_cells), (ours, our_cells) in combinations(rows.items(), 2):
        if theirs[:2] != ours[:2] or theirs[2] == ours[2] or theirs[3] == ours[3]:
            continue
        shared = [place for place in our_cells if place in their_cells]
        equal = [place for place in shared if our_cells[place].value == their_cells[place].value]
        if len(equal) >= _NO_COINCIDENCE:
            cell, (*_, paper, model) = our_cells[equal[0]], theirs
            what = f"{len(equal)} of {len(shared)} shared cells of {cell.model} are those of {model} in {paper}"
            where = f"{_place(cell)}, {cell.row}: {', '.join(equal)}"
            numbers = (", ".join(_show(of[place]) for place in equal) for of in (our_cells, their_cells))
            yield Finding("copied", cell.paper, where, what, *numbers)


def _shares(cells: Iterable[Cell]) -> Iterator[Finding]:
    """A share of n questions is a whole number of them over n, rounded."""
    cells = list(cells)
    sizes: dict[tuple[str, str, str], int] = {}
    for cell in cells:
        if cell.metric == "questions":
            sizes.setdefault((cell.paper, cell.dataset, _settings(cell.setting).get("set", "full")), int(cell.value))
    for cell in cells:
        setting = _settings(cell.setting)
        if cell.metric not in _SHARES or "minus" in setting:
            continue
        kind = "subset" if "noise" in setting else "full"  # Chain-of-Note, section 3.1.1
        n = int(setting.get("questions", sizes.get((cell.paper, cell.dataset, kind), 0)))
        counted = round(cell.value * n / 100)
        if n and abs(100 * counted / n - cell.value) > 10.0**-cell.decimals / 2 + _EPSILON:
            what = f"no whole number of {n} questions; the nearest is {counted}"
            nearest = f"{100 * counted / n:.{cell.decimals + 1}f}"
            yield Finding("share", cell.paper, _where(cell), what, _show(cell), nearest)


def _bounds(cells: Iterable[Cell]) -> Iterator[Finding]:
    """What implies another mark on every question is not above it on average."""
    for row in _rows(cells):
        scores = {(cell.dataset, cell.metric): cell for cell in row}
        for cell in row:
            for metric, least in _NOT_ABOVE:
                bound = scores.get((cell.dataset, least))
                if cell.metric == metric and bound is not None and cell.value > bound.value:
                    yield Finding("bound", cell.paper, _where(cell), f"above {least}", _show(cell), _show(bound))


def _corpora(cells: Iterable[Cell], corpora: pd.DataFrame) -> Iterator[Finding]:
    """A corpus has as many passages as its documentation says."""
    documented = dict(zip(corpora["dataset"], corpora["passages"], strict=True))
    for cell in cells:
        if cell.metric == "passages" and cell.value != documented.get(cell.dataset, cell.value):
            nearest = min(documented, key=lambda dataset: abs(documented[dataset] - cell.value))
            what = f"not the documented size; the nearest is {documented[nearest]:.0f} of {nearest}"
            yield Finding("corpus", cell.paper, _where(cell), what, _show(cell), f"{documented[cell.dataset]:.0f}")


def _claims(index: Mapping[Key, Cell], claims: pd.DataFrame) -> Iterator[Finding]:
    """A claim names cells that are there, in the order and with the numbers that it states."""
    for claim in claims.to_dict("records"):
        cell = _claimed(index, claim, "method", "setting")
        where, what = f"{claim['source']}, claim {claim['id']}", claim["statement"]
        is_, unit = cell.value, 10.0 ** -claim["decimals"]
        if claim["kind"] == "order":
            other = _claimed(index, claim, "other", "other_setting")
            if cell.value <= other.value:
                order = " above ".join(_spaced(c.method, c.setting.replace(";", " ")) for c in (cell, other))
                yield Finding("claim", claim["paper"], where, what, order, f"{_show(cell)} and {_show(other)}")
                continue
            is_ -= other.value
        if not math.isnan(claim["value"]) and abs(is_ - claim["value"]) > unit + _EPSILON:
            printed = f"{claim['value']:.{claim['decimals']}f}"
            yield Finding("claim", claim["paper"], where, what, printed, f"{is_:.{claim['decimals']}f}")


def _claimed(index: Mapping[Key, Cell], claim: Mapping[Hashable, Any], method: str, setting: str) -> Cell:
    key = (claim["paper"], claim[method], claim["dataset"], claim["model"], claim[setting], claim["metric"])
    if key not in index:
        raise InputError(f"claim {claim['id']!r}: the tables of {key[0]} have no cell {_spaced(*key[1:])!r}")
    return index[key]


def _extremes(cells: Iterable[Cell], index: Mapping[Key, Cell]) -> Iterator[Finding]:
    """The largest or least gain that the text gives is that of the main rows, in points or relative."""
    for cell in cells:
        setting = _settings(cell.setting)
        if cell.table != "text" or "over" not in setting:
            continue
        gains = {}
        for key, own in index.items():
            other = _compared_with(setting["minus"], key, index) if _speaks_of(cell, setting, key) else None
            if other is not None:
                gains[key] = 100 * (own.value / other - 1) if "unit" in setting else own.value - other
        largest = setting["over"] == "largest"  # "up to" is met, "over" exceeded
        pick = max if largest else min
        key = pick(gains, key=lambda key: gains[key])
        if not _agrees(gains[key], cell) if largest else gains[key] <= cell.value:
            what = f"{setting['over']} {cell.row} is of {_spaced(*key[2:4], key[5])}"
            averages = [gain for (*_, metric), gain in gains.items() if metric == "avg"]
            what += f"; of avg alone it is {pick(averages):.1f}" if averages else ""
            yield Finding(setting["over"], cell.paper, _place(cell), what, _show(cell), f"{gains[key]:.1f}")


def _speaks_of(text: Cell, setting: Mapping[str, str], key: Key) -> bool:
    """Whether the text is about this cell: a main one of its method; what it leaves open is any."""
    paper, method, dataset, model, plain, metric = key
    if (paper, method, plain) != (text.paper, text.method, "") or dataset == setting.get("except"):
        return False
    pairs = ((text.dataset, dataset), (text.model, model), (text.metric, metric))
    return all(said in ("", is_) for said, is_ in pairs)


def _compared_with(name: str, key: Key, index: Mapping[Key, Cell]) -> float | None:
    """The same cell of the method `name`, or of the best other one (`best_other`; a variant is not another)."""
    paper, own, *place = key
    others = (method for its_paper, method, *its_place in index if (its_paper, its_place) == (paper, place))
    compared = [method for method in others if (not method.startswith(own) if name == "best_other" else method == name)]
    dataset, model, setting, metric = place
    return max((index[paper, method, dataset, model, setting, metric].value for method in compared), default=None)


def _rows(cells: Iterable[Cell]) -> list[list[Cell]]:
    """The cells of each printed row and model, without rows of differences."""
    rows: dict[tuple[str, str, str, str], list[Cell]] = defaultdict(list)
    for cell in cells:
        if "minus" not in _settings(cell.setting):
            rows[cell.paper, cell.table, cell.row, cell.model].append(cell)
    return list(rows.values())


def _key(cell: Cell) -> Key:
    return cell.paper, cell.method, cell.dataset, cell.model, cell.setting, cell.metric


def _settings(text: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in text.split(";") if pair)


def _joined(settings: Mapping[str, str]) -> str:
    return ";".join(f"{name}={value}" for name, value in settings.items())


def _plain_setting(cell: Cell) -> str:
    """The setting without what is the paper's default anyway, and without the section of a text."""
    defaults = {**_DEFAULTS[cell.paper], **({"top_k": _CRUD_TOP_K} if cell.dataset == "crud" else {})}
    settings = _settings(cell.setting).items()
    return _joined({name: value for name, value in settings if name != "section" and defaults.get(name) != value})


def _agrees(recomputed: float, *cells: Cell) -> bool:
    """Whether the first cell is the value recomputed from the others, all of them rounded as printed."""
    return abs(recomputed - cells[0].value) <= 10.0 ** -max(cell.decimals for cell in cells) + _EPSILON


def _rounds_to(cell: Cell, other: Cell) -> bool:
    """Whether two cells have the same value up to the decimals printed."""
    if cell.decimals == other.decimals:
        return cell.value == other.value
    return abs(cell.value - other.value) <= 10.0 ** -min(cell.decimals, other.decimals) / 2 + _EPSILON


def _show(cell: Cell) -> str:
    return f"{cell.value:.{cell.decimals}f}"


def _spaced(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _place(cell: Cell) -> str:
    if cell.table == "text":
        return f"text, section {_settings(cell.setting)['section']}"
    return cell.table if cell.table.startswith("Figure") else f"Table {cell.table}"


def _where(cell: Cell) -> str:
    return f"{_place(cell)}, {cell.row}: {_spaced(cell.dataset, cell.metric)}"


if __name__ == "__main__":
    print(markdown(inconsistencies()))

"""The table of official files: what it has, and how it is read."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from rag_notes.downloads import DownloadError, File, load_downloads
from rag_notes.options import CONF, choices

OURS = {"cloze", "mini", "mini_zh", "plain", "world"}
TABLE = load_downloads(CONF / "downloads.yaml")


def settings(group: str, name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((CONF / group / f"{name}.yaml").read_text(encoding="utf-8"))
    return loaded


def targets(files: list[File]) -> set[str]:
    return {path for file in files for path in [file.path, *(member.path for member in file.members)]}


@pytest.mark.parametrize("name", sorted(set(choices("dataset")) - OURS))
def test_every_data_set_is_downloaded_to_where_its_loader_looks(name: str) -> None:
    wanted = settings("dataset", name)
    paths = {wanted[key] for key in ("path", "corpus", "search_results") if wanted.get(key)}
    assert paths <= targets(TABLE.dataset[name].files)


@pytest.mark.parametrize("name", choices("corpus"))
def test_every_corpus_is_downloaded_to_where_it_is_prepared_from(name: str) -> None:
    wanted = settings("corpus", name)
    paths = set(wanted.get("paths", [wanted.get("path")]))
    entry = TABLE.corpus[name] if name in TABLE.corpus else TABLE.dataset[name.removesuffix("_distractor")]
    there = targets(entry.files)
    assert paths <= there | {str(Path(path).parent) for path in there}


def test_the_table_has_nothing_else_and_names_licences_and_addresses() -> None:
    assert set(TABLE.dataset) == set(choices("dataset")) - OURS
    assert set(TABLE.corpus) <= set(choices("corpus"))
    known: dict[str, list[int | str | None]] = {}
    for _, entry in TABLE.entries():
        assert entry.licence.strip()
        assert entry.page.startswith("https://")
        for file in entry.files:
            assert all("drive.google" not in url for url in file.urls)
            assert all(url.startswith("https://") for url in file.urls[:1])
            # Without encryption only the checksum tells that nobody changed the file on its way.
            assert file.checksum is not None or all(url.startswith("https://") for url in file.urls)
            assert all(path.startswith("data/") for path in targets([file]))
            for path, *facts in [
                (file.path, file.size, file.checksum),
                *((m.path, m.size, m.checksum) for m in file.members),
            ]:
                assert known.setdefault(path, facts) == facts


ENTRY = {"urls": ["https://a/f"], "path": "data/f", "size": 1, "checksum": None}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"path": "../f"}, "files.0.path: Value error, expected a relative path without '..'"),
        ({"path": "/f"}, "files.0.path: Value error, expected a relative path"),
        ({"checksum": "crc32:1"}, "files.0.checksum: String should match pattern"),
        ({"size": -1}, "files.0.size: Input should be greater than or equal to 0"),
        ({"sha256": "0"}, "files.0.sha256: Extra inputs are not permitted"),
        ({"members": [{"name": "n", "path": "a/../../f"}]}, "files.0.members.0.path: Value error"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_by_field(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    entry = {"licence": "MIT", "page": "https://a", "files": [ENTRY | change]}
    table = tmp_path / "t.yaml"
    table.write_text(yaml.safe_dump({"dataset": {"d": entry}, "corpus": {}}), encoding="utf-8")
    with pytest.raises(DownloadError) as error:
        load_downloads(table)
    assert str(error.value).startswith(f"{table}, dataset.d.{problem}")

"""Prompt templates: one text file each, a head of comments, `---`, then the prompt.

The package has two sets of them, `prompts/<set>/<language>/<name>.txt`: `papers`, with the inputs, formats and criteria
of the prompts that the papers print, and `small`, worded for models of one or two billion parameters. What a set lacks
of the prompts of `training`, which make training data, it has from there.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import get_args

from rag_notes.types import InputError, Language, Passage

PACKAGED = Path(__file__).parent
SETS = ("papers", "small")
PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")  # a lower-case name in braces; JSON in a prompt is not one

Value = str | Sequence[str] | Sequence[Passage]


class TemplateError(InputError):
    """A prompt template that is missing or does not fit its use."""


class Templates:
    """The prompt templates of a set of the package, or of a folder of one's own.

    What a folder of `<language>/<name>.txt` files lacks comes from the set that its file `base.txt` names, `papers`
    where there is none. A prompt by a new name is for a method of one's own. Raises TemplateError where there is no
    such set, folder or prompt, and where placeholders are others than the set's prompt or the fields to fill in have.
    """

    def __init__(self, prompts: str | Path = "papers") -> None:
        self.name = Path(prompts).name
        if prompts in SETS:
            self._prompts = _packaged(str(prompts))
            return
        folder = Path(prompts)
        if not folder.is_dir():
            problem = f"no such folder, and not one of the sets {', '.join(SETS)}"
            raise TemplateError(f"prompts={folder.absolute()}: {problem}; a folder should hold en/answer_short.txt")
        packaged, changed = _packaged(_base(folder)), _read(folder)
        for key in changed.keys() & packaged.keys():
            expected, actual = (set(PLACEHOLDER.findall(text)) for text in (packaged[key], changed[key]))
            if expected != actual:
                raise TemplateError(f"{folder / key}.txt: placeholders {_difference(expected, actual)}")
        self._prompts = packaged | changed

    def fill(self, name: str, language: Language, fields: Mapping[str, Value]) -> str:
        """The prompt `name` with its placeholders replaced by `fields`, passages and lists laid out as text."""
        body = self.text(name, language)
        expected = set(PLACEHOLDER.findall(body))
        if expected != set(fields):
            raise TemplateError(f"prompt {language}/{name}: {_difference(expected, set(fields))}")
        return PLACEHOLDER.sub(lambda match: layout(fields[match[1]], language), body)

    def text(self, name: str, language: Language = "en") -> str:
        """The prompt `name` with its placeholders as they stand."""
        body = self._prompts.get(f"{language}/{name}")
        if body is None:
            near = get_close_matches(f"{language}/{name}", self._prompts, n=3)
            raise TemplateError(f"no prompt {language}/{name}.txt" + (f"; did you mean {near}?" if near else ""))
        return body

    def names(self) -> list[str]:
        """The names of the prompts in English, which are the stages of the methods."""
        return sorted(key.removeprefix("en/") for key in self._prompts if key.startswith("en/"))

    def hashes(self, names: Iterable[str] | None = None) -> dict[str, str]:
        """sha256 of the prompts named, in each language that has them, by `<language>/<name>`; of all for None."""
        known = {key.partition("/")[2] for key in self._prompts}
        chosen = known if names is None else set(names)
        if missing := chosen - known:
            raise TemplateError(f"no prompt is called {', '.join(sorted(missing))}")
        prompts = [(key, body) for key, body in sorted(self._prompts.items()) if key.partition("/")[2] in chosen]
        return {key: hashlib.sha256(body.encode()).hexdigest() for key, body in prompts}


def layout(value: Value, language: Language = "en") -> str:
    """Text as it is, strings one a line, passages numbered with their titles; `(none)` for an empty list."""
    if isinstance(value, str):
        return value
    if not value:
        return "(none)" if language == "en" else "（无）"
    if isinstance(value[0], Passage):
        passages = (item for item in value if isinstance(item, Passage))
        return "\n\n".join(f"[{number}] {item.title}\n{item.text}" for number, item in enumerate(passages, 1))
    return "\n".join(str(item) for item in value)


def _difference(expected: set[str], actual: set[str]) -> str:
    return f"missing {sorted(expected - actual) or 'none'}, unknown {sorted(actual - expected) or 'none'}"


def _base(folder: Path) -> str:
    path = folder / "base.txt"
    base = path.read_text(encoding="utf-8").strip() if path.is_file() else SETS[0]
    if base not in SETS:
        raise TemplateError(f"{path}: {base!r} is not one of the sets {', '.join(SETS)}")
    return base


def _packaged(prompts: str) -> dict[str, str]:
    return _read(PACKAGED / "training") | _read(PACKAGED / prompts)


def _read(folder: Path) -> dict[str, str]:
    """The prompts of a folder by `<language>/<name>`."""
    prompts = {}
    for path in sorted(folder.glob("*/*.txt")):
        if path.parent.name not in get_args(Language):
            raise TemplateError(f"{path}: the folder of a language is called {' or '.join(get_args(Language))}")
        head, mark, body = path.read_text(encoding="utf-8").partition("\n---\n")
        if not mark or not all(line.startswith("#") for line in head.splitlines()):
            raise TemplateError(f"{path}: expected comment lines that start with #, a line ---, then the prompt")
        prompts[f"{path.parent.name}/{path.stem}"] = body.strip()
    return prompts

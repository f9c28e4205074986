"""Prompt templates: one text file each, a head of comments, `---`, then the prompt.

The package has two complete sets of them, `prompts/<set>/<language>/<name>.txt`: `papers`, with the inputs, formats and
criteria of the prompts that the papers print, and `small`, worded for models of one or two billion parameters. Either
comes with the prompts of `training`, which make training data and are in English, where it has none of its own.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import get_args

from rag_notes.types import InputError, Language, Passage

PACKAGED = Path(__file__).parent
TRAINING = PACKAGED / "training"
SETS = ("papers", "small")
PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")  # a lower-case name in braces; JSON in a prompt is not one

Value = str | Sequence[str] | Sequence[Passage]


class TemplateError(InputError):
    """A prompt template that is missing or does not fit its use."""


class Templates:
    """The prompt templates of a set of the package, or of a folder of one's own.

    `prompts` is the name of a set or a folder with `<language>/<name>.txt` files. What a folder lacks comes from the
    set that its file `base.txt` names, `papers` where there is none. A prompt by a new name is for a method of one's
    own: its placeholders are checked when it is filled. Raises TemplateError where there is no such set or folder, or
    where a prompt of the folder has other placeholders than the set's prompt of that name.
    """

    def __init__(self, prompts: str | Path = "papers") -> None:
        self.name = Path(prompts).name
        if prompts in SETS:
            self._prompts = _packaged(str(prompts))
            return
        folder = Path(prompts)
        if not folder.is_dir():
            raise TemplateError(
                f"prompts={folder.absolute()}: no such folder, and not one of the sets {', '.join(SETS)}; a folder "
                "should hold en/answer_short.txt and the like"
            )
        packaged = _packaged(_base(folder))
        changed = _read(folder)
        for key in changed.keys() & packaged.keys():
            expected, actual = (set(PLACEHOLDER.findall(text)) for text in (packaged[key], changed[key]))
            if expected != actual:
                raise TemplateError(
                    f"{folder / key}.txt: placeholders missing: {sorted(expected - actual) or 'none'}, "
                    f"unknown: {sorted(actual - expected) or 'none'}"
                )
        self._prompts = packaged | changed

    def fill(self, name: str, language: Language, fields: Mapping[str, Value]) -> str:
        """The prompt `name` with its placeholders replaced by `fields` (passages and lists are laid out as text).

        Raises TemplateError where the template does not exist in this language or the names do not match.
        """
        body = self.text(name, language)
        expected = set(PLACEHOLDER.findall(body))
        if expected != set(fields):
            raise TemplateError(
                f"prompt {language}/{name}: missing {sorted(expected - set(fields)) or 'none'}, "
                f"unknown {sorted(set(fields) - expected) or 'none'}"
            )
        return PLACEHOLDER.sub(lambda match: layout(fields[match[1]], language), body)

    def text(self, name: str, language: Language = "en") -> str:
        """The prompt `name` with its placeholders as they stand. Raises TemplateError where there is none."""
        body = self._prompts.get(f"{language}/{name}")
        if body is None:
            near = get_close_matches(f"{language}/{name}", self._prompts, n=3)
            raise TemplateError(f"no prompt {language}/{name}.txt" + (f"; did you mean {near}?" if near else ""))
        return body

    def names(self) -> list[str]:
        """The names of the prompts in English, which are the stages of the methods."""
        return sorted(key.removeprefix("en/") for key in self._prompts if key.startswith("en/"))

    def hashes(self, names: Iterable[str] | None = None) -> dict[str, str]:
        """sha256 of the prompts named, in each language that has them, by `<language>/<name>`; of all for None.

        Raises TemplateError where no language has a prompt of a name.
        """
        chosen = dict(self._prompts)
        if names is not None:
            chosen_names = set(names)
            chosen = {key: body for key, body in chosen.items() if key.partition("/")[2] in chosen_names}
            if missing := chosen_names - {key.partition("/")[2] for key in chosen}:
                raise TemplateError(f"no prompt is called {', '.join(sorted(missing))}")
        return {key: hashlib.sha256(body.encode()).hexdigest() for key, body in sorted(chosen.items())}


def layout(value: Value, language: Language = "en") -> str:
    """Text as it is, strings one a line, passages numbered with their titles; `(none)` for an empty list."""
    if isinstance(value, str):
        return value
    if not value:
        return "(none)" if language == "en" else "（无）"
    if all(isinstance(item, Passage) for item in value):
        return "\n\n".join(
            f"[{number}] {item.title}\n{item.text}" for number, item in enumerate(value, 1) if isinstance(item, Passage)
        )
    return "\n".join(str(item) for item in value)


def _base(folder: Path) -> str:
    path = folder / "base.txt"
    base = path.read_text(encoding="utf-8").strip() if path.is_file() else SETS[0]
    if base not in SETS:
        raise TemplateError(f"{path}: {base!r} is not one of the sets {', '.join(SETS)}")
    return base


def _packaged(prompts: str) -> dict[str, str]:
    return _read(TRAINING) | _read(PACKAGED / prompts)


def _read(folder: Path) -> dict[str, str]:
    """The prompts of a folder by `<language>/<name>`."""
    prompts = {}
    for path in sorted(folder.glob("*/*.txt")):
        if path.parent.name not in get_args(Language):
            raise TemplateError(f"{path}: the folder of a language is called {' or '.join(get_args(Language))}")
        prompts[f"{path.parent.name}/{path.stem}"] = _body(path)
    return prompts


def _body(path: Path) -> str:
    head, mark, body = path.read_text(encoding="utf-8").partition("\n---\n")
    if not mark or not all(line.startswith("#") for line in head.splitlines()):
        raise TemplateError(f"{path}: expected comment lines that start with #, a line ---, then the prompt")
    return body.strip()

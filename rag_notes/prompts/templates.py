"""Prompt templates: one text file each, `prompts/<language>/<name>.txt`, a head of comments, `---`, then the prompt."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

from rag_notes.types import Language, Passage

PACKAGED = Path(__file__).parent
PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")  # a lower-case name in braces; JSON in a prompt is not one

Value = str | Sequence[str] | Sequence[Passage]


class TemplateError(ValueError):
    """A prompt template that is missing or does not fit its use."""


class Templates:
    """The prompt templates of the package, with those of another folder of the same layout in their place.

    `folder` holds `<language>/<name>.txt` files; what it lacks comes from the package. Raises TemplateError where a
    file has a name the package does not know, or placeholders other than the packaged template's.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self.name = "small" if folder is None else Path(folder).name
        self._prompts = {key: _body(path) for key, path in _files(PACKAGED).items()}
        if folder is not None:
            if not Path(folder).is_dir():
                raise TemplateError(
                    f"prompts={folder}: no such folder; it should hold en/answer_short.txt and the like"
                )
            for key, path in _files(Path(folder)).items():
                self._prompts[key] = self._checked(key, path)

    def _checked(self, key: str, path: Path) -> str:
        if key not in self._prompts:
            near = get_close_matches(key, self._prompts, n=3)
            raise TemplateError(f"{path}: no prompt is called {key!r}" + (f"; did you mean {near}?" if near else ""))
        body = _body(path)
        wanted, found = (set(PLACEHOLDER.findall(text)) for text in (self._prompts[key], body))
        if wanted != found:
            raise TemplateError(
                f"{path}: placeholders missing: {sorted(wanted - found) or 'none'}, "
                f"unknown: {sorted(found - wanted) or 'none'}"
            )
        return body

    def fill(self, name: str, language: Language, fields: Mapping[str, Value]) -> str:
        """The prompt `name` with its placeholders replaced by `fields` (passages and lists are laid out as text).

        Raises TemplateError where the template does not exist in this language or the names do not match.
        """
        body = self._prompts.get(f"{language}/{name}")
        if body is None:
            near = get_close_matches(f"{language}/{name}", self._prompts, n=3)
            raise TemplateError(f"no prompt {language}/{name}.txt" + (f"; did you mean {near}?" if near else ""))
        wanted = set(PLACEHOLDER.findall(body))
        if wanted != set(fields):
            raise TemplateError(
                f"prompt {language}/{name}: missing {sorted(wanted - set(fields)) or 'none'}, "
                f"unknown {sorted(set(fields) - wanted) or 'none'}"
            )
        return PLACEHOLDER.sub(lambda match: layout(fields[match[1]], language), body)

    def names(self) -> list[str]:
        """The names of the prompts in English, which are the stages of the methods."""
        return sorted(key.removeprefix("en/") for key in self._prompts if key.startswith("en/"))

    def hashes(self) -> dict[str, str]:
        """sha256 of every prompt, by `<language>/<name>`."""
        return {key: hashlib.sha256(body.encode()).hexdigest() for key, body in sorted(self._prompts.items())}


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


def _files(folder: Path) -> dict[str, Path]:
    return {f"{path.parent.name}/{path.stem}": path for path in sorted(folder.glob("*/*.txt"))}


def _body(path: Path) -> str:
    head, mark, body = path.read_text(encoding="utf-8").partition("\n---\n")
    if not mark or not all(line.startswith("#") for line in head.splitlines()):
        raise TemplateError(f"{path}: expected comment lines that start with #, a line ---, then the prompt")
    return body.strip()

"""Evidence in what an answer was made from, marked by the answering model (DeepNote, section 5.3 and Appendix A.3)."""

from collections.abc import Mapping, Sequence

from rag_notes.config import Config
from rag_notes.methods.parse import parse_copied, parse_lines
from rag_notes.methods.rag import Rag
from rag_notes.metrics.answer import normalize_answer
from rag_notes.running.annotate import follow_up
from rag_notes.running.records import Run, Sample
from rag_notes.types import Passage, Question

_NONE = frozenset({"none", "无"})


async def mark_evidence(
    references: Mapping[str, list[dict[str, str]] | str], rag: Rag, question: Question, *, sha256: str
) -> str:
    """Ask which sentences of the reference are evidence for the answer; returns those copied, one a line.

    A response with no sentence of the reference in it, and that does not say that there is none, cannot be read: it
    gives no evidence and is recorded as unreadable. An empty reference is not asked about.
    """
    reference = references[question.id]
    context = reference if isinstance(reference, str) else [Passage(**passage) for passage in reference]
    texts = reference_texts(reference)
    if not texts:
        return ""
    response = (await rag.ask("evidence", context=context, question=question.question)).replace("**", "")
    copied = [sentence for text in texts for sentence in parse_copied(text, response, question.language)]
    if not copied and normalize_answer(response, question.language) not in _NONE:
        rag.parse_failure("evidence")
    return "\n".join(dict.fromkeys(copied))


async def run_evidence(
    config: Config, runs: Sequence[Run], given: Sequence[str] = (), *, progress: bool = True
) -> list[Run]:
    """Have the evidence marked in the references of every answer of these runs; a run for each of them.

    Raises ValueError for a method whose reference is not defined, otherwise as `rag_notes.running.annotate.follow_up`.
    """
    return await follow_up(config, runs, "evidence", mark_evidence, reference_of, given=given, progress=progress)


def reference_of(sample: Sample) -> list[dict[str, str]] | str:
    """What an answer was made from: the best note or, without notes, the passages (id, title, text) of the one search.

    Raises ValueError for a method that neither writes notes nor searches just once.
    """
    notes = [event["text"] for event in sample["trace"] if event["event"] == "note" and event["kept"]]
    if notes:
        return str(notes[-1])
    searches = [event for event in sample["trace"] if event["event"] == "search"]
    if len(searches) != 1:
        raise ValueError(
            f"{sample['method']} made {len(searches)} searches and no note for {sample['question_id']}: what it "
            "answered from is not known; choose methods that write notes or search once"
        )
    read = [hit for hit in searches[0]["hits"] if not hit.get("unread")]
    return [{key: hit[key] for key in ("id", "title", "text")} for hit in read]


def reference_texts(reference: list[dict[str, str]] | str) -> list[str]:
    """The texts whose sentences and tokens count: of the passages, without titles, or the note; no bullets, no bold."""
    texts = [reference] if isinstance(reference, str) else [passage["text"] for passage in reference]
    return [text for text in ("\n".join(parse_lines(text.replace("**", ""))) for text in texts) if text]

"""One's own format, and those of NQ-open, TriviaQA, WebQuestions, FlashRAG, SQuAD, RealTimeQA, ASQA and CRUD-RAG."""

import dataclasses
import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Annotated, Literal, get_args
from urllib.parse import unquote

import msgspec

from rag_notes.datasets import corpus as files
from rag_notes.datasets.corpus import DataError, Entry, Id, PassageRecord, Some, T, Text, build, read_records, unique
from rag_notes.types import Dataset, Fact, Name, Passage, QAPair, Question, Task

CrudSplit = Literal["questanswer_1doc", "questanswer_2docs", "questanswer_3docs", "all"]
_DOCUMENT = r"(?s)^Document \d+ ?\(Title: (.*?)\): (.*)$"


class _Metadata(msgspec.Struct):
    type: str = ""
    supporting_facts: dict[str, list[str | int]] = {}


class _OpenRecord(msgspec.Struct):
    question: Text
    answers: Some[Text] | None = None
    answer: Some[Text] | None = None
    golden_answers: Some[Text] | None = None
    id: Id | None = None
    ctxs: list[PassageRecord] = []
    passages: list[Annotated[str, msgspec.Meta(pattern=_DOCUMENT)]] = []
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


def nq_open(
    path: str, *, name: Name = "nq_open", questions: Literal["all", "cases"] = "all", corpus: str | None = None
) -> Dataset:
    """Read NQ-open's JSON Lines (Lee et al., 2019), with `ctxs` where passages were added (Liu et al., 2023).

    Without an id a question is named by its position, from "nq_open-1" on. The cases are of Chain-of-Note, Table 6.
    """
    return files.select(build(name, path, _open_entries(path, name), corpus), questions, "nq_open", path)


def triviaqa(path: str, *, name: Name = "triviaqa", corpus: str | None = None) -> Dataset:
    """Read TriviaQA (Joshi et al., 2017) like NQ-open; `passages` are texts such as "Document 1 (Title: ...): text"."""
    return build(name, path, _open_entries(path, name), corpus)


def webquestions(path: str, *, name: Name = "webquestions", corpus: str | None = None) -> Dataset:
    """Read WebQuestions (Berant et al., 2013) like NQ-open; without a corpus file the corpus is empty."""
    return build(name, path, _open_entries(path, name), corpus)


def flashrag(path: str, *, name: Name = "flashrag", task: Task = "short", corpus: str | None = None) -> Dataset:
    """Read a data set of FlashRAG's collection (Jin et al., 2024), whose passages are in a file of their own."""
    return build(name, path, _open_entries(path, name, task), corpus)


def _open_entries(path: str, name: str, task: Task = "short") -> Iterator[Entry]:
    for number, (location, record) in enumerate(read_records(path, _OpenRecord), 1):
        answers = record.answers or record.answer or record.golden_answers
        if answers is None:
            raise DataError(f"{location}: expected a field `answers`, `answer` or `golden_answers`")
        paragraphs = [context.passage(f"{location}, `ctxs`") for context in record.ctxs]
        gold = [paragraph for paragraph, context in zip(paragraphs, record.ctxs, strict=True) if context.isgold]
        documents = (re.fullmatch(_DOCUMENT, passage) for passage in record.passages)
        paragraphs += [Passage("", match[1], match[2]) for match in documents if match]
        titles = unique(map(str, record.metadata.supporting_facts.get("title", [])))
        question_id = f"{name}-{number}" if record.id is None else str(record.id)
        question = Question(question_id, record.question, unique(answers), (), titles, (), task, record.metadata.type)
        yield Entry(question, paragraphs, gold)


class _SquadQuestion(msgspec.Struct):
    id: Id
    question: Text
    answers: Some[PassageRecord]  # version 1.1 has no unanswerable question


class _SquadParagraph(msgspec.Struct):
    context: Text
    qas: list[_SquadQuestion]


class _Article(msgspec.Struct):
    title: Text
    paragraphs: list[_SquadParagraph]


class _SquadFile(msgspec.Struct):
    data: list[_Article]


def squad(path: str, *, name: Name = "squad", corpus: str | None = None) -> Dataset:
    """Read SQuAD 1.1's JSON (Rajpurkar et al., 2016); a question's gold passage is its paragraph."""
    entries, paragraphs = [], []  # a paragraph without questions belongs to the pool, too
    for article in files.read_json(path, _SquadFile).data:
        for item in article.paragraphs:
            paragraphs.append(Passage("", unquote(article.title).replace("_", " "), item.context))
            for record in item.qas:
                answers = unique(answer.text for answer in record.answers if answer.text)
                entries.append(Entry(Question(str(record.id), record.question, answers), gold=paragraphs[-1:]))
    return build(name, path, entries, corpus, paragraphs)


class _RealTimeRecord(msgspec.Struct):
    question_id: Text
    question_sentence: Text
    choices: Annotated[list[Text], msgspec.Meta(min_length=4)]
    answer: Some[Literal["0", "1", "2", "3"]]  # indices of `choices`


class _SearchResult(msgspec.Struct):
    question_id: Text
    search_result: list[PassageRecord]


def realtimeqa(
    path: str, *, name: Name = "realtimeqa", search_results: str | None = None, corpus: str | None = None
) -> Dataset:
    """Read a week of RealTimeQA (Kasai et al., 2023); without a corpus, `search_results` has the week's articles."""
    articles: dict[str, list[Passage]] = {}
    for location, result in read_records(search_results, _SearchResult) if search_results and not corpus else ():
        passages = [record.passage(location) for record in result.search_result if (record.text or "").strip()]
        articles.setdefault(result.question_id, []).extend(passages)
    entries = []
    for _, record in read_records(path, _RealTimeRecord):
        answers = unique(record.choices[int(index)] for index in record.answer)
        question = Question(record.question_id, record.question_sentence, answers)
        entries.append(Entry(question, articles.pop(record.question_id, [])))
    if articles:
        raise DataError(f"{search_results}: the question {next(iter(articles))!r} is not in {path}")
    return build(name, path, entries, corpus)


class _Pair(msgspec.Struct):
    question: Text
    short_answers: Some[Text]


class _AsqaRecord(msgspec.Struct):
    question: Text
    qa_pairs: Some[_Pair]
    id: Id | None = None
    sample_id: Id | None = None
    docs: list[PassageRecord] = []


def asqa(path: str, *, name: Name = "asqa", corpus: str | None = None) -> Dataset:
    """Read ASQA (Stelmakh et al., 2022) as ALCE (Gao et al., 2023) lays it out; its `qa_pairs` score an answer."""
    entries = []
    for number, (location, record) in enumerate(read_records(path, _AsqaRecord), 1):
        question_id = next(str(key) for key in (record.id, record.sample_id, f"{name}-{number}") if key is not None)
        pairs = tuple(QAPair(pair.question, unique(pair.short_answers)) for pair in record.qa_pairs)
        question = Question(question_id, record.question, qa_pairs=pairs, task="long_form")
        entries.append(Entry(question, [item.passage(f"{location}, `docs`") for item in record.docs]))
    return build(name, path, entries, corpus)


class _CrudRecord(msgspec.Struct):
    id: Id = msgspec.field(name="ID")
    questions: Text
    answers: Text
    news1: Text
    news2: str = ""
    news3: str = ""


def crud(path: str, *, name: Name = "crud", split: CrudSplit = "all", corpus: str | None = None) -> Dataset:
    """Read the question-answering tasks of CRUD-RAG (Lyu et al., 2024) from its split_merged.json.

    The tasks share ids, so their number of documents precedes them ("2docs-..."). The pool holds the news of all three.
    """
    file = files.read_json(path, dict[str, msgspec.Raw])
    entries = []
    for count, task in enumerate(get_args(CrudSplit)[:3], 1):
        for record in files.decode(file.get(task, b"[]"), list[_CrudRecord], f"{path}, {task}"):
            texts = (record.news1, record.news2, record.news3)[:count]
            news = [Passage("", "", text) for text in unique(map(str.strip, texts)) if text]
            question_id = f"{task.removeprefix('questanswer_')}-{record.id}"
            question = Question(question_id, record.questions, (record.answers,), (), (), (), "news", task, 0, "zh")
            entries.append(Entry(question, gold=news))
    selected = [entry for entry in entries if split in ("all", entry.question.type)]
    return build(name, path, selected, corpus, (news for entry in entries for news in entry.gold))


def plain(path: str, *, name: Name = "plain", corpus: str | None = None) -> Dataset:
    """Read one's own data; `DataError` on keys that are no fields, and gold ids or titles that the corpus has not."""
    option = f"dataset.{name}.corpus"
    lines = files.read_lines(path)
    records = [(location, decode_strictly(line, Question, Question, location)) for location, line in lines]
    if corpus is not None:
        gold = {key for _, question in records for key in (*question.gold_ids, *question.gold_titles)}
        lines = files.read_lines(corpus, option)
        passages = (decode_strictly(line, PassageRecord, Passage, location) for location, line in lines)
        names = {key for passage in passages for key in (str(passage.id), passage.title) if key in gold}
        for location, question in records:
            if missing := [key for key in (*question.gold_ids, *question.gold_titles) if key not in names]:
                raise DataError(f"{location}, `gold_ids` and `gold_titles`: {corpus} has no {missing[0]!r}")
    entries = (Entry(question) for _, question in records)
    return build(name, path, entries, () if corpus is None else files.read_corpus(corpus, option))


def decode_strictly(line: str, kind: type[T], fields: type[Question | Passage], location: str) -> T:
    """Decode a line of JSON. Raises DataError with the nearest field for a key that is none of the fields."""
    names = [field.name for field in dataclasses.fields(fields)]
    for key in files.decode(line, dict[str, msgspec.Raw], location):
        if key not in names:
            nearest = get_close_matches(key, names, n=1, cutoff=0)[0]
            raise DataError(f"{location}: `{key}` is not a field, did you mean `{nearest}`? ({', '.join(names)})")
    return files.decode(line, kind, location)


class _Facts(msgspec.Struct):
    id: str
    facts: tuple[Fact, ...]


def load_facts(path: str) -> dict[str, tuple[Fact, ...]]:
    """Read the facts that each question needs, by its id, in the order of its hops; a line has `id` and `facts`."""
    return {record.id: record.facts for _, record in read_records(path, _Facts)}

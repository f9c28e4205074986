"""Official formats of NQ-open, TriviaQA, WebQuestions, FlashRAG's collection, SQuAD, RealTimeQA, ASQA and CRUD-RAG."""

import re
from collections.abc import Iterator
from typing import Literal
from urllib.parse import unquote

import msgspec

from rag_notes.datasets.corpus import DataError, Id, PassageRecord, Some, Text, read_json, read_records, unique
from rag_notes.datasets.selection import Entry, build, select
from rag_notes.types import Dataset, Name, Passage, QAPair, Question, Task


class _Metadata(msgspec.Struct):
    type: str | None = None
    supporting_facts: dict[str, list[str | int]] | None = None


class _Record(msgspec.Struct):
    question: Text
    answers: Some[Text] | None = None
    answer: Some[Text] | None = None
    golden_answers: Some[Text] | None = None
    id: Id | None = None
    ctxs: list[PassageRecord] | None = None
    passages: list[Text] | None = None
    metadata: _Metadata | None = None


def nq_open(
    path: str, *, name: Name = "nq_open", questions: Literal["all", "cases"] = "all", corpus: str | None = None
) -> Dataset:
    """Read NQ-open's JSON Lines (Lee et al., 2019), with `ctxs` where passages were added (Liu et al., 2023).

    Without an id a question is named by its position, from "nq_open-1" on. The cases are of Chain-of-Note, Table 6.
    """
    return select(build(name, path, _entries(path, name), corpus), questions, "nq_open", path)


def triviaqa(path: str, *, name: Name = "triviaqa", corpus: str | None = None) -> Dataset:
    """Read TriviaQA (Joshi et al., 2017) like NQ-open; `passages` are texts such as "Document 1 (Title: ...): text"."""
    return build(name, path, _entries(path, name), corpus)


def webquestions(path: str, *, name: Name = "webquestions", corpus: str | None = None) -> Dataset:
    """Read WebQuestions (Berant et al., 2013) like NQ-open; without a corpus file the corpus is empty."""
    return build(name, path, _entries(path, name), corpus)


def flashrag(path: str, *, name: Name = "flashrag", task: Task = "short", corpus: str | None = None) -> Dataset:
    """Read a data set of FlashRAG's collection (Jin et al., 2024), whose passages are in a file of their own."""
    return build(name, path, _entries(path, name, task), corpus)


def _entries(path: str, name: str, task: Task = "short") -> Iterator[Entry]:
    for number, (location, record) in enumerate(read_records(path, _Record), 1):
        answers = record.answers or record.answer or record.golden_answers
        if answers is None:
            raise DataError(f"{location}: expected a field `answers`, `answer` or `golden_answers`")
        paragraphs = [context.passage(f"{location}, `ctxs`") for context in record.ctxs or []]
        gold = [paragraph for paragraph, context in zip(paragraphs, record.ctxs or [], strict=True) if context.isgold]
        for passage in record.passages or []:
            match = re.fullmatch(r"Document \d+ ?\(Title: (.*?)\): (.*)", passage, re.DOTALL)
            if match is None:
                raise DataError(f"{location}, `passages`: expected 'Document n (Title: title): text'")
            paragraphs.append(Passage("", match[1], match[2]))
        metadata = record.metadata or _Metadata()
        titles = unique(map(str, (metadata.supporting_facts or {}).get("title", [])))
        question_id = f"{name}-{number}" if record.id is None else str(record.id)
        fields = (record.question, unique(answers), (), titles, (), task, metadata.type or "")
        yield Entry(Question(question_id, *fields), paragraphs, gold)


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
    for article in read_json(path, _SquadFile).data:
        for item in article.paragraphs:
            paragraphs.append(Passage("", unquote(article.title).replace("_", " "), item.context))
            for record in item.qas:
                answers = unique(answer.text for answer in record.answers if answer.text)
                entries.append(Entry(Question(str(record.id), record.question, answers), gold=paragraphs[-1:]))
    return build(name, path, entries, corpus, paragraphs)


class _RealTimeRecord(msgspec.Struct):
    question_id: Text
    question_sentence: Text
    choices: Some[Text]
    answer: Some[Text]


class _SearchResult(msgspec.Struct):
    question_id: Text
    search_result: list[PassageRecord]


def realtimeqa(
    path: str, *, name: Name = "realtimeqa", search_results: str | None = None, corpus: str | None = None
) -> Dataset:
    """Read a week of RealTimeQA (Kasai et al., 2023), with the week's file of articles that a search engine found."""
    if search_results is not None and corpus is not None:
        raise DataError(f"dataset.{name}: set either search_results or corpus, not both")
    articles: dict[str, list[Passage]] = {}
    for location, result in read_records(search_results, _SearchResult) if search_results is not None else ():
        passages = [record.passage(location) for record in result.search_result if (record.text or "").strip()]
        articles.setdefault(result.question_id, []).extend(passages)
    entries = []
    for location, record in read_records(path, _RealTimeRecord):
        choices = {str(index): choice for index, choice in enumerate(record.choices)}
        if unknown := set(record.answer) - set(choices):
            raise DataError(f"{location}, `answer`: expected indices of `choices`, found {min(unknown)!r}")
        question = Question(record.question_id, record.question_sentence, unique(choices[i] for i in record.answer))
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
    docs: list[PassageRecord] | None = None


def asqa(path: str, *, name: Name = "asqa", corpus: str | None = None) -> Dataset:
    """Read ASQA (Stelmakh et al., 2022) as ALCE (Gao et al., 2023) lays it out; its `qa_pairs` score an answer."""
    entries = []
    for number, (location, record) in enumerate(read_records(path, _AsqaRecord), 1):
        ids = (record.id, record.sample_id, f"{name}-{number}")
        question_id = next(str(value) for value in ids if value is not None)
        pairs = tuple(QAPair(pair.question, unique(pair.short_answers)) for pair in record.qa_pairs)
        question = Question(question_id, record.question, qa_pairs=pairs, task="long_form")
        entries.append(Entry(question, [item.passage(f"{location}, `docs`") for item in record.docs or ()]))
    return build(name, path, entries, corpus)


CrudSplit = Literal["questanswer_1doc", "questanswer_2docs", "questanswer_3docs", "all"]


class _CrudRecord(msgspec.Struct):
    id: Id = msgspec.field(name="ID")
    questions: Text
    answers: Text
    news1: Text
    news2: str = ""
    news3: str = ""


class _CrudFile(msgspec.Struct):
    questanswer_1doc: list[_CrudRecord]
    questanswer_2docs: list[_CrudRecord]
    questanswer_3docs: list[_CrudRecord]


def crud(path: str, *, name: Name = "crud", split: CrudSplit = "all", corpus: str | None = None) -> Dataset:
    """Read the question-answering tasks of CRUD-RAG (Lyu et al., 2024) from its split_merged.json.

    The tasks share ids, so their number of documents precedes them ("2docs-..."). The pool holds the news of all three.
    """
    file = read_json(path, _CrudFile)
    entries = []
    for count, task in enumerate(_CrudFile.__struct_fields__, 1):
        for record in getattr(file, task):
            news = [Passage("", "", text.strip()) for text in (record.news1, record.news2, record.news3)[:count]]
            if not all(passage.text for passage in news):
                raise DataError(f"{path}, {task}: expected {count} texts (`news1`, ...), {record.id!r} has fewer")
            question_id = f"{task.removeprefix('questanswer_')}-{record.id}"
            question = Question(question_id, record.questions, (record.answers,), (), (), (), "news", task, 0, "zh")
            entries.append(Entry(question, gold=list(dict.fromkeys(news))))
    selected = [entry for entry in entries if split in ("all", entry.question.type)]
    return build(name, path, selected, corpus, (news for entry in entries for news in entry.gold))

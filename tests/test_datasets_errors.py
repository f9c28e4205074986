"""Every malformed record is refused with its file, line and field."""

import json
from pathlib import Path
from typing import Any

import pytest

from rag_notes import datasets
from tests.dataset_records import (
    ASQA,
    FLASHRAG,
    HOTPOT,
    IRCOT,
    MISSING,
    MUSIQUE,
    PLAIN,
    REALTIME,
    SIMPLE,
    STRATEGY,
    Loader,
    as_lines,
    as_list,
    changed,
    refused,
)


@pytest.mark.parametrize(
    ("loader", "record", "changes", "problem"),
    [
        (datasets.hotpotqa, HOTPOT, {"_id": MISSING}, "'_id': is missing, expected a string or an integer"),
        (datasets.hotpotqa, HOTPOT, {"question": " "}, "'question': expected text, found an empty string"),
        (datasets.hotpotqa, HOTPOT, {"answer": None}, "'answer': expected a string, found null"),
        (datasets.hotpotqa, HOTPOT, {"type": 3}, "'type': expected a string, found an integer"),
        (datasets.hotpotqa, HOTPOT, {"context": {}}, "'context': expected a list, found an object"),
        (datasets.hotpotqa, HOTPOT, {"context": [["T", "x"]]}, "'context[0]': expected [title, [sentence, ...]]"),
        (datasets.hotpotqa, HOTPOT, {"context": [["T", ["x", 1]]]}, "'context[0]': expected [title, [sentence, ...]]"),
        (
            datasets.hotpotqa,
            HOTPOT,
            {"supporting_facts": [["T", 0], ["T"]]},
            "'supporting_facts[1]': expected [title, sentence number]",
        ),
        (
            datasets.hotpotqa,
            HOTPOT,
            {"supporting_facts": [["U", 0]]},
            "'supporting_facts': expected a title of the paragraphs in 'context', found 'U'",
        ),
        (
            datasets.twowikimultihopqa,
            HOTPOT,
            {"supporting_facts": [["U", 0]]},
            "'supporting_facts': expected a title of the paragraphs in 'context', found 'U'",
        ),
        (datasets.strategyqa, STRATEGY, {"answer": "yes"}, "'answer': expected true or false, found a string"),
        (
            datasets.strategyqa,
            STRATEGY,
            {"evidence": [[["T"]]]},
            "'evidence': expected 'Title-number', 'operation' or 'no_evidence', found 'T'",
        ),
        (
            datasets.asqa,
            ASQA,
            {"qa_pairs": []},
            "'qa_pairs': expected at least one pair of a question and its short answers",
        ),
        (datasets.asqa, ASQA, {"qa_pairs": ["x"]}, "'qa_pairs[0]': expected an object, found a string"),
        (
            datasets.asqa,
            ASQA,
            {"qa_pairs": [{"question": "p", "short_answers": ["s", ""]}]},
            "'qa_pairs[0].short_answers[1]': expected text, found an empty string",
        ),
        (datasets.asqa, ASQA, {"docs": [{"id": "1", "title": "T"}]}, "'docs[0].text': is missing, expected a string"),
    ],
)
def test_record_of_a_json_list(
    tmp_path: Path, loader: Loader, record: dict[str, Any], changes: dict[str, Any], problem: str
) -> None:
    good = record | {"_id": "0", "qid": "0", "id": "0"}
    path = as_list(tmp_path / "f.json", good, changed(record, changes))
    # Records are at index 0 on line 2 and, after a blank line, at index 1 on line 4.
    refused(f"f.json, record index 1 (line 4), field {problem}", loader, path)


@pytest.mark.parametrize(
    ("loader", "record", "changes", "problem"),
    [
        (
            datasets.musique,
            MUSIQUE,
            {"id": "x"},
            "'id': expected an id that begins like '2hop__' or '3hop1__', found 'x'",
        ),
        (datasets.musique, MUSIQUE, {"answerable": 1}, "'answerable': expected true or false, found an integer"),
        (
            datasets.musique,
            MUSIQUE,
            {"answer_aliases": [2.5]},
            "'answer_aliases[0]': expected a string, found a number",
        ),
        (
            datasets.musique,
            MUSIQUE,
            {"paragraphs": [{"title": "T", "paragraph_text": "x"}]},
            "'paragraphs[0].is_supporting': is missing, expected true or false",
        ),
        (
            datasets.nq_open,
            SIMPLE,
            {"answers": []},
            "'answers': expected a list of at least 1 string, found an empty list",
        ),
        (datasets.nq_open, SIMPLE, {"answers": MISSING}, "'answers': is missing, expected a list"),
        (datasets.nq_open, SIMPLE, {"answers": "a"}, "'answers': expected a list, found a string"),
        (
            datasets.nq_open,
            SIMPLE,
            {"ctxs": [{"title": "T", "text": "x", "isgold": "yes"}]},
            "'ctxs[0].isgold': expected true or false, found a string",
        ),
        (
            datasets.triviaqa,
            SIMPLE,
            {"passages": ["Document 1 (Title: T): x", "Document 2: x"]},
            "'passages[1]': expected 'Document n (Title: title): text'",
        ),
        (datasets.webquestions, SIMPLE, {"question": MISSING}, "'question': is missing, expected a string"),
        (
            datasets.realtimeqa,
            REALTIME,
            {"answer": ["2"]},
            "'answer': expected indices of 'choices' from '0' to '1', found '2'",
        ),
        (
            datasets.realtimeqa,
            REALTIME,
            {"answer": ["-1"]},
            "'answer': expected indices of 'choices' from '0' to '1', found '-1'",
        ),
        (datasets.realtimeqa, REALTIME, {"choices": ["x", None]}, "'choices[1]': expected a string, found null"),
        (
            datasets.ircot,
            IRCOT,
            {"answers_objects": []},
            "'answers_objects': expected at least one object with spans",
        ),
        (
            datasets.ircot,
            IRCOT,
            {"answers_objects": [{"spans": []}]},
            "'answers_objects[0].spans': expected a list of at least 1 string, found an empty list",
        ),
        (datasets.flashrag, FLASHRAG, {"metadata": []}, "'metadata': expected an object, found a list"),
        (
            datasets.flashrag,
            FLASHRAG,
            {"metadata": {"supporting_facts": {"title": "T"}}},
            "'metadata.supporting_facts.title': expected a list, found a string",
        ),
        (
            datasets.plain,
            PLAIN,
            {"gold_id": ["p"]},
            "'gold_id': is not a known field, did you mean 'gold_ids'? (known: id, question, answers, qa_pairs, "
            "gold_titles, gold_ids, task, type, hops, language)",
        ),
        (
            datasets.plain,
            PLAIN,
            {"qa_pairs": [{"question": "p", "answer": ["a"]}]},
            "'qa_pairs[0].answer': is not a known field, did you mean 'answers'? (known: question, answers)",
        ),
        (
            datasets.plain,
            PLAIN,
            {"task": "long"},
            "'task': expected one of short, yes_no, long_form, news, found 'long'",
        ),
        (datasets.plain, PLAIN, {"language": "de"}, "'language': expected one of en, zh, found 'de'"),
        (datasets.plain, PLAIN, {"hops": True}, "'hops': expected an integer of 0 or more, found a boolean"),
        (datasets.plain, PLAIN, {"hops": -1}, "'hops': expected an integer of 0 or more, found -1"),
    ],
)
def test_record_of_a_jsonl_file(
    tmp_path: Path, loader: Loader, record: dict[str, Any], changes: dict[str, Any], problem: str
) -> None:
    good = record | {"question_id" if "question_id" in record else "id": "2hop__0"}
    refused(f"f.jsonl, line 2, field {problem}", loader, as_lines(tmp_path / "f.jsonl", good, changed(record, changes)))


def test_squad_names_the_way_to_the_field(tmp_path: Path) -> None:
    question = {"id": "1", "question": "q", "answers": [{"text": "a"}]}
    paragraphs = [{"context": "x", "qas": [question, question | {"id": "2", "answers": []}]}]
    path = tmp_path / "s.json"
    path.write_text(json.dumps({"data": [{"title": "T", "paragraphs": paragraphs}]}), encoding="utf-8")
    where = "s.json, field 'data[0].paragraphs[0].qas[1].answers'"
    refused(f"{where}: expected at least one answer (version 1.1 has no unanswerable one)", datasets.squad, str(path))
    path.write_text(json.dumps({"data": [{"title": "T"}]}), encoding="utf-8")
    refused("s.json, field 'data[0].paragraphs': is missing, expected a list", datasets.squad, str(path))


def test_crud_names_the_task_and_the_index(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    two = {"ID": "1", "news1": "n", "questions": "q", "answers": "a"}
    path.write_text(json.dumps({"questanswer_1doc": [], "questanswer_2docs": [two]}), encoding="utf-8")
    refused(
        "c.json, field 'questanswer_2docs[0].news2': is missing, expected a string",
        datasets.crud,
        str(path),
    )
    path.write_text(json.dumps({"questanswer_1doc": [two, two], "questanswer_2docs": [], "questanswer_3docs": []}))
    refused(
        "c.json, questanswer_1doc[1]: the question id '1doc-1' is already used in c.json, questanswer_1doc[0]",
        datasets.crud,
        str(path),
    )


def test_question_ids_are_unique(tmp_path: Path) -> None:
    path = as_lines(tmp_path / "f.jsonl", SIMPLE, SIMPLE | {"id": "2"}, SIMPLE)
    refused("f.jsonl, line 3: the question id '1' is already used in f.jsonl, line 1", datasets.webquestions, path)


def test_evidence_has_to_be_in_the_paragraph_file(tmp_path: Path) -> None:
    path = as_list(tmp_path / "s.json", STRATEGY)
    paragraphs = as_lines(tmp_path / "p.jsonl", {"id": "p", "title": "T", "para_index": 2, "contents": "x"})
    message = "s.json, record index 0 (line 2), field 'evidence': expected paragraphs of p.jsonl, found 'T-1'"
    refused(message, datasets.strategyqa, path, corpus=paragraphs)


def test_search_results_have_to_belong_to_the_questions(tmp_path: Path) -> None:
    path = as_lines(tmp_path / "qa.jsonl", REALTIME)
    other = as_lines(tmp_path / "gcs.jsonl", {"question_id": "v_0", "search_result": []})
    message = "gcs.jsonl, line 1, field 'question_id': 'v_0' is not a question of qa.jsonl"
    refused(message, datasets.realtimeqa, path, search_results=other)
    message = "dataset.realtimeqa: set either search_results or corpus, not both"
    refused(message, datasets.realtimeqa, path, search_results=other, corpus=other)


def test_plain_gold_has_to_be_in_the_corpus(tmp_path: Path) -> None:
    corpus = as_lines(tmp_path / "p.jsonl", {"id": "p1", "title": "T", "text": "x"})
    for field, value in (("gold_ids", "T"), ("gold_titles", "p1")):
        path = as_lines(tmp_path / "q.jsonl", PLAIN | {field: [value]})
        message = f"q.jsonl, line 1, field '{field}': expected passages of p.jsonl, found '{value}'"
        refused(message, datasets.plain, path, corpus=corpus)
    path = as_lines(tmp_path / "q.jsonl", PLAIN)
    corpus = as_lines(tmp_path / "p.jsonl", {"id": "p1", "Title": "T", "text": "x"})
    message = "p.jsonl, line 1, field 'Title': is not a known field, did you mean 'title'? (known: id, title, text)"
    refused(message, datasets.plain, path, corpus=corpus)
    corpus = as_lines(tmp_path / "p.jsonl", {"id": "p1", "text": "x"}, {"id": "p1", "text": "y"})
    refused("p.jsonl, line 2: the passage id 'p1' is already used", datasets.plain, path, corpus=corpus)

"""Every format on a few made-up records: what becomes of them, field by field."""

import json
from pathlib import Path
from typing import Any

from rag_notes import datasets
from rag_notes.types import Passage, QAPair, Question


def write_json(path: Path, value: Any) -> str:
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
    return str(path)


def write_jsonl(path: Path, *records: Any) -> str:
    path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records), encoding="utf-8")
    return str(path)


HOTPOT = {
    "_id": "h1",
    "question": "Which river passes the town where the Ledo Mill stands?",
    "answer": "Aru",
    "type": "bridge",
    "level": "hard",
    "supporting_facts": [["Ledo Mill", 0], ["Venn", 1], ["Ledo Mill", 1]],
    "context": [
        ["Venn", ["Venn is a town.", " The Aru passes it."]],
        ["Oster", ["Oster is a hill."]],
        ["Ledo Mill", ["The Ledo Mill stands in Venn.", " It is old."]],
        ["Blank", [" "]],
    ],
}


def test_hotpotqa_joins_sentences_as_they_are_and_orders_gold_by_supporting_facts(tmp_path: Path) -> None:
    data = datasets.hotpotqa(write_json(tmp_path / "h.json", [HOTPOT]))
    assert data.name == "hotpotqa"
    assert data.questions == (
        Question(
            id="h1",
            question="Which river passes the town where the Ledo Mill stands?",
            answers=("Aru",),
            gold_titles=("Ledo Mill", "Venn"),
            gold_ids=("Ledo_Mill", "Venn"),
            type="bridge",
        ),
    )
    assert data.corpus == (
        Passage("Venn", "Venn", "Venn is a town. The Aru passes it."),
        Passage("Oster", "Oster", "Oster is a hill."),
        Passage("Ledo_Mill", "Ledo Mill", "The Ledo Mill stands in Venn. It is old."),
    )


def test_hotpotqa_fullwiki_keeps_titles_and_drops_incomplete_gold_ids(tmp_path: Path) -> None:
    path = write_json(tmp_path / "h.json", [HOTPOT | {"context": HOTPOT["context"][:2]}, HOTPOT | {"_id": "h2"}])
    first, second = datasets.hotpotqa(path, setting="fullwiki").questions
    assert (first.gold_titles, first.gold_ids) == (("Ledo Mill", "Venn"), ())
    assert second.gold_ids == ("Ledo_Mill", "Venn")


def test_twowikimultihopqa_puts_a_space_between_sentences(tmp_path: Path) -> None:
    record = {
        "_id": "w1",
        "type": "comparison",
        "question": "Who was born first, Ada Pell or Ron Quist?",
        "answer": "Ada Pell",
        "supporting_facts": [["Ron Quist", 0], ["Ada Pell", 0]],
        "context": [["Ada Pell", ["Born in 1900.", "Died in 1950."]], ["Ron Quist", ["Born in 1910."]]],
    }
    data = datasets.twowikimultihopqa(write_json(tmp_path / "w.json", [record]), name="two")
    assert data.name == "two"
    assert data.corpus[0] == Passage("Ada_Pell", "Ada Pell", "Born in 1900. Died in 1950.")
    assert data.questions[0].gold_ids == ("Ron_Quist", "Ada_Pell")
    assert data.questions[0].type == "comparison"


def musique_record(**changes: Any) -> dict[str, Any]:
    return {
        "id": "3hop1__1_2_3",
        "question": "Where does the maker of the Bell come from?",
        "answer": "Tarn",
        "answer_aliases": ["Old Tarn", "Tarn"],
        "answerable": True,
        "paragraphs": [
            {"idx": 0, "title": "Bell", "paragraph_text": "Made by Io Brandt.", "is_supporting": True},
            {"idx": 1, "title": "Bell", "paragraph_text": "A bell is a thing.", "is_supporting": False},
            {"idx": 2, "title": "Io Brandt", "paragraph_text": "From Tarn.", "is_supporting": True},
        ],
    } | changes


def test_musique_reads_aliases_hops_and_supporting_paragraphs(tmp_path: Path) -> None:
    data = datasets.musique(write_jsonl(tmp_path / "m.jsonl", musique_record()))
    (question,) = data.questions
    assert question.answers == ("Tarn", "Old Tarn")
    assert (question.type, question.hops) == ("3hop1", 3)
    assert question.gold_titles == ("Bell", "Io Brandt")
    first_bell, second_bell, brandt = data.corpus
    # Two texts under one title: sha256 of title, NUL, text, computed apart from the package.
    assert first_bell == Passage("Bell-ca8c75a58105", "Bell", "Made by Io Brandt.")
    assert second_bell.id.startswith("Bell-")
    assert brandt.id == "Io_Brandt"
    assert question.gold_ids == (first_bell.id, "Io_Brandt")


def test_musique_full_gives_the_unanswerable_twin_no_answers_and_its_own_id(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "m.jsonl", musique_record(), musique_record(answerable=False))
    _, twin = datasets.musique(path).questions
    assert (twin.id, twin.answers) == ("3hop1__1_2_3_unanswerable", ())


STRATEGY = {
    "qid": "s1",
    "question": "Could a Pim outrun a Tock?",
    "answer": False,
    "evidence": [
        [[["Pim-1"]], [["Tock-lake-2", "Pim-1"]], ["operation"]],
        [[["Pim-4"]], ["no_evidence"], [["Pim-1"], "operation"]],
    ],
}


def test_strategyqa_unites_the_evidence_of_the_annotators(tmp_path: Path) -> None:
    path = write_json(tmp_path / "s.json", [STRATEGY])
    official = write_json(
        tmp_path / "paragraphs.json",
        {
            key: {"title": key.rpartition("-")[0], "content": f"About {key}."}
            for key in ("Pim-1", "Pim-4", "Tock-lake-2", "Zug-1")
        },
    )
    data = datasets.strategyqa(path, corpus=official)
    assert data.questions == (
        Question(
            id="s1",
            question="Could a Pim outrun a Tock?",
            answers=("no",),
            gold_titles=("Pim", "Tock-lake"),
            gold_ids=("Pim-1", "Tock-lake-2", "Pim-4"),
            task="yes_no",
        ),
    )
    assert data.corpus[2] == Passage("Tock-lake-2", "Tock-lake", "About Tock-lake-2.")
    assert len(data.corpus) == 4


def test_strategyqa_paragraph_lines_keep_their_ids(tmp_path: Path) -> None:
    path = write_json(tmp_path / "s.json", [STRATEGY | {"answer": True}])
    lines = write_jsonl(
        tmp_path / "paragraphs.jsonl",
        {"id": "p0", "title": "Pim", "para_index": 4, "contents": "Four."},
        {"id": "p1", "title": "Tock-lake", "para_index": 2, "contents": "Two."},
        {"id": "p2", "title": "Pim", "para_index": 1, "contents": "One.\nStill one."},
    )
    data = datasets.strategyqa(path, corpus=lines)
    assert data.questions[0].answers == ("yes",)
    assert data.questions[0].gold_ids == ("p2", "p1", "p0")
    assert data.corpus[2] == Passage("p2", "Pim", "One.\nStill one.")


def test_strategyqa_with_another_corpus_has_gold_titles_alone(tmp_path: Path) -> None:
    path = write_json(tmp_path / "s.json", [STRATEGY, {"qid": "s2", "question": "Is it?", "answer": True}])
    corpus = write_jsonl(tmp_path / "c.jsonl", {"id": 7, "title": "Pim", "text": "A Pim."})
    data = datasets.strategyqa(path, corpus=corpus)
    assert [(q.gold_titles, q.gold_ids) for q in data.questions] == [(("Pim", "Tock-lake"), ()), ((), ())]
    assert tuple(data.corpus) == (Passage("7", "Pim", "A Pim."),)
    assert datasets.strategyqa(path).corpus == ()


def test_squad_gives_each_question_its_paragraph_and_pools_those_without_questions(tmp_path: Path) -> None:
    answers = [{"text": "blue", "answer_start": 0}, {"text": "blue", "answer_start": 9}, {"text": "light blue"}]
    value = {
        "version": "1.1",
        "data": [
            {
                "title": "Caf%C3%A9_Lum",
                "paragraphs": [
                    {"context": "The Lum is blue.", "qas": [{"id": "q1", "question": "Colour?", "answers": answers}]},
                    {"context": "No question here.", "qas": []},
                ],
            }
        ],
    }
    data = datasets.squad(write_json(tmp_path / "s.json", value))
    assert [(p.title, p.text) for p in data.corpus] == [
        ("Café Lum", "The Lum is blue."),
        ("Café Lum", "No question here."),
    ]
    (question,) = data.questions
    assert question.answers == ("blue", "light blue")
    assert (question.gold_ids, question.gold_titles) == ((data.corpus[0].id,), ("Café Lum",))


def test_nq_open_reads_both_layouts(tmp_path: Path) -> None:
    path = write_jsonl(
        tmp_path / "n.jsonl",
        {
            "question": "who drew the map",
            "answers": ["Ida Noll"],
            "ctxs": [
                {"id": "wiki:1", "title": "Map", "text": "By hand.", "isgold": False, "hasanswer": False},
                {"id": None, "title": "Ida Noll", "text": "She drew the map.", "isgold": True},
                {"title": "Ink", "text": "Black."},
            ],
        },
        {"id": "own", "question": "when", "answer": ["1899", "in 1899"]},
    )
    data = datasets.nq_open(path)
    first, second = data.questions
    assert (first.id, first.gold_ids, first.gold_titles) == ("nq_open-1", ("Ida_Noll",), ("Ida Noll",))
    assert (second.id, second.answers, second.gold_ids) == ("own", ("1899", "in 1899"), ())
    assert [p.id for p in data.corpus] == ["wiki:1", "Ida_Noll", "Ink"]


def test_triviaqa_takes_titles_with_brackets_out_of_the_texts(tmp_path: Path) -> None:
    passages = [
        "Document 1 (Title: Leon (singer)): He (as said): sang.\nTwice.",
        "Document 2(Title: Song): A song.",
        "Document 3 (Title: Song): A song.",
    ]
    path = write_jsonl(tmp_path / "t.jsonl", {"question": "Who sang?", "answers": ["Leon"], "passages": passages})
    data = datasets.triviaqa(path)
    assert data.corpus == (
        Passage("Leon_singer", "Leon (singer)", "He (as said): sang.\nTwice."),
        Passage("Song", "Song", "A song."),
    )
    assert data.questions == (Question("triviaqa-1", "Who sang?", ("Leon",)),)


def test_webquestions_has_an_empty_corpus(tmp_path: Path) -> None:
    records = {"id": "0", "question": "what?", "answer": ["this"]}, {"question": "and?", "answers": ["that"]}
    data = datasets.webquestions(write_jsonl(tmp_path / "w.jsonl", *records))
    assert data.questions == (Question("0", "what?", ("this",)), Question("webquestions-2", "and?", ("that",)))
    assert data.corpus == ()


def realtimeqa_record(**changes: Any) -> dict[str, Any]:
    record = {"question_id": "w_0", "question_sentence": "Who won?", "choices": ["Ann", "Bo", "Cy"], "answer": ["2"]}
    return record | changes


def test_realtimeqa_answers_with_the_chosen_text_and_pools_the_articles(tmp_path: Path) -> None:
    path = write_jsonl(
        tmp_path / "qa.jsonl", realtimeqa_record(), realtimeqa_record(question_id="w_1", answer=["1", "0"])
    )
    found = write_jsonl(
        tmp_path / "gcs.jsonl",
        {"question_id": "w_0", "search_result": [{"title": "", "text": "Cy won today."}, {"title": "Cy", "text": ""}]},
        {"question_id": "w_1", "search_result": []},
    )
    data = datasets.realtimeqa(path, search_results=found)
    assert data.questions == (Question("w_0", "Who won?", ("Cy",)), Question("w_1", "Who won?", ("Bo", "Ann")))
    assert data.corpus == (Passage("Cy_won_today", "", "Cy won today."),)
    assert datasets.realtimeqa(path).corpus == ()


def test_asqa_keeps_pairs_and_the_ids_of_retrieved_passages(tmp_path: Path) -> None:
    pairs = [
        {"question": "Who built the first tower?", "short_answers": ["Mo", "Mo Lund"], "wikipage": None},
        {"question": "Who built the second?", "short_answers": ["Nan"]},
    ]
    docs = [{"id": "901", "title": "Tower", "text": "Mo built it.", "score": 1.5}]
    path = write_json(
        tmp_path / "a.json",
        [
            {"sample_id": "a1", "question": "Who built the tower?", "qa_pairs": pairs, "docs": docs},
            {"id": 5, "question": "And the wall?", "qa_pairs": pairs[:1]},
            {"question": "And the gate?", "qa_pairs": pairs[:1]},
        ],
    )
    data = datasets.asqa(path)
    assert [q.id for q in data.questions] == ["a1", "5", "asqa-3"]
    assert data.questions[0] == Question(
        id="a1",
        question="Who built the tower?",
        qa_pairs=(
            QAPair("Who built the first tower?", ("Mo", "Mo Lund")),
            QAPair("Who built the second?", ("Nan",)),
        ),
        task="long_form",
    )
    assert data.corpus == (Passage("901", "Tower", "Mo built it."),)


CRUD: dict[str, list[dict[str, str]]] = {
    "event_summary": [{"ID": "x"}],
    "questanswer_1doc": [
        {
            "ID": "e1",
            "event": "桥",
            "news1": "2023-01-02，正文：新桥开通。",
            "questions": "什么开通？",
            "answers": "新桥",
        }
    ],
    "questanswer_2docs": [
        {
            "ID": "e1",
            "event": "桥",
            "news1": "2023-01-02，正文：新桥开通。",
            "news2": "旧桥关闭。",
            "questions": "哪些桥？",
            "answers": "新桥和旧桥",
        }
    ],
    "questanswer_3docs": [],
}


def test_crud_reads_three_tasks_with_their_news_as_gold(tmp_path: Path) -> None:
    path = write_json(tmp_path / "split_merged.json", CRUD)
    data = datasets.crud(path)
    assert data.corpus == (
        Passage("2023_01_02_正文_新桥开通", "", "2023-01-02，正文：新桥开通。"),
        Passage("旧桥关闭", "", "旧桥关闭。"),
    )
    assert data.questions[1] == Question(
        id="2docs-e1",
        question="哪些桥？",
        answers=("新桥和旧桥",),
        gold_ids=("2023_01_02_正文_新桥开通", "旧桥关闭"),
        task="news",
        type="questanswer_2docs",
        language="zh",
    )
    one = datasets.crud(path, split="questanswer_1doc")
    assert [q.id for q in one.questions] == ["1doc-e1"]
    assert one.corpus == data.corpus


def test_ircot_reads_spans_and_supporting_contexts(tmp_path: Path) -> None:
    record = {
        "question_id": "2hop__7_8",
        "question_text": "Where?",
        "answers_objects": [{"number": "", "spans": ["Tarn", "Old Tarn"]}, {"spans": ["Tarn"]}],
        "contexts": [
            {"idx": 0, "title": "A", "paragraph_text": "One.", "is_supporting": False},
            {"idx": 1, "title": "B", "paragraph_text": "Two.", "is_supporting": True},
        ],
    }
    other = record | {"question_id": 9, "type": "bridge", "contexts": []}
    data = datasets.ircot(write_jsonl(tmp_path / "i.jsonl", record, other))
    assert data.questions == (
        Question("2hop__7_8", "Where?", ("Tarn", "Old Tarn"), (), ("B",), ("B",), type="2hop", hops=2),
        Question("9", "Where?", ("Tarn", "Old Tarn"), type="bridge"),
    )
    assert [p.id for p in data.corpus] == ["A", "B"]


def test_flashrag_reads_metadata_and_its_corpus(tmp_path: Path) -> None:
    metadata = {"type": "bridge", "supporting_facts": {"title": ["B", "A", "B"], "sent_id": [0, 1, 1]}}
    path = write_jsonl(
        tmp_path / "f.jsonl",
        {"id": "dev_0", "question": "Is it?", "golden_answers": ["yes"], "metadata": metadata},
        {"id": "dev_1", "question": "Is it not?", "golden_answers": ["no"]},
    )
    corpus = write_jsonl(tmp_path / "c.jsonl", {"id": "0", "contents": '"A"\nFirst line.\nSecond line.'})
    data = datasets.flashrag(path, task="yes_no", corpus=corpus)
    assert data.questions == (
        Question("dev_0", "Is it?", ("yes",), gold_titles=("B", "A"), task="yes_no", type="bridge"),
        Question("dev_1", "Is it not?", ("no",), task="yes_no"),
    )
    assert tuple(data.corpus) == (Passage("0", "A", "First line.\nSecond line."),)


def test_plain_reads_every_field(tmp_path: Path) -> None:
    path = write_jsonl(
        tmp_path / "q.jsonl",
        {
            "id": "1",
            "question": "谁？",
            "answers": ["甲"],
            "qa_pairs": [{"question": "谁先？", "answers": ["甲", "乙"]}],
            "gold_titles": ["T"],
            "gold_ids": ["p1"],
            "task": "news",
            "type": "mine",
            "hops": 2,
            "language": "zh",
        },
        {"id": "2", "question": "Who?"},
    )
    corpus = write_jsonl(tmp_path / "p.jsonl", {"id": "p1", "title": "T", "text": "正文"}, {"id": "p2", "text": "x"})
    data = datasets.plain(path, corpus=corpus)
    assert data.questions == (
        Question("1", "谁？", ("甲",), (QAPair("谁先？", ("甲", "乙")),), ("T",), ("p1",), "news", "mine", 2, "zh"),
        Question("2", "Who?"),
    )
    assert tuple(data.corpus) == (Passage("p1", "T", "正文"), Passage("p2", "", "x"))
    assert datasets.plain(path).corpus == ()

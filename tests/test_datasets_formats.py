"""Every official format: what is read of a valid file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rag_notes.datasets as datasets
from rag_notes.types import Dataset, Passage, QAPair, Question
from tests.corpora import write

Record = dict[str, Any]
# fmt: off
HOTPOT: Record = {
    "_id": "h1", "question": "Which river passes the mill's town?", "answer": "Aru", "type": "bridge",
    "supporting_facts": [["Ledo Mill", 0], ["Venn", 1], ["Venn", 0]],
    "context": [["Venn", ["Venn is a town.", " The Aru passes it."]], ["Void", [""]], ["Ledo Mill", ["In Venn."]]],
}
TITLES, IDS = ("Ledo Mill", "Venn"), ("Ledo_Mill", "Venn")
VENN = Passage("Venn", "Venn", "Venn is a town. The Aru passes it.")
MUSIQUE: Record = {
    "id": "3hop1__1_2_3", "question": "Where does the maker of the Bell come from?", "answerable": True,
    "answer": "Tarn", "answer_aliases": ["Old Tarn", "Tarn"],
    "paragraphs": [
        {"title": "Bell", "paragraph_text": "Made by Io Brandt.", "is_supporting": True},
        {"title": "Bell", "paragraph_text": "A bell is a thing.", "is_supporting": False},
        {"title": "Io Brandt", "paragraph_text": "From Tarn.", "is_supporting": True},
    ],
}
BELL = "Bell-ca8c75a58105"  # the sha256 of title, NUL and text, computed apart from the package
MAKERS: Any = (("Bell", "Io Brandt"), (BELL, "Io_Brandt"), "short", "3hop1", 3)
IRCOT: Record = {
    "question_id": "2hop__7_8", "question_text": "Where?",
    "answers_objects": [{"number": "", "spans": ["Tarn", "Old Tarn"]}, {"spans": ["Tarn"]}],
    "contexts": [{"title": "B", "paragraph_text": "Two.", "is_supporting": True}],
}
STRATEGY: Record = {
    "qid": "s1", "question": "Could a Pim outrun a Tock?", "answer": False,
    "evidence": [[[["Pim-1"]], [["Tock-lake-2", "Pim-1"]], ["operation"]], [[["Pim-4"]], ["no_evidence"]]],
}
PIM: Any = (("Pim", "Tock-lake"), ("Pim-1", "Tock-lake-2", "Pim-4"), "yes_no")
OFFICIAL = {key: {"title": key[:-2], "content": f"On {key}.", "section": "x"} for key in PIM[1]}
LINES = [
    {"id": "p0", "title": "Pim", "para_index": 4, "contents": "Four."},
    {"id": "p1", "title": "Tock-lake", "para_index": 2, "contents": "Two."},
    {"id": "p2", "title": "Pim", "para_index": 1, "contents": "One.\nStill one."},
]
SQUAD = {"id": "q1", "question": "Colour?", "answers": [{"text": "blue"}, {"text": "blue"}, {"text": "light blue"}]}
ARTICLE: Record = {
    "title": "Caf%C3%A9_Lum",
    "paragraphs": [{"context": "The Lum is blue.", "qas": [SQUAD]}, {"context": "No question here.", "qas": []}],
}
LUM = "Café_Lum-ea481938a6bb"
NQ: Record = {
    "question": "who drew the map", "answers": ["Ida Noll"],
    "ctxs": [
        {"id": "wiki:1", "title": "Map", "text": "By hand.", "isgold": False, "hasanswer": False},
        {"id": None, "title": "Ida Noll", "text": "She drew the map.", "isgold": True},
    ],
}
SINGERS = ["Document 1 (Title: Leon (singer)): He (as said): sang.\nTwice.", "Document 2(Title: Song): A song."]
REALTIME: Record = {
    "question_id": "w_0", "question_sentence": "Who won?", "choices": ["Ann", "Bo", "Cy", "None"], "answer": ["2", "0"],
}
RESULTS = {"question_id": "w_0", "search_result": [{"title": "", "text": "Cy won today."}, {"title": "Cy", "text": ""}]}
ASQA: Record = {
    "sample_id": "a1", "question": "Who built the tower?",
    "qa_pairs": [{"question": "Who built the first?", "short_answers": ["Mo", "Mo Lund"], "wikipage": None}],
    "docs": [{"id": 901, "title": "Tower", "text": "Mo built it.", "score": 1.5}],
}
PAIRS = (QAPair("Who built the first?", ("Mo", "Mo Lund")),)
NEWS = {"ID": "e1", "news1": "2023-01-02，正文：新桥开通。", "questions": "什么开通？", "answers": "新桥"}
TWO_NEWS = NEWS | {"news2": "旧桥关闭。"}
CRUD: Record = {"questanswer_1doc": [NEWS], "questanswer_2docs": [TWO_NEWS], "questanswer_3docs": []}
NEWS_IDS = ("2023_01_02_正文_新桥开通", "旧桥关闭")
FLASH: Record = {
    "id": "dev_0", "question": "Is it?", "golden_answers": ["yes"],
    "metadata": {"type": "bridge", "supporting_facts": {"title": ["B", "A", "B"], "sent_id": [0, 1, 1]}, "level": 3},
}
PLAIN: Record = {
    "id": "1", "question": "谁？", "answers": ["甲"], "qa_pairs": [{"question": "谁先？", "answers": ["甲", "乙"]}],
    "gold_titles": ["T"], "gold_ids": ["p1"], "task": "news", "type": "mine", "hops": 2, "language": "zh",
}
PLAIN_CORPUS = [{"id": "p1", "title": "T", "text": "正文"}, {"id": "p2", "text": "x"}]

Options = dict[str, Any]  # of files their name, and their JSON or lines of JSON
CASES: dict[str, tuple[Callable[..., Dataset], Options, list[Question], list[Passage]]] = {
    "hotpotqa": (
        datasets.hotpotqa, {"path": ("h.json", [HOTPOT])},
        [Question("h1", HOTPOT["question"], ("Aru",), (), TITLES, IDS, type="bridge")],
        [VENN, Passage("Ledo_Mill", "Ledo Mill", "In Venn.")],
    ),
    "fullwiki": (
        datasets.hotpotqa, {"path": ("h.json", [HOTPOT | {"context": HOTPOT["context"][:1]}])},
        [Question("h1", HOTPOT["question"], ("Aru",), (), TITLES, type="bridge")], [VENN],
    ),
    "twowikimultihopqa": (
        datasets.twowikimultihopqa,
        {"path": ("w.json", [HOTPOT | {"context": [["Venn", ["One.", "Two."]], ["Ledo Mill", ["Three."]]]}])},
        [Question("h1", HOTPOT["question"], ("Aru",), (), TITLES, IDS, type="bridge")],
        [Passage("Venn", "Venn", "One. Two."), Passage("Ledo_Mill", "Ledo Mill", "Three.")],
    ),
    "musique": (
        datasets.musique, {"path": ("m.jsonl", [MUSIQUE, MUSIQUE | {"answerable": False}])},
        [Question(MUSIQUE["id"], MUSIQUE["question"], ("Tarn", "Old Tarn"), (), *MAKERS),
         Question(f"{MUSIQUE['id']}_unanswerable", MUSIQUE["question"], (), (), *MAKERS)],
        [Passage(BELL, "Bell", "Made by Io Brandt."), Passage("Io_Brandt", "Io Brandt", "From Tarn.")],
    ),
    "ircot": (
        datasets.ircot, {"path": ("i.jsonl", [IRCOT, IRCOT | {"question_id": 9, "type": "bridge", "contexts": []}])},
        [Question("2hop__7_8", "Where?", ("Tarn", "Old Tarn"), (), ("B",), ("B",), type="2hop", hops=2),
         Question("9", "Where?", ("Tarn", "Old Tarn"), type="bridge")],
        [Passage("B", "B", "Two.")],
    ),
    "strategyqa": (
        datasets.strategyqa, {"path": ("s.json", [STRATEGY]), "corpus": ("p.json", OFFICIAL)},
        [Question("s1", STRATEGY["question"], ("no",), (), *PIM)],
        [Passage("Pim-1", "Pim", "On Pim-1."), Passage("Tock-lake-2", "Tock-lake", "On Tock-lake-2.")],
    ),
    "strategyqa-lines": (
        datasets.strategyqa, {"path": ("s.json", [STRATEGY | {"answer": True}]), "corpus": ("p.jsonl", LINES)},
        [Question("s1", STRATEGY["question"], ("yes",), (), PIM[0], ("p2", "p1", "p0"), "yes_no")],
        [Passage("p2", "Pim", "One.\nStill one.")],
    ),
    "squad": (
        datasets.squad, {"path": ("s.json", {"version": "1.1", "data": [ARTICLE]})},
        [Question("q1", "Colour?", ("blue", "light blue"), (), ("Café Lum",), (LUM,))],
        [Passage(LUM, "Café Lum", "The Lum is blue.")],
    ),
    "nq_open": (
        datasets.nq_open, {"path": ("n.jsonl", [NQ, {"id": "own", "question": "when", "answer": ["1899", "in 1899"]}])},
        [Question("nq_open-1", "who drew the map", ("Ida Noll",), (), ("Ida Noll",), ("Ida_Noll",)),
         Question("own", "when", ("1899", "in 1899"))],
        [Passage("wiki:1", "Map", "By hand."), Passage("Ida_Noll", "Ida Noll", "She drew the map.")],
    ),
    "triviaqa": (
        datasets.triviaqa, {"path": ("t.jsonl", [{"question": "Who sang?", "answers": ["Leon"], "passages": SINGERS}])},
        [Question("triviaqa-1", "Who sang?", ("Leon",))],
        [Passage("Leon_singer", "Leon (singer)", "He (as said): sang.\nTwice."), Passage("Song", "Song", "A song.")],
    ),
    "webquestions": (
        datasets.webquestions, {"path": ("w.jsonl", [{"id": 0, "question": "what?", "answer": ["this"]}])},
        [Question("0", "what?", ("this",))], [],
    ),
    "flashrag": (
        datasets.flashrag,
        {"path": ("f.jsonl", [FLASH]), "corpus": ("c.jsonl", [{"id": "0", "contents": '"A"\nFirst.\nSecond.'}]),
         "task": "yes_no"},
        [Question("dev_0", "Is it?", ("yes",), (), ("B", "A"), (), "yes_no", "bridge")],
        [Passage("0", "A", "First.\nSecond.")],
    ),
    "realtimeqa": (
        datasets.realtimeqa, {"path": ("q.jsonl", [REALTIME]), "search_results": ("s.jsonl", [RESULTS])},
        [Question("w_0", "Who won?", ("Cy", "Ann"))], [Passage("Cy_won_today", "", "Cy won today.")],
    ),
    "asqa": (
        datasets.asqa, {"path": ("a.json", [ASQA, {"id": 5, "question": "And?", "qa_pairs": ASQA["qa_pairs"]}])},
        [Question("a1", "Who built the tower?", (), PAIRS, task="long_form"),
         Question("5", "And?", (), PAIRS, task="long_form")],
        [Passage("901", "Tower", "Mo built it.")],
    ),
    "crud": (
        datasets.crud, {"path": ("c.json", CRUD), "split": "questanswer_2docs"},
        [Question("2docs-e1", "什么开通？", ("新桥",), (), (), NEWS_IDS, "news", "questanswer_2docs", 0, "zh")],
        [Passage(NEWS_IDS[0], "", NEWS["news1"]), Passage(NEWS_IDS[1], "", "旧桥关闭。")],
    ),
    "plain": (
        datasets.plain, {"path": ("q.jsonl", [PLAIN]), "corpus": ("p.jsonl", PLAIN_CORPUS)},
        [Question("1", "谁？", ("甲",), (QAPair("谁先？", ("甲", "乙")),), ("T",), ("p1",), "news", "mine", 2, "zh")],
        [Passage("p1", "T", "正文"), Passage("p2", "", "x")],
    ),
}
# fmt: on


@pytest.mark.parametrize("name", CASES)
def test_a_valid_file_is_read(name: str, tmp_path: Path) -> None:
    load, options, questions, passages = CASES[name]
    for option, value in options.items():
        if isinstance(value, tuple):
            options = options | {option: write(tmp_path / value[0], value[1])}
    data = load(**options)
    assert list(data.questions) == questions
    assert [passage for passage in passages if passage not in list(data.corpus)] == []
    assert data.corpus_kind == ("given" if "corpus" in options else "pooled")
    assert load(**options, name="mine").name == "mine"

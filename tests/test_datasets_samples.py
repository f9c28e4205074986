"""The loaders on real samples: counts, one record and the checksum of everything that was read."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from rag_notes import datasets
from rag_notes.files import SHIPPED
from rag_notes.types import Dataset, Question
from tests.samples import samples


def sha256(data: Dataset) -> str:
    read = {
        "name": data.name,
        "questions": [asdict(question) for question in data.questions],
        "corpus": [asdict(passage) for passage in data.corpus],
    }
    dump = json.dumps(read, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(dump.encode()).hexdigest()


CASES: list[tuple[Callable[..., Dataset], dict[str, str], int, int, dict[str, Any], str]] = [
    (
        datasets.hotpotqa,
        {"path": "hotpotqa/dev_distractor.sample200.json"},
        200,
        1971,
        {
            "id": "5a7f6fd75542992e7d278cfa",
            "answers": ("Rush",),
            "gold_ids": ("Nobody_s_Hero", "Neil_Peart"),
            "type": "bridge",
        },
        "e39ea75ab6eb0015bb2a52c87724a15a76c25ee39ea8bcefc0e57c9e393fd554",
    ),
    (
        datasets.twowikimultihopqa,
        {"path": "2wikimultihopqa/dev.sample500.json"},
        500,
        3301,
        {
            "id": "100c512a0bde11eba7f7acde48001122",
            "answers": ("Cork",),
            "gold_ids": ("Charles_Mathew", "James_Charles_Mathew"),
            "type": "compositional",
        },
        "94f4cc86a71cb8c53795cec74665521cf2fb2074f767114ed110ff759b1bbe06",
    ),
    (
        datasets.musique,
        {"path": "musique/musique_ans_dev.sample200.jsonl"},
        200,
        3141,
        {
            "id": "2hop__574419_270105",
            "answers": ("Stanley",),
            "gold_ids": ("Mountrail_County_Courthouse", "Van_Hook_Township_Mountrail_County_North_Dakota"),
            "hops": 2,
        },
        "443d470d4891fe0f72c7f2b0969aafff64c80c2061411eabf3f25dd1ebf685c8",
    ),
    (
        datasets.strategyqa,
        {"path": "strategyqa/dev.json", "corpus": "strategyqa/paragraphs.jsonl"},
        229,
        998,
        {
            "id": "e0044a7b4d146d611e73",
            "answers": ("no",),
            "gold_titles": ("Albany, Georgia", "Albany, New York"),
            "gold_ids": ("strategy_0", "strategy_1", "strategy_2"),
            "task": "yes_no",
        },
        "6f57207598910c3c818343be427654f63c752dcf1e2f20e1878693f5941aab21",
    ),
    (
        datasets.asqa,
        {"path": "asqa/asqa_dev.json", "corpus": "asqa/psgs_w100.pool300.jsonl"},
        948,
        3620,
        {"id": "-7013890438520559398", "answers": (), "task": "long_form"},
        "74bfbdcfefe5619f511006695f5259111559d739b5e309ce3b1aa45d9d2d5018",
    ),
    (
        datasets.nq_open,
        {"path": "nq/nq_open_oracle.sample1000.jsonl"},
        1000,
        989,
        {
            "id": "nq_open-1",
            "answers": ("Wilhelm Conrad Röntgen",),
            "gold_ids": ("List_of_Nobel_laureates_in_Physics",),
        },
        "bf8f286bb767848cff167f4eda78fddd70d71b679637739c41834705232dab19",
    ),
    (
        datasets.triviaqa,
        {"path": "triviaqa/triviaqa_retrieved.sample500.jsonl"},
        500,
        2492,
        {"id": "triviaqa-1"},
        "7127098ecf8b8d3715c0501782778367ceaa7673aa20a42811942ffdfa1bdfb6",
    ),
    (
        datasets.squad,
        {"path": "squad/xquad.en.json"},
        1190,
        240,
        {"id": "56beb4343aeaaa14008c925b", "answers": ("308",), "gold_titles": ("Super Bowl 50",)},
        "2fce6258735df682a30ffe03059b1860569121fd9579a8434c7182ff391bd5b0",
    ),
    (
        datasets.webquestions,
        {"path": "webq/webq_test.jsonl"},
        2032,
        0,
        {"id": "0", "answers": ("Jamaican Creole English Language", "Jamaican English")},
        "31904a7691664204992009b6d874bb10f362d07be9b0147eeb8f8f5f685a0668",
    ),
    (
        datasets.realtimeqa,
        {"path": "realtimeqa/20231110_qa.jsonl", "search_results": "realtimeqa/20231110_gcs.trimmed.jsonl"},
        30,
        157,
        {"id": "20231110_0", "answers": ("Patrick Dempsey",)},
        "772bb610810429287dcd0bd8d6948d88319887e695f1dd21c45ec98acc2138ab",
    ),
]


@pytest.mark.parametrize(
    ("loader", "files", "questions", "passages", "first", "checksum"), CASES, ids=[case[0].__name__ for case in CASES]
)
def test_sample(
    loader: Callable[..., Dataset],
    files: dict[str, str],
    questions: int,
    passages: int,
    first: dict[str, Any],
    checksum: str,
) -> None:
    data = loader(**{option: str(samples(file)) for option, file in files.items()})
    assert (len(data.questions), len(data.corpus)) == (questions, passages)
    assert {field: getattr(data.questions[0], field) for field in first} == first
    ids = {passage.id for passage in data.corpus}
    assert len(ids) == passages
    assert all(ids.issuperset(question.gold_ids) for question in data.questions)
    assert sha256(data) == checksum
    assert (data.selection, data.corpus_kind) == ("all", "given" if "corpus" in files else "pooled")


def test_crud_news_are_a_corpus(tmp_path: Path) -> None:
    record = {"ID": "1", "news1": "一", "questions": "谁？", "answers": "我"}
    path = tmp_path / "split_merged.json"
    path.write_text(json.dumps({"questanswer_1doc": [record], "questanswer_2docs": [], "questanswer_3docs": []}))
    data = datasets.crud(str(path), corpus=str(samples("crud/news_documents.sample400.txt")))
    expected = Question("1doc-1", "谁？", ("我",), task="news", type="questanswer_1doc", language="zh")
    assert data.questions == (expected,)
    assert len(data.corpus) == 400
    assert data.corpus[1].id.startswith("2023_08_11_15_10_正文")


@pytest.mark.parametrize(
    ("suffix", "checksum"),
    [
        ("", "36face26ecd535d0cecd3a0cb78679de72971598f1befde07a77f851db36b9c9"),
        (".zh", "e78b4e6f0cd74faf85d1f106029ed8947e77cae34b06157a80df11322761b337"),
    ],
)
def test_the_mini_sets_are_read_as_they_were(suffix: str, checksum: str) -> None:
    folder = SHIPPED / "data/mini"
    data = datasets.plain(str(folder / f"questions{suffix}.jsonl"), corpus=str(folder / f"passages{suffix}.jsonl"))
    records = [[asdict(question) for question in data.questions], [asdict(passage) for passage in data.corpus]]
    assert hashlib.sha256(json.dumps(records, sort_keys=True).encode()).hexdigest() == checksum


@pytest.mark.parametrize(
    ("loader", "file", "listed", "found"),
    [
        (datasets.hotpotqa, "hotpotqa/dev_distractor.sample200.json", "hotpotqa", 19),
        (datasets.twowikimultihopqa, "2wikimultihopqa/dev.sample500.json", "twowikimultihopqa", 16),
        (datasets.musique, "musique/musique_ans_dev.sample200.jsonl", "musique", 44),
    ],
)
def test_the_papers_questions_are_taken_in_the_papers_order(
    loader: Callable[..., Dataset], file: str, listed: str, found: int, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(samples(file))
    digests = (SHIPPED / f"data/paper/questions/{listed}.sha256.txt").read_text(encoding="ascii").split()
    data, whole = loader(path, questions="papers"), loader(path)
    ranks = [digests.index(hashlib.sha256(q.question.strip().encode()).hexdigest()) for q in data.questions]
    assert ranks == sorted(ranks)
    assert (len(data.questions), len(set(ranks))) == (found, found)
    assert set(data.questions) < set(whole.questions)
    assert (data.selection, data.corpus) == ("papers", whole.corpus)
    said = f"dataset.{listed}.questions=papers: {found} of the papers' 500 questions are in {path}\n"
    assert capsys.readouterr().err == said

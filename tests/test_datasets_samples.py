"""The loaders on real samples: how much is read, the checksum of all of it, and the papers' questions."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict

import pytest

import rag_notes.datasets as datasets
from rag_notes.files import SHIPPED
from rag_notes.types import Dataset
from tests.samples import samples

HOTPOT, WIKI = "hotpotqa/dev_distractor.sample200.json", "2wikimultihopqa/dev.sample500.json"
MINI = str(SHIPPED / "data/mini")  # absolute: found also where there are no samples
MUSIQUE, REALTIME = "musique/musique_ans_dev.sample200.jsonl", "realtimeqa/20231110_gcs.trimmed.jsonl"
Loader = Callable[..., Dataset]
CASES: list[tuple[Loader, str, dict[str, str], int, int, str]] = [
    (datasets.plain, f"{MINI}/questions.jsonl", {"corpus": f"{MINI}/passages.jsonl"}, 54, 297, "5b5a4dd64afc"),
    (datasets.plain, f"{MINI}/questions.zh.jsonl", {"corpus": f"{MINI}/passages.zh.jsonl"}, 8, 45, "738462b5a420"),
    (datasets.hotpotqa, HOTPOT, {}, 200, 1971, "e39ea75ab6eb"),
    (datasets.twowikimultihopqa, WIKI, {}, 500, 3301, "94f4cc86a71c"),
    (datasets.musique, MUSIQUE, {}, 200, 3141, "443d470d4891"),
    (datasets.strategyqa, "strategyqa/dev.json", {"corpus": "strategyqa/paragraphs.jsonl"}, 229, 998, "6f5720759891"),
    (datasets.asqa, "asqa/asqa_dev.json", {"corpus": "asqa/psgs_w100.pool300.jsonl"}, 948, 3620, "74bfbdcfefe5"),
    (datasets.nq_open, "nq/nq_open_oracle.sample1000.jsonl", {}, 1000, 989, "bf8f286bb767"),
    (datasets.triviaqa, "triviaqa/triviaqa_retrieved.sample500.jsonl", {}, 500, 2492, "7127098ecf8b"),
    (datasets.squad, "squad/xquad.en.json", {}, 1190, 240, "2fce6258735d"),
    (datasets.webquestions, "webq/webq_test.jsonl", {}, 2032, 0, "31904a769166"),
    (datasets.realtimeqa, "realtimeqa/20231110_qa.jsonl", {"search_results": REALTIME}, 30, 157, "772bb6108104"),
]  # fmt: skip


@pytest.mark.parametrize(("loader", "path", "files", "questions", "passages", "checksum"), CASES)
def test_sample(loader: Loader, path: str, files: dict[str, str], questions: int, passages: int, checksum: str) -> None:
    data = loader(str(samples(path)), **{option: str(samples(file)) for option, file in files.items()})
    assert (len(data.questions), len(data.corpus)) == (questions, passages)
    ids = {passage.id for passage in data.corpus}
    assert len(ids) == passages
    assert all(ids.issuperset(question.gold_ids) for question in data.questions)
    records = {
        "name": data.name,
        "questions": [asdict(question) for question in data.questions],
        "corpus": [asdict(passage) for passage in data.corpus],
    }
    dump = json.dumps(records, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    assert hashlib.sha256(dump.encode()).hexdigest().startswith(checksum)
    assert (data.selection, data.corpus_kind) == ("all", "given" if "corpus" in files else "pooled")


@pytest.mark.parametrize(
    ("loader", "path", "total"),
    [(datasets.hotpotqa, HOTPOT, 19), (datasets.twowikimultihopqa, WIKI, 16), (datasets.musique, MUSIQUE, 44)],
)
def test_the_papers_questions_are_taken_in_the_papers_order(
    loader: Loader, path: str, total: int, capsys: pytest.CaptureFixture[str]
) -> None:
    path, name = str(samples(path)), loader.__name__
    digests = (SHIPPED / f"data/paper/questions/{name}.sha256.txt").read_text(encoding="ascii").split()
    data, whole = loader(path, questions="papers"), loader(path)
    ranks = [digests.index(hashlib.sha256(q.question.strip().encode()).hexdigest()) for q in data.questions]
    assert ranks == sorted(set(ranks)) and len(ranks) == total
    assert set(data.questions) < set(whole.questions)
    assert (data.selection, data.corpus) == ("papers", whole.corpus)
    option = f"dataset.{name}.questions=papers"
    assert capsys.readouterr().err == f"{option}: {total} of the papers' 500 questions are in {path}\n"

"""The loaders on real samples: how much is read, the checksum of all of it, and the papers' own questions."""

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
MUSIQUE, REALTIME = "musique/musique_ans_dev.sample200.jsonl", "realtimeqa/20231110_gcs.trimmed.jsonl"
Loader = Callable[..., Dataset]
# fmt: off
CASES: list[tuple[Loader, str, dict[str, str], int, int, str]] = [
    (datasets.hotpotqa, HOTPOT, {}, 200, 1971, "e39ea75ab6eb0015bb2a52c87724a15a76c25ee39ea8bcefc0e57c9e393fd554"),
    (datasets.twowikimultihopqa, WIKI, {}, 500, 3301,
     "94f4cc86a71cb8c53795cec74665521cf2fb2074f767114ed110ff759b1bbe06"),
    (datasets.musique, MUSIQUE, {}, 200, 3141, "443d470d4891fe0f72c7f2b0969aafff64c80c2061411eabf3f25dd1ebf685c8"),
    (datasets.strategyqa, "strategyqa/dev.json", {"corpus": "strategyqa/paragraphs.jsonl"}, 229, 998,
     "6f57207598910c3c818343be427654f63c752dcf1e2f20e1878693f5941aab21"),
    (datasets.asqa, "asqa/asqa_dev.json", {"corpus": "asqa/psgs_w100.pool300.jsonl"}, 948, 3620,
     "74bfbdcfefe5619f511006695f5259111559d739b5e309ce3b1aa45d9d2d5018"),
    (datasets.nq_open, "nq/nq_open_oracle.sample1000.jsonl", {}, 1000, 989,
     "bf8f286bb767848cff167f4eda78fddd70d71b679637739c41834705232dab19"),
    (datasets.triviaqa, "triviaqa/triviaqa_retrieved.sample500.jsonl", {}, 500, 2492,
     "7127098ecf8b8d3715c0501782778367ceaa7673aa20a42811942ffdfa1bdfb6"),
    (datasets.squad, "squad/xquad.en.json", {}, 1190, 240,
     "2fce6258735df682a30ffe03059b1860569121fd9579a8434c7182ff391bd5b0"),
    (datasets.webquestions, "webq/webq_test.jsonl", {}, 2032, 0,
     "31904a7691664204992009b6d874bb10f362d07be9b0147eeb8f8f5f685a0668"),
    (datasets.realtimeqa, "realtimeqa/20231110_qa.jsonl", {"search_results": REALTIME}, 30, 157,
     "772bb610810429287dcd0bd8d6948d88319887e695f1dd21c45ec98acc2138ab"),
]
# fmt: on


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
    assert hashlib.sha256(dump.encode()).hexdigest() == checksum
    assert (data.selection, data.corpus_kind) == ("all", "given" if "corpus" in files else "pooled")


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
    message = f"dataset.{name}.questions=papers: {total} of the papers' 500 questions are in {path}\n"
    assert capsys.readouterr().err == message

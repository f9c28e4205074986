"""Training data: what each maker takes for an example and what it drops, test questions, the file and its card."""

import asyncio
import json
import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rag_notes.cli import main
from rag_notes.config import load_settings
from rag_notes.files import SHIPPED
from rag_notes.llm.client import LLM, FatalLLMError, LLMError
from rag_notes.llm.store import ResponseStore, request_key
from rag_notes.methods.about import about_of, settings_of
from rag_notes.options import CONF, choices
from rag_notes.parts import ConfigError
from rag_notes.prompts.templates import Templates
from rag_notes.training.cards import read_examples
from rag_notes.training.chain_of_note import chain_of_note
from rag_notes.training.content_filter import content_filter
from rag_notes.training.data import AT_ONCE, Batch, Data, Work, load_data, make_examples, write_examples
from rag_notes.training.dnalign import dnalign
from rag_notes.types import InputError, Question
from tests.loopback import Loopback
from tests.pairs import DNALIGN, HITS, NINE, examples_of
from tests.scripted import Answer, Ask, Q, ScriptedLLM, ScriptedRetriever, by_stage, shown

GOLD = replace(Q, gold_ids=("a", "z"))


def by_stage_of(batch: Batch) -> dict[str, dict[str, Any]]:
    """The only example of each stage."""
    examples = {example["stage"]: example for _, example in batch.examples}
    assert len(examples) == len(batch.examples)
    return examples


def kinds(batch: Batch) -> list[str]:
    return [kind for kind, _ in batch.examples if kind]


def completions(batch: Batch, stage: str = "") -> list[str]:
    return [e["completion"][0]["content"] for _, e in batch.examples if stage in e["stage"]]


def pairs_of(script: dict[str, Any], **settings: Any) -> Batch:
    """The pairs of DNAlign for one question by a script, with nine samplings."""
    return examples_of(dnalign, script, temperatures=NINE, top_ps=NINE, **settings)


def message(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


def test_dnalign_pairs_are_the_messages_of_the_client_with_the_best_and_worst_of_nine_responses() -> None:
    script = ScriptedLLM(by_stage(**DNALIGN), system="Be brief.")
    result = pairs_of({}, llm=script, least_passages=4, most_passages=4)
    examples = by_stage_of(result)
    assert examples["note_update"]["rejected"][0]["content"] in DNALIGN["note_update"][1:]
    assert {stage: (one["chosen"], one["rejected"]) for stage, one in examples.items()} == {
        "answer_short": (message("Dumfries"), message("Glasgow")),
        "note_init": (message("note 2"), message("note 3")),
        "note_query": (message("Which bridge?"), message("When?")),
        "note_update": (message("update 0"), examples["note_update"]["rejected"]),
    }
    passages = Templates().fill("note_init", "en", {"context": shown("a", "b", "c", "d"), "question": Q.question})
    client = LLM("scripted", store=ResponseStore(":memory:"), system="Be brief.")
    assert examples["note_init"]["prompt"] == client.request(passages)["messages"]
    assert [part["role"] for part in examples["note_init"]["prompt"]] == ["system", "user"]
    assert (result.questions, dict(result.dropped)) == (1, {})
    counts = {stage: sum(ask.stage == stage for ask in script.asks) for stage in DNALIGN}
    assert counts == dict.fromkeys(DNALIGN, 9) | {"dnalign_notes": 1, "dnalign_queries": 1}
    assert sum(counts.values()) == about_of(dnalign).calls({"temperatures": NINE, "top_ps": NINE, "evaluator": "model"})  # type: ignore[misc]


def test_every_sampling_is_a_request_of_its_own_and_the_later_stages_go_on_from_the_best() -> None:
    script = ScriptedLLM(by_stage(**DNALIGN))
    pairs_of({}, llm=script)
    prompt = next(ask.prompt for ask in script.asks if ask.stage == "note_init")
    for temperature in NINE:
        for top_p in NINE:
            other = LLM("scripted", store=ResponseStore(":memory:"), temperature=temperature, top_p=top_p)
            assert script.store.get(request_key(other.request(prompt))) is not None
    (evaluated,) = script.asked("dnalign_notes")  # each distinct response once
    candidates = [{"_id": n, "content": f"note {n}"} for n in (1, 2, 3)]
    assert [json.loads(line) for line in evaluated["candidates"].splitlines()] == candidates
    assert {fields["note"] for fields in script.asked("note_query")} == {"note 2"}
    assert {fields["best_note"] for fields in script.asked("note_judge")} == {"note 2"}


def test_the_number_of_passages_is_drawn_for_each_question_by_the_seed() -> None:
    def drawn(seed: int) -> list[int]:
        questions = [replace(Q, id=f"q{n}") for n in range(40)]
        retriever = ScriptedRetriever(lambda _: HITS)
        maker = partial(dnalign, temperatures=[0.1], top_ps=[0.1])
        llm, data = ScriptedLLM(lambda _: "the same"), Data(maker, out="unused", seed=seed)
        asyncio.run(make_examples(data, questions, retriever, llm, Templates()))
        return [top_k for _, top_k in retriever.searches]

    assert set(drawn(1)) == set(range(3, 10))
    assert drawn(1) == drawn(1) != drawn(2)


def test_gold_evaluation_ranks_notes_and_questions_by_gold_answers_and_passages() -> None:
    def pairs(notes: list[str], queries: Any, question: Question = GOLD) -> Batch:
        hits = {Q.question: HITS, f"bad {Q.question}": ["a"], f"good {Q.question}": ["b", "z"]}
        script = DNALIGN | {"note_init": [*notes, *notes[:1] * (9 - len(notes))], "note_query": queries}
        return pairs_of(script, question=question, hits=hits, evaluator="gold")

    def texts(batch: Batch, stage: str) -> list[str]:
        return [by_stage_of(batch)[stage][side][0]["content"] for side in ("chosen", "rejected")]

    by_answer = pairs(["nothing", "It is Title a.", "Born in Dumfries."], ["bad", "good", *["bad"] * 7])
    assert texts(by_answer, "note_init") == ["Born in Dumfries.", "nothing"]
    assert texts(by_answer, "note_query") == ["good", "bad"]
    vague, close = "Title a is unknown here.", "Title a: text of a."  # equal but for the words of gold passages
    notes = [vague, close, "Title a has a text."]
    assert texts(pairs(notes, "good"), "note_init") == [close, vague]
    assert pairs(notes, "good", replace(GOLD, gold_ids=("z",))).dropped["note_init"] == {"no difference": 1}


@pytest.mark.parametrize(
    ("change", "stage", "reason"),
    [
        ({"answer_short": ["Glasgow", *["Leeds"] * 8]}, "answer_short", "no difference"),
        ({"note_init": ["one note", *[""] * 8]}, "note_init", "all the same"),
        ({"dnalign_notes": '{"best_id": 2, "worst_id": 2}'}, "note_init", "no difference"),
        ({"dnalign_notes": '["best_id"]'}, "note_init", "the evaluator's verdict cannot be read"),
        ({"dnalign_queries": '{"best_id": 4, "worst_id": 1}'}, "note_query", "the evaluator's verdict cannot be read"),
        ({"note_judge": '{"status": "False"}'}, "note_update", "none judged better"),
        ({"note_judge": '{"status": "True"}'}, "note_update", "all judged better"),
    ],
)
def test_a_stage_without_a_pair_is_dropped_and_ends_what_goes_on_from_it(
    change: dict[str, Any], stage: str, reason: str
) -> None:
    result = pairs_of(DNALIGN | change)
    assert result.dropped == {stage: {reason: 1}}
    order = ["note_init", "note_query", "note_update"]
    left = order[: order.index(stage)] if stage in order else order
    assert {example["stage"] for _, example in result.examples} - {"answer_short"} == set(left)


def test_content_filter_labels_come_from_gold_passages_and_sentences_hold_a_gold_answer() -> None:
    result = examples_of(content_filter, {}, question=replace(GOLD, answers=("text of a",)), labels="gold", top_k=2)
    prompt = Templates().fill("amber_chunk_filter", "en", {"context": shown("a"), "question": Q.question})
    assert result.examples[0][1]["prompt"] == [{"role": "user", "content": prompt}]
    assert completions(result, "chunk") == ['{"result": "useful"}', '{"result": "useless"}']
    assert completions(result, "sentence") == ["Text of a."]
    assert kinds(result) == ["useful", "useless"]
    without = examples_of(content_filter, {}, question=GOLD, labels="gold", top_k=2)
    assert without.dropped == {"amber_sentence_filter": {"no helpful sentence": 1}}
    unlabelled = examples_of(content_filter, {}, labels="gold")
    assert unlabelled.dropped == {"amber_chunk_filter": {"gold passages are unknown": 1}}
    with pytest.raises(InputError, match=r"sentences=cxmi needs a model: training_data\.scorer=FOLDER_OR_HUB_NAME"):
        examples_of(content_filter, {}, question=GOLD, labels="gold", sentences="cxmi")
    verdicts = ['It may seem {useless}. {"result": "useful"}', 'No. {"result": "useless"}', "useful or useless"]
    by_model = examples_of(content_filter, {"filter_label": verdicts}, labels="model", top_k=3)
    assert kinds(by_model) == ["useful", "useless"]
    assert by_model.dropped["amber_chunk_filter"] == {"the label cannot be read": 1}


@pytest.mark.parametrize(
    ("written", "answers", "kind", "reason"),
    [
        ("It is. Final answer: <Text of a>", "text of a", "relevant", None),
        ("I know it. Final answer: Dumfries", "Dumfries", "context", None),
        ("Nothing. Final answer: <unknown>", "Dumfries", "unknown", None),
        ("Nothing. Final answer: <unknown>", "text of a", None, "unknown, although the passages hold the answer"),
        ("It is Leeds. Final answer: Leeds", "Dumfries", None, "wrong answer"),
        ("It is Dumfries.", "Dumfries", None, "no final answer"),
    ],
)
def test_notes_are_kept_if_their_answer_is_right(written: str, answers: str, kind: Any, reason: Any) -> None:
    script, question = {"chain_of_note_writer": written}, replace(Q, answers=(answers,))
    result = examples_of(chain_of_note, script, question=question, top_k=2)
    assert kinds(result) == ([kind] if kind else [])
    assert result.dropped == ({"chain_of_note": {reason: 1}} if reason else {})
    if kind:
        (example,) = by_stage_of(result).values()
        fields = {"context": shown("a", "b"), "question": Q.question, "form": Templates().text("form_short")}
        prompt = Templates().fill("chain_of_note", "en", fields)
        assert (example["prompt"], completions(result)) == ([{"role": "user", "content": prompt}], [written])


def test_baselines_and_hybrid_are_trained_on_the_same_questions() -> None:
    script = {"chain_of_note_writer": "Notes. Final answer: Dumfries"}
    ((_, read),) = examples_of(chain_of_note, script, system="retrieve_read").examples
    ((_, direct),) = examples_of(chain_of_note, script, system="no_retrieval").examples
    assert (read["stage"], direct["stage"]) == ("retrieve_read", "direct_short")
    assert read["completion"] == direct["completion"] == message("Dumfries")
    hybrid = examples_of(chain_of_note, script, system="hybrid", notes_word="N", answer_word="A").examples
    (_, notes), (_, answer) = hybrid
    assert [notes["prompt"][0], answer["prompt"][0]] == [{"role": "system", "content": word} for word in "NA"]
    assert answer["prompt"][1:] == read["prompt"]
    assert (notes["completion"], answer["completion"]) == (message(script["chain_of_note_writer"]), read["completion"])
    wrong = examples_of(chain_of_note, {"chain_of_note_writer": "Final answer: Leeds"}, system="retrieve_read")
    assert (wrong.examples, wrong.dropped) == ([], {"chain_of_note": {"wrong answer": 1}})
    yes_no = examples_of(chain_of_note, {}, question=replace(Q, task="yes_no", answers=("yes",)))
    assert yes_no.dropped == {"chain_of_note": {"not a question with a short gold answer": 1}}


def ninety(maker: Any, sizes: dict[str, int] | None = None, answer: Answer = lambda _: "?") -> Batch:
    questions, llm = [replace(GOLD, id=f"q{n}") for n in range(90)], ScriptedLLM(answer)
    data, retriever = Data(maker, out="unused", sizes=sizes), ScriptedRetriever(lambda _: HITS)
    return asyncio.run(make_examples(data, questions, retriever, llm, Templates()))


def test_the_making_ends_where_the_sizes_are_reached() -> None:
    whole = ninety(partial(content_filter, labels="gold"))
    some = ninety(partial(content_filter, labels="gold"), {"amber_chunk_filter": 7})
    assert (whole.questions, len(whole.examples), some.questions, some.examples) == (90, 450, 2, whole.examples[:7])


def test_a_slow_question_lets_those_after_it_begin_and_changes_no_example() -> None:
    done, rest = list[str](), asyncio.Event()

    async def slow_first(work: Work) -> None:
        if work.question.id == "q0":
            await rest.wait()
        done.append(work.question.id)
        if len(done) == AT_ONCE - 1:
            rest.set()
        work.learn("note_init", {"context": [], "question": "?"}, completion="!")

    batch = ninety(slow_first, {"note_init": 80})
    assert done.index("q0") == AT_ONCE - 1
    assert [example["question_id"] for _, example in batch.examples] == [f"q{n}" for n in range(80)]


def test_a_call_that_fails_drops_its_question_and_one_that_ends_the_run_ends_it() -> None:
    def failing(error: LLMError) -> Batch:
        errors = iter([None, None, None, error])

        def answer(_: Ask) -> str:
            if failure := next(errors, None):
                raise failure
            return "Final answer: Dumfries"

        return ninety(partial(chain_of_note), answer=answer)

    result = failing(LLMError("too long"))
    assert (len(result.examples), result.dropped) == (89, {"all": {"a call failed": 1}})
    with pytest.raises(FatalLLMError, match="no such model"):
        failing(FatalLLMError("no such model"))


@pytest.mark.parametrize("name", choices("training_data"))
def test_every_configuration_has_all_settings_of_its_maker(name: str) -> None:
    _, data = load_data(name, ["dataset=mini"])
    assert set(data.maker.keywords) == set(settings_of(data.maker))  # type: ignore[attr-defined]
    assert set(about_of(data.maker).prompts or ()) <= set(Templates().names())
    assert data.out == f"data/training/{name}.jsonl"
    assert (CONF / "training" / f"{name}.yaml").is_file()
    settings = load_settings("training", [f"+training={name}", "training.model=M", "training.out=O"])
    assert settings["data"] == data.out


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["dataset=mini", "training_data.evalator=gold"], "training_data.evalator: no such option; did you mean "),
        (["dataset=[mini,mini_zh]"], r"from one data set, not from \['mini', 'mini_zh'\]: dataset=NAME"),
        (["dataset=mini", "+training_data.sizes.note_qery=3"], "sizes.note_qery: no such stage; did you mean note_que"),
    ],
)
def test_options_that_do_not_fit_are_refused_by_name(options: list[str], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        load_data("dnalign", options)


def test_a_training_that_cannot_be_is_refused_before_torch_is_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "dnalign", "out=O"]) == 2
    assert "training.model: Input should be a valid string (given: None)" in capsys.readouterr().err
    assert main(["train", "dnalign", "modle=M"]) == 2
    assert "training.modle: no such option; did you mean training.model" in capsys.readouterr().err


def test_a_command_pays_once_says_what_it_takes_and_makes_the_same_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Loopback(tmp_path / "requests.log") as server:
        command = f"""training-data dnalign dataset=mini limit=6 llm=openai llm.base_url={server.base_url}
            llm.model=m llm.store={tmp_path}/s.sqlite training_data.out={tmp_path}/pairs.jsonl
            "training_data.temperatures=[0.1,0.9]" "training_data.top_ps=[0.9]" """
        arguments = [*shlex.split(command), "--test", "dataset=mini offset=6"]
        assert main([*arguments, "--plan"]) == 0
        assert "6 questions, at most 72 calls" in (planned := capsys.readouterr().out)
        assert "stored: 0 calls; 0 questions are complete and give 0 examples" in planned
        assert main(arguments) == 0
        paid, first = len(server.seen()), (tmp_path / "pairs.jsonl").read_bytes()
        assert f"{len(first.splitlines())} examples of 6 questions" in capsys.readouterr().out
        assert main(arguments) == 0
        assert (len(server.seen()), (tmp_path / "pairs.jsonl").read_bytes()) == (paid, first)
        capsys.readouterr()
        assert main([*arguments, "--plan"]) == 0
        after = capsys.readouterr().out
        assert f"6 questions are complete and give {len(first.splitlines())} examples" in after
        assert len(server.seen()) == paid
        assert main([*arguments[:-1], "dataset=mini offset=5 limit=3"]) == 2
        assert "1 questions of the training data are test questions: " in capsys.readouterr().err
    card = json.loads((tmp_path / "pairs.jsonl.card.json").read_text(encoding="utf-8"))
    assert card["tests"] == ["dataset=mini offset=6"]
    assert (card["llm"]["model"], card["settings"]["temperatures"]) == ("m", [0.1, 0.9])
    assert card["sizes"]["note_update"] > 0
    assert str(SHIPPED) not in json.dumps(card)


def test_the_file_is_known_by_its_card_and_another_is_refused(tmp_path: Path) -> None:
    path, responses = tmp_path / "folder" / "pairs.jsonl", ("chosen", "rejected")
    with pytest.raises(InputError, match=r"pairs\.jsonl\.card\.json: no such file; `rag-notes training-data` makes"):
        read_examples(path, responses)
    nothing = pairs_of(DNALIGN | {"note_init": "one", "answer_short": "one"})
    with pytest.raises(InputError, match=r"no examples came of 1 questions; dropped: .*'note_init': {'all the same'"):
        write_examples(path, nothing, {})
    card = write_examples(path, pairs_of(DNALIGN), {"name": "dnalign"})
    written = path.read_bytes()
    assert (card["name"], card["questions"], card["sizes"]["note_init"], card["dropped"]) == ("dnalign", 1, 1, {})
    assert (write_examples(path, pairs_of(DNALIGN), {"name": "dnalign"}), path.read_bytes()) == (card, written)
    examples, read = read_examples(path, responses)
    assert (len(examples), read) == (4, card)
    with pytest.raises(InputError, match="its examples have no completion, which this training needs"):
        read_examples(path, ("completion",))
    path.write_bytes(written.replace(b"Dumfries", b"Leeds"))
    with pytest.raises(InputError, match=r"is not the file of its card pairs\.jsonl\.card\.json"):
        read_examples(path, responses)
    text = message("the line ends of Unicode: one\u2028two\u0085three")
    example = {"stage": "s", "question_id": "q", "prompt": text, "completion": text}
    write_examples(path, Batch(questions=1, examples=[("", example)]), {"name": "one"})
    assert read_examples(path, ("completion",))[0] == [example]

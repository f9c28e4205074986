"""What notes state of the facts they need, on notes worked by hand, and where runs made up for the purpose failed."""

import pytest

from rag_notes.metrics.chain import Density, Verdict, fact_density, facts_held, failure, note_is_better, verdicts
from rag_notes.types import Fact

FILM = "The Road of Tipib"
DIRECTED = Fact(FILM, "directed_by", "Tuvo Huganex", "film", f"{FILM} was directed by Tuvo Huganex.", (FILM,))
BORN = Fact("Tuvo Huganex", "born_in", "Ropurn", "person", "He was born in Ropurn.", ("Tuvo Huganex",))
SETTLED = Fact("Ropurn", "settled", "1581", "town", "It was settled in 1581.", ("Ropurn",))
NAMES = ("cellist Gopa Hegelm", "Gopa Hegelm (cellist)", "Gopa Hegelm is a cellist")
CELLIST = Fact(NAMES[1], "born_year", "1946", "cellist", "The cellist Gopa Hegelm was born in 1946.", NAMES)
CHAIN = (DIRECTED, BORN, SETTLED)
NOTE = f"- {FILM} was directed by Tuvo Huganex.\n- Tuvo Huganex was born in Ropurn.\n- Ropurn was settled in 1581."


@pytest.mark.parametrize(
    ("note", "held"),
    [
        ("Tuvo Huganex was born in Ropurn.", True),
        ("* Some other line.\n* **Tuvo Huganex** comes from *Ropurn*", True),  # bullets, bold, another wording
        ("1. Tuvo Huganex's birthplace is ROPURN!", True),
        ("2) Tuvo Huganex’s birthplace: ropurn", True),
        ("Tuvo Huganex is a poet. He was born in Ropurn.", True),
        ("- Tuvo Huganex is a poet.\n- He likes tea.\n- His birthplace is Ropurn.", True),
        ("Tuvo Huganex is a poet. The poet was born in Ropurn.", True),
        ("Tuvo Huganex is a poet. Lena Mivok is a baker. She was born in Ropurn.", False),  # she is the baker
        ("Tuvo Huganex is a poet. The poet Lena Mivok was born in Ropurn.", False),
        ("Tuvo Huganex is a poet. Lena Mivok was born in Ropurn.", False),
        ("He was born in Ropurn. Tuvo Huganex is a poet.", False),  # nothing before it to refer back to
        ("Tuvo Huganex was born in Ropurnia.", False),  # word by word
        ("Huganex was born in Ropurn.", False),  # not a name that can mean nobody else
        ("The film's director was born in Ropurn.", False),  # the entity in between is left out
        ("Tuvo Huganex is a poet. Born in Ropurn.", False),  # a sentence without subject
        ("", False),
        # What words cannot tell: a denial, another relation, a value that is somebody else's.
        ("Tuvo Huganex was not born in Ropurn.", True),
        ("Tuvo Huganex moved to Ropurn.", True),
        ("Tuvo Huganex was taught by Lena Mivok, who was born in Ropurn.", True),
    ],
)
def test_a_fact_is_stated_where_its_value_is_said_of_its_subject(note: str, held: bool) -> None:
    assert facts_held([BORN], [note]) == (held,)


@pytest.mark.parametrize(
    ("facts", "texts", "held"),
    [
        (CHAIN, [NOTE], (True, True, True)),
        (CHAIN, ["The road of Tipib (directed by Tuvo Huganex)"], (True, False, False)),
        ([SETTLED], ["Ropurn (1581-1700)"], (True,)),
        ([SETTLED], ["Ropurn has 15810 people."], (False,)),
        # namesakes are told apart
        ([CELLIST], ["The cellist Gopa Hegelm was born in 1946."], (True,)),
        ([CELLIST], ["Gopa Hegelm, a cellist, was born in 1946."], (True,)),
        ([CELLIST], ["Gopa Hegelm is a cellist. She was born in 1946."], (True,)),
        ([CELLIST], ["The judge Gopa Hegelm was born in 1946."], (False,)),
        ([CELLIST], ["Gopa Hegelm was born in 1946."], (False,)),
        ([CELLIST], ["The cellist Gopa Hegelm sings. The judge Gopa Hegelm was born in 1946."], (False,)),
        # each text is read by itself
        ([BORN], ["Tuvo Huganex is a poet.", "He was born in Ropurn."], (False,)),
        ([BORN], ["Nothing.", "Tuvo Huganex is from Ropurn."], (True,)),
    ],
)
def test_articles_dashes_years_namesakes_and_texts(facts: list[Fact], texts: list[str], held: tuple[bool, ...]) -> None:
    assert facts_held(facts, texts) == held


def test_what_is_no_text_or_cannot_have_a_label_is_refused() -> None:
    with pytest.raises(TypeError, match="put it in a list"):
        facts_held([BORN], NOTE)
    with pytest.raises(ValueError, match="leave unanswerable questions out"):
        failure([], [FIRST], [], correct=False)
    with pytest.raises(ValueError, match="none is marked as kept"):
        failure(CHAIN, [FIRST, SECOND, THIRD], [(NOTE, False)], correct=False)


def test_density_counts_the_tokens_of_the_sentences_that_state_a_fact() -> None:
    # 9 + 6 + 5 tokens of evidence and 4 others; the dash and the bullets are none.
    assert fact_density(CHAIN, [f"{NOTE}\n- There is – nothing more."]) == Density(20, 24)
    # One sentence may state two facts and counts once.
    both = f"{FILM} was directed by Tuvo Huganex, born in Ropurn."
    assert fact_density(CHAIN, [both]) == Density(12, 12)
    assert fact_density(CHAIN, ["Nothing here.", both]) == Density(12, 14)
    assert fact_density(CHAIN, [""]) == Density(0, 0)


FIRST = ("In which year was the birthplace of the director settled?", ["film", "x"])
SECOND = ("Where was Tuvo Huganex born?", ["person"])
THIRD = ("When was Ropurn settled?", ["town"])


@pytest.mark.parametrize(
    ("searches", "notes", "label"),
    [
        ([], [], "first hop not found"),
        ([("Who directed it?", ["x", "town"])], [(NOTE, True)], "first hop not found"),
        ([FIRST], [("", True)], "linking entity not asked for"),
        ([FIRST, ("Where was the director born?", ["x"])], [("", True)], "linking entity not asked for"),
        ([FIRST, ("Where was tuvo huganex born?", ["x"])], [("", True)], "second hop not found"),
        ([FIRST, SECOND], [("", True)], "linking entity not asked for"),  # the third hop's
        ([FIRST, SECOND, ("Ropurn history", ["x"])], [("", True)], "second hop not found"),
        ([FIRST, SECOND, THIRD], [(NOTE, True), ("Nothing.", True)], "fact dropped from the note"),
        ([FIRST, SECOND, THIRD], [("Nothing.", True), (NOTE, False)], "fact dropped from the note"),
        ([FIRST, SECOND, THIRD], [("Nothing.", True), (NOTE, True)], "answer wrong although the note has it"),
        ([FIRST, SECOND, THIRD], [], "answer wrong although the passages have it"),
    ],
)
def test_a_wrong_answer_has_the_label_of_what_went_wrong_first(
    searches: list[tuple[str, list[str]]], notes: list[tuple[str, bool]], label: str
) -> None:
    assert failure(CHAIN, searches, notes, correct=False) == label
    assert failure(CHAIN, searches, notes, correct=True) == "right"


def test_a_namesake_is_asked_for_by_its_bare_name() -> None:
    taught = Fact("Lena Mivok", "teacher", "Gopa Hegelm", "lena", "", ("Lena Mivok",))
    searches = [("Who taught Lena Mivok?", ["lena"]), ("When was Gopa Hegelm born?", ["judge"])]
    assert failure([taught, CELLIST], searches, [], correct=False) == "second hop not found"
    assert failure([taught, CELLIST], searches[:1], [], correct=False) == "linking entity not asked for"


ONE, TWO, OTHER = NOTE.splitlines()[0], "\n".join(NOTE.splitlines()[:2]), NOTE.splitlines()[2]


@pytest.mark.parametrize(
    ("best", "new", "better"),
    [
        (ONE, TWO, True),
        ("", ONE, True),
        (TWO, ONE, False),
        (ONE, ONE, False),
        (ONE, f"{ONE}\n- It is a very long film.", False),
        (ONE, OTHER, False),  # one gained, one lost
        (ONE, "\n".join(NOTE.splitlines()[1:]), False),  # two gained, one lost
    ],
)
def test_a_note_is_better_with_more_facts_and_none_lost(best: str, new: str, better: bool) -> None:
    assert note_is_better(CHAIN, best, new) is better


def test_the_judge_is_held_against_the_note_that_was_best_then() -> None:
    notes = [(ONE, True), (TWO, False), (TWO, True), (TWO, False), (ONE, True), (TWO, True)]
    # the last one is better than the worse note that the judge had kept
    pairs = [(False, True), (True, True), (False, False), (True, False), (True, True)]
    assert verdicts(CHAIN, notes) == [Verdict(judge, truth) for judge, truth in pairs]
    assert verdicts(CHAIN, []) == verdicts(CHAIN, notes[:1]) == []

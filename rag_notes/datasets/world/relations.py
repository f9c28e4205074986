"""The relations of a generated world and every word that its passages and questions are made of.

No passage shares a word with a question that asks for what it states, names and the entity's own noun apart: the
questions speak of a birthplace, the passages say who was born where. So a search for a question finds the entity that
it names, and of what is asked of that entity's neighbour nothing.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Relation:
    """What can be said of an entity of one kind.

    `value` is the kind of the value, "year" for a year and "name" for a name without a passage of its own.
    `sentences` state it ({s}: subject, {v}: value), `question` asks for it ({e}: the entity as the question describes
    it), and `phrase` describes the value by it ("the director of {e}"); it is empty where no question goes on from it.
    """

    name: str
    kind: str
    value: str
    sentences: tuple[str, ...]
    question: str
    phrase: str = ""


RELATIONS = {
    relation.name: relation
    for relation in (
        Relation(
            "born_in",
            "person",
            "town",
            ("{s} was born in {v}.", "{s} was born and bred in {v}."),
            "What is the birthplace of {e}?",
            "the birthplace of {e}",
        ),
        Relation(
            "born_year",
            "person",
            "year",
            ("{s} was born in {v}.", "{s} was born in the spring of {v}.", "{s} was born in the autumn of {v}."),
            "What is the birth year of {e}?",
        ),
        Relation(
            "lives_in",
            "person",
            "town",
            ("{s} lives in {v}.", "{s} lives in a house in {v}."),
            "In which town does {e} reside?",
        ),
        Relation(
            "employer",
            "person",
            "company",
            ("{s} works for {v}.", "{s} has long worked for {v}."),
            "Which company is the employer of {e}?",
            "the employer of {e}",
        ),
        Relation(
            "spouse",
            "person",
            "person",
            ("{s} is married to {v}.", "{s} has long been married to {v}."),
            "Who is the spouse of {e}?",
            "the spouse of {e}",
        ),
        Relation(
            "teacher",
            "person",
            "person",
            ("{s} was taught by {v}.", "{s} was patiently taught by {v}."),
            "Who was the teacher of {e}?",
            "the teacher of {e}",
        ),
        Relation(
            "located_in",
            "town",
            "province",
            ("{s} lies in the region of {v}.", "{s} lies in the heart of the region of {v}."),
            "In which province is {e} located?",
            "the province of {e}",
        ),
        Relation(
            "settled",
            "town",
            "year",
            ("{s} was settled in {v}.", "{s} was settled by farmers in {v}."),
            "What is the settlement year of {e}?",
        ),
        Relation(
            "governor",
            "town",
            "person",
            ("{s} is governed by {v}.", "{v} governs {s}."),
            "Who is the governor of {e}?",
        ),
        Relation(
            "river",
            "town",
            "name",
            ("{s} stands on the river {v}.", "The river {v} flows through {s}."),
            "Which waterway passes {e}?",
        ),
        Relation(
            "capital",
            "province",
            "town",
            ("The capital of {s} is {v}.", "{s} has {v} as its capital."),
            "What is the chief city of {e}?",
            "the chief city of {e}",
        ),
        Relation(
            "mountain",
            "province",
            "name",
            ("The tallest mountain of {s} is {v}.", "The mountain {v} is the tallest of {s}."),
            "What is the highest peak of {e}?",
        ),
        Relation(
            "united",
            "province",
            "year",
            ("{s} was united in {v}.", "{s} was united by a treaty in {v}."),
            "In which year was {e} unified?",
        ),
        Relation(
            "founded_by",
            "company",
            "person",
            ("{s} was founded by {v}.", "{v} founded {s}."),
            "Who was the founder of {e}?",
            "the founder of {e}",
        ),
        Relation(
            "began",
            "company",
            "year",
            ("{s} began work in {v}.", "{s} began to sell its wares in {v}."),
            "In which year did {e} begin?",
        ),
        Relation(
            "office",
            "company",
            "town",
            ("{s} has its main office in {v}.", "The main office of {s} is in {v}."),
            "In which town is {e} headquartered?",
            "the town of the headquarters of {e}",
        ),
        Relation(
            "manager",
            "company",
            "person",
            ("{s} is managed by {v}.", "{s} is run and managed by {v}."),
            "Who is the head of {e}?",
            "the head of {e}",
        ),
        Relation(
            "succeeded_by",
            "company",
            "company",
            ("{s} was succeeded by {v}.", "{s} closed and was succeeded by {v}."),
            "Which company is the successor of {e}?",
            "the successor of {e}",
        ),
        Relation(
            "written_by",
            "novel",
            "person",
            ("{s} was written by {v}.", "{v} wrote {s}."),
            "Who is the author of {e}?",
            "the author of {e}",
        ),
        Relation(
            "published",
            "novel",
            "year",
            ("{s} was published in {v}.", "{s} was printed and published in {v}."),
            "In which year did {e} appear?",
        ),
        Relation(
            "story",
            "novel",
            "town",
            ("The story of {s} takes place in {v}.", "{s} tells a story that takes place in {v}."),
            "In which town is {e} set?",
            "the setting of {e}",
        ),
        Relation(
            "translated_by",
            "novel",
            "person",
            ("{s} was turned into English by {v}.", "{v} turned {s} into English."),
            "Who is the translator of {e}?",
            "the translator of {e}",
        ),
        Relation(
            "directed_by",
            "film",
            "person",
            ("{s} was directed by {v}.", "{v} directed {s}."),
            "Who is the director of {e}?",
            "the director of {e}",
        ),
        Relation(
            "cinemas",
            "film",
            "year",
            ("{s} came to cinemas in {v}.", "{s} was shown in cinemas from {v} on."),
            "In which year was {e} released?",
        ),
        Relation(
            "shot_in",
            "film",
            "town",
            ("{s} was shot in {v}.", "The outdoor scenes of {s} were shot in {v}."),
            "In which town was {e} filmed?",
            "the town of the filming of {e}",
        ),
        Relation(
            "music_by",
            "film",
            "person",
            ("The music of {s} is by {v}.", "{v} wrote the music of {s}."),
            "Who is the composer of {e}?",
            "the composer of {e}",
        ),
        Relation(
            "designed_by",
            "building",
            "person",
            ("{s} was designed by {v}.", "{v} designed {s}."),
            "Who was the architect of {e}?",
            "the architect of {e}",
        ),
        Relation(
            "opened",
            "building",
            "year",
            ("{s} opened in {v}.", "{s} opened to visitors in {v}."),
            "In which year was {e} inaugurated?",
        ),
        Relation(
            "belongs_to",
            "building",
            "company",
            ("{s} belongs to {v}.", "{s} was sold and now belongs to {v}."),
            "Which company is the owner of {e}?",
            "the owner of {e}",
        ),
        Relation(
            "stands_in",
            "building",
            "town",
            ("{s} stands in {v}.", "{s} stands in the middle of {v}."),
            "In which town is {e}?",
            "the town of {e}",
        ),
        Relation(
            "takes_place_in",
            "event",
            "town",
            ("{s} takes place in {v}.", "{s} takes place every summer in {v}."),
            "In which town is {e} held?",
            "the town of {e}",
        ),
        Relation(
            "since",
            "event",
            "year",
            ("{s} has been there since {v}.", "{s} goes back to {v}."),
            "In which year did {e} begin?",
        ),
        Relation(
            "run_by",
            "event",
            "person",
            ("{s} is run by {v}.", "{v} runs {s}."),
            "Who is the organiser of {e}?",
            "the organiser of {e}",
        ),
        Relation(
            "paid_by",
            "event",
            "company",
            ("{s} is paid for by {v}.", "{v} pays for {s}."),
            "Which company is the sponsor of {e}?",
            "the sponsor of {e}",
        ),
    )
}

NOUNS = {
    "province": ("region",),
    "town": ("town",),
    "person": (
        "painter", "geologist", "surgeon", "cellist", "sailor", "lawyer", "botanist", "carpenter", "poet", "chemist",
        "jeweller", "pilot", "historian", "singer", "weaver", "dentist", "sculptor", "astronomer", "baker", "judge",
    ),
    "company": ("Brewery", "Shipyard", "Glassworks", "Sawmill", "Pottery", "Tannery", "Dairy", "Foundry"),
    "novel": ("novel",),
    "film": ("thriller", "comedy", "western", "musical", "documentary", "melodrama"),
    "building": ("Bridge", "Museum", "Theatre", "Lighthouse", "Library", "Observatory"),
    "event": ("Regatta", "Marathon", "Carnival", "Tournament", "Flower Show", "Chess Congress"),
}  # fmt: skip
"""What an entity of each kind can be: a part of its name where it has a capital, else what tells namesakes apart."""

THINGS = (
    "Lamplighter", "Clockmaker", "Vineyard", "Ferryman", "Sundial", "Beekeeper", "Staircase", "Winter", "Locksmith",
    "Harbour", "Gardener", "Letters", "Silence", "Miller", "Island", "Shadow", "Widow", "Compass", "Road", "Candle",
)  # fmt: skip
"""What novels and films are called after, with the name of nobody."""

OPENINGS = {
    "province": ("{s} is {a_noun} of {a} and {b}.", "The {noun} of {s} is a land of {a} and {b}."),
    "town": ("{s} has many {a} and {b}.", "{s} is a place with fine {a} and {b}."),
    "person": ("{s} is {a_noun} who collects {a} and {b}.", "{s} is {a_noun} with a passion for {a} and {b}."),
    "company": ("{s} has a yard full of {a} and {b}.", "{s} also trades in {a} and {b}."),
    "novel": ("{s} is {a_noun} about {a} and {b}.", "{s} is a long {noun} full of {a} and {b}."),
    "film": ("{s} is {a_noun} about {a} and {b}.", "{s} is {a_noun} with {a} and {b}."),
    "building": ("{s} is decorated with {a} and {b}.", "{s} is known for its {a} and {b}."),
    "event": ("{s} is famous for its {a} and {b}.", "{s} is a day of {a} and {b}."),
}
"""The sentence that a passage begins with; {a} and {b} are two of `SIGHTS`."""

FILLERS = {
    "province": ("Travellers praise its {a} and {b}.", "Old songs tell of its {a} and {b}."),
    "town": ("Visitors come for the {a} and the {b}.", "On market days {a} and {b} are sold there."),
    "person": ("Friends speak of a large collection of {a}.", "A cupboard full of {b} was lost in a fire."),
    "company": ("Its sheds are painted with {a} and {b}.", "The workers are proud of their {a} and {b}."),
    "novel": ("Critics liked the pages on {a} and {b}.", "Some chapters describe {a} and {b} in detail."),
    "film": ("Critics liked the scenes with {a} and {b}.", "One scene with {a} and {b} is still quoted."),
    "building": ("Its walls show {a} and {b}.", "Guides point out the carved {a} and {b}."),
    "event": ("Visitors bring {a} and {b}.", "The winner is given {a} and {b}."),
}
"""Sentences without a fact, which make a short passage long enough."""

SIGHTS = (
    "fountains", "orchards", "windmills", "chimneys", "gardens", "arcades", "meadows", "chestnuts", "lanterns", "tiles",
    "balconies", "bells", "clocks", "maps", "shells", "feathers", "mirrors", "carpets", "violins", "kites",
    "masks", "puppets", "stamps", "coins", "buttons", "fossils", "minerals", "butterflies", "roses", "tulips",
    "mushrooms", "pears", "plums", "walnuts", "cheeses", "horses", "falcons", "herons", "swans", "foxes",
)  # fmt: skip

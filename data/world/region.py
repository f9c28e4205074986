"""A region of a generated world: some entities, what is true of them, and the passages that say so."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from language import FILLERS, NOUNS, OPENINGS, RELATIONS, SIGHTS, THINGS
from names import WORDS, Draw, first_name, word

from rag_notes.types import Fact, Passage

KINDS = (
    *("province", *["town"] * 5, *["person"] * 14, *["company"] * 4),
    *(*["novel"] * 3, *["film"] * 3, *["building"] * 3, *["event"] * 3),
)
PASSAGES = len(KINDS)
"""How many passages, each about one entity, a region has."""

_WORDS = 32  # names that a region takes, at most
REGIONS = WORDS // _WORDS
"""How many regions a world can have before its names run out."""

SHORTEST, LONGEST = 40, 70  # words of a passage
_YEARS = {  # from, to
    "born_year": (1900, 1969),
    "settled": (1100, 1699),
    "united": (1700, 1899),
    "began": (1850, 1979),
    "published": (1940, 2009),
    "cinemas": (1940, 2009),
    "opened": (1850, 2009),
    "since": (1850, 1999),
}
_BY_KIND = {
    kind: [relation for relation in RELATIONS.values() if relation.kind == kind] for kind in dict.fromkeys(KINDS)
}
_RARE = {"spouse": 0.6, "succeeded_by": 0.5}  # how often an entity has such a fact at all; all others always


@dataclass(frozen=True, slots=True)
class Entity:
    """Someone or something that a passage is about; `namesake` says that another one has the same name."""

    id: str
    kind: str
    noun: str
    name: str
    namesake: bool = False

    @property
    def title(self) -> str:
        """The title of its passage, which no other passage of the world has."""
        return f"{self.name} ({self.noun})" if self.namesake else self.name

    @property
    def mention(self) -> str:
        """The name by which passages mention it, with its noun where the name alone is not enough."""
        return f"the {self.noun} {self.name}" if self.namesake else self.name

    @property
    def description(self) -> str:
        """The name by which questions mention it."""
        plain = self.kind not in ("province", "novel", "film") and not self.namesake
        return self.name if plain else f"the {self.noun} {self.name}"

    @property
    def names(self) -> tuple[str, ...]:
        """The ways to write its name that can mean nobody else."""
        if not self.namesake:
            return (self.name, self.name.split()[0]) if self.noun[0].isupper() else (self.name,)
        patterns = ("{noun} {name}", "{name} ({noun})", "{name} is a {noun}", "{name}, a {noun}", "{name}, the {noun}")
        return tuple(pattern.format(noun=self.noun, name=self.name) for pattern in patterns)


Value = Entity | str


@dataclass(frozen=True, slots=True)
class Region:
    """The entities of a region with their facts and passages, all in the same order.

    `values` has for each entity what its passage states by relation; `missing` names a relation that its kind usually
    has and that nothing in the world states of it.
    """

    entities: tuple[Entity, ...]
    values: tuple[Mapping[str, Value], ...]
    missing: tuple[str, ...]
    facts: tuple[Mapping[str, Fact], ...]
    passages: tuple[Passage, ...]


def region(seed: int, number: int) -> Region:
    """The region `number` of the world of this seed, which depends on nothing but these two."""
    draw = Draw(seed, "region", number)
    entities = _entities(seed, number, draw)
    rivers = [word(seed, number * _WORDS + offset) for offset in (29, 30)]
    mountain = word(seed, number * _WORDS + 31)
    values, missing = [], []
    births = {entity.id: _year("born_year", draw) for entity in entities}
    by_kind = {kind: [entity for entity in entities if entity.kind == kind] for kind in _BY_KIND}
    for entity in entities:
        stated = _values(entity, by_kind, births, draw) | {"born_year": births[entity.id]}
        stated |= {"river": draw.pick(rivers), "mountain": mountain, "capital": entities[1], "located_in": entities[0]}
        usual = [relation.name for relation in _BY_KIND[entity.kind] if relation.name in stated]
        # What is left out is left out everywhere: a fact stands in the passage of its subject alone.
        left_out = draw.pick([name for name in usual if name not in _RARE])
        missing.append(left_out)
        values.append({name: stated[name] for name in usual if name != left_out})
    written = [_write(entity, of_entity, draw) for entity, of_entity in zip(entities, values, strict=True)]
    passages, facts = zip(*written, strict=True)
    return Region(tuple(entities), tuple(values), tuple(missing), facts, passages)


def _entities(seed: int, number: int, draw: Draw) -> list[Entity]:
    words = [word(seed, number * _WORDS + offset) for offset in range(29)]
    surnames = words[5:14]
    persons = [(first_name(draw), surnames[index % 9]) for index in range(14)]
    persons[12], persons[13] = persons[0], persons[1]  # two pairs of namesakes
    professions = draw.shuffled(NOUNS["person"])
    things = draw.shuffled(THINGS)
    names = {
        "province": [words[0]],
        "town": [words[1], words[2], words[3], f"Upper {words[4]}", f"Lower {words[4]}"],
        "person": [f"{first} {surname}" for first, surname in persons],
        "company": words[14:18],
        "novel": [f"The {things[index]} of {words[18 + index]}" for index in range(3)],
        "film": [f"The {things[3 + index]} of {words[21 + index]}" for index in (0, 0, 1)],  # two with one title
        "building": words[23:26],
        "event": words[26:29],
    }
    nouns = {kind: professions if kind == "person" else draw.shuffled(NOUNS[kind]) for kind in NOUNS}
    counts: dict[str, int] = {}
    entities = []
    for slot, kind in enumerate(KINDS):
        index = counts[kind] = counts.get(kind, -1) + 1
        noun = nouns[kind][index % len(nouns[kind])]
        name = f"{names[kind][index]} {noun}" if noun[0].isupper() else names[kind][index]
        entities.append(Entity(f"r{number}-{slot:02}", kind, noun, name, names[kind].count(name) > 1))
    return entities


def _values(
    entity: Entity, by_kind: Mapping[str, Sequence[Entity]], births: Mapping[str, str], draw: Draw
) -> dict[str, Value]:
    """Draw the facts of an entity, but for those that the whole region shares."""
    values: dict[str, Value] = {}
    used = {entity.id}
    family = entity.name.split()[-1]
    for relation in _BY_KIND[entity.kind]:
        if not draw.chance(_RARE.get(relation.name, 1)):
            continue
        if relation.value == "year":
            values[relation.name] = _year(relation.name, draw)
            continue
        others = [other for other in by_kind.get(relation.value, ()) if other.id not in used]
        if entity.kind == relation.value == "person":
            others = [other for other in others if not other.name.endswith(family)]
        if relation.name == "teacher":
            others = [other for other in others if births[other.id] < births[entity.id]]
        if others:
            values[relation.name] = value = draw.pick(others)
            used.add(value.id)
    return values


def _year(relation: str, draw: Draw) -> str:
    first, last = _YEARS[relation]
    return str(first + draw.below(last - first + 1))


def _write(entity: Entity, values: Mapping[str, Value], draw: Draw) -> tuple[Passage, dict[str, Fact]]:
    """The passage of an entity, and its facts with the sentence that states each."""
    pronoun = draw.pick(("He", "She")) if entity.kind == "person" else "It"
    sights = draw.shuffled(SIGHTS)
    a_noun = f"{'an' if entity.noun[0] in 'aeiou' else 'a'} {entity.noun}"
    opening = draw.pick(OPENINGS[entity.kind]).format(
        s=entity.name, noun=entity.noun, a_noun=a_noun, a=sights[0], b=sights[1]
    )
    sentences, facts = [opening], {}
    for name in draw.shuffled(list(values)):
        value = values[name]
        mention = value if isinstance(value, str) else value.mention
        pattern = draw.pick(RELATIONS[name].sentences)
        subject = pronoun if pattern.startswith("{s}") and draw.chance(0.25) else entity.mention
        sentence = pattern.format(s=subject, v=mention)
        sentence = sentence[0].upper() + sentence[1:]
        plain = value if isinstance(value, str) else value.name
        facts[name] = Fact(entity.title, name, plain, entity.id, sentence, entity.names)
        sentences.append(sentence)
    for number, filler in enumerate(draw.shuffled(FILLERS[entity.kind]) * 2):
        if len(" ".join(sentences).split()) >= SHORTEST:
            break
        sentences.append(filler.format(a=sights[2 + 2 * number], b=sights[3 + 2 * number]))
    return Passage(entity.id, entity.title, " ".join(sentences)), facts

"""Words and sentence patterns of the generated sample, as plain data: 181 concepts with a few synonyms each.

Number, tense and grammar are reduced to one form. Nouns are singular with "the"; the past tense of every verb is also
its past participle, so the same word fits "the cook sold the cake" and "the cake was sold by the cook". A word that
carries meaning belongs to only one concept, so the concepts of a text can be recovered.
"""

from typing import NamedTuple

# A word class and its tag in PPDB lines: concepts separated by |, their synonyms by commas.
_WORDS = """
    person NN: doctor, physician, medic | lawyer, attorney, solicitor, barrister | teacher, instructor, tutor | child,
        kid, youngster | thief, robber, burglar | soldier, trooper, infantryman | police officer, cop, policeman,
        constable | boss, supervisor, manager | writer, author, novelist | farmer, grower, agriculturalist | scientist,
        researcher, scholar | singer, vocalist, crooner | cook, chef | sailor, seaman, mariner | pilot, aviator,
        airman | journalist, reporter, correspondent | actor, performer, thespian | judge, magistrate | king, monarch,
        sovereign | traveller, voyager, wayfarer | neighbour, neighbor | friend, pal, buddy, companion, mate | enemy,
        foe, adversary | stranger, outsider, newcomer | expert, specialist, authority | beginner, novice, learner |
        driver, chauffeur, motorist | guard, sentry, watchman;
    animal NN: dog, hound, canine | cat, feline, kitty | horse, steed | pig, hog, swine | rabbit, bunny | cow, bovine |
        donkey, burro | rooster, cockerel | snake, serpent | hen, chicken | puppy, pup, whelp | bug, insect;
    object NN: car, automobile, motorcar | bicycle, bike, cycle | truck, lorry | boat, vessel, craft | plane, aircraft,
        airplane, aeroplane | book, volume, tome | letter, missive, epistle | gift, present | photograph, photo,
        snapshot | painting, artwork, canvas | coat, jacket, overcoat | hat, bonnet | bag, sack, pouch | suitcase,
        valise | box, crate, carton | cup, mug, beaker | rug, carpet, mat | sofa, couch, settee | lamp, lantern |
        computer, laptop | phone, telephone, handset | television, tv, telly | radio, wireless | refrigerator, fridge |
        stove, cooker | bottle, flask | knife, blade, dagger | gun, firearm, pistol, revolver | stone, rock, boulder |
        jewel, gem, gemstone;
    place NN: forest, woodland | street, road, avenue | shop, store, boutique | garden, yard | city, metropolis |
        village, hamlet | school, academy | hospital, clinic, infirmary | church, chapel | hotel, inn, lodge | prison,
        jail | house, home, dwelling, residence | castle, fortress, citadel | station, depot, terminal | harbour, port,
        dock | hill, mound, knoll;
    verb_thing VBD: bought, purchased, acquired | sold, vended, peddled | repaired, fixed, mended | destroyed,
        demolished, wrecked, ruined | built, constructed, assembled | cleaned, washed, scrubbed | carried, transported,
        conveyed | found, discovered, located | lost, misplaced, mislaid | concealed, stashed | displayed, exhibited,
        presented | burned, torched, incinerated | lifted, raised, hoisted | pulled, dragged, hauled, tugged | pushed,
        shoved | examined, inspected, scrutinised, studied | wanted, desired, craved | needed, required | loved, adored,
        cherished | hated, detested, loathed, despised | collected, gathered, amassed | delivered, handed over | rented,
        leased, hired | kept, retained;
    verb_being VBD: helped, assisted, aided | hindered, obstructed, impeded | chased, pursued | followed, tailed,
        shadowed | saved, rescued | attacked, assaulted | greeted, welcomed, saluted | insulted, offended, affronted |
        frightened, scared, terrified | calmed, soothed, comforted | surprised, astonished, amazed, startled | annoyed,
        irritated, bothered | pleased, delighted, gratified | deceived, tricked, fooled, duped | met, encountered |
        punished, disciplined, penalised;
    verb_alone VBD: slept, dozed, napped, snoozed | laughed, chuckled, giggled | wept, cried, sobbed | shouted, yelled,
        hollered | whispered, murmured | talked, chatted, conversed | worked, laboured, toiled | rested, relaxed |
        waited, lingered | arrived, turned up, showed up | left, departed | vanished, disappeared | appeared, emerged |
        walked, strolled, ambled;
    trait JJ: happy, glad, joyful, cheerful | sad, unhappy, sorrowful, gloomy | angry, furious, irate, enraged | brave,
        courageous, fearless, valiant | cowardly, craven, gutless | clever, smart, intelligent, bright | stupid,
        foolish, dumb, silly | rich, wealthy, affluent | poor, needy, impoverished, penniless | kind, gentle, caring |
        cruel, brutal, merciless | tired, weary, exhausted;
    quality JJ: big, large, huge, enormous | small, little, tiny, miniature | old, ancient, aged | new, modern,
        brand new | beautiful, pretty, lovely, gorgeous | ugly, hideous, unsightly | expensive, costly, pricey | cheap,
        inexpensive, low cost | dirty, filthy, grimy, soiled | clean, spotless, immaculate | heavy, weighty, hefty |
        wet, damp, soaked | dry, parched, arid | strange, odd, peculiar, weird;
    manner RB: quickly, rapidly, swiftly, speedily | slowly, gradually, unhurriedly | quietly, silently, noiselessly |
        loudly, noisily | carefully, cautiously, warily | carelessly, recklessly | secretly, covertly, in secret |
        openly, publicly | suddenly, abruptly, unexpectedly | gladly, willingly | reluctantly, unwillingly, grudgingly;
    time RB: at dawn, at sunrise, at daybreak | at dusk, at sunset, at nightfall | at noon, at midday | at christmas,
        at yuletide"""


class Concept(NamedTuple):
    """A concept: its word class and its 2 to 6 synonyms, each one word or a short phrase."""

    kind: str
    words: list[str]


class Pattern(NamedTuple):
    """Templates with the same meaning: filled with words of the slots' word classes, any two are paraphrases.

    A pattern of the PPDB tag ``[S]`` is a sentence; some combinations of its first three slots are held out for
    testing.
    """

    tag: str
    share: int
    slots: list[str]
    templates: list[str]


def _pattern(tag: str, share: int, slots: str, templates: str) -> Pattern:
    return Pattern(f"[{tag}]", share, slots.split(), templates.split(" | "))


_CLASSES = [block.partition(": ")[::2] for block in " ".join(_WORDS.split()).split("; ")]
CONCEPTS = [
    Concept(name.split()[0], concept.split(", ")) for name, concepts in _CLASSES for concept in concepts.split(" | ")
]
_DID = "the {0} {1} the {2} | the {2} was {1} by the {0} | it was the {0} who {1} the {2}"
SHORT_SENTENCE = _pattern("S", 5, "person verb_being animal", _DID)
# fmt: off
PATTERNS = [
    SHORT_SENTENCE,
    _pattern("NP", 4, "person trait", "the {1} {0} | the {0} who was {1}"),
    _pattern("NP", 5, "object quality", "the {1} {0} | the {0} that was {1}"),
    _pattern("NP", 4, "object place", "the {0} near the {1} | the {0} close to the {1}"),
    _pattern("VP", 6, "verb_thing object", "{0} the {1} | had {0} the {1}"),
    _pattern("VP", 8, "verb_thing object quality", "{0} the {2} {1} | had {0} the {2} {1}"),
    _pattern("VP", 8, "verb_thing object manner", "{0} the {1} {2} | {2} {0} the {1}"),
    _pattern("VP", 6, "verb_alone place manner", "{0} near the {1} {2} | {2} {0} close to the {1}"),
    _pattern("S", 14, "person verb_thing object", _DID),
    _pattern("S", 6, "person verb_being person", _DID),
    _pattern("S", 8, "person verb_thing object manner", "the {0} {3} {1} the {2} | {3} the {0} {1} the {2}"),
    _pattern("S", 8, "person verb_thing object quality", "the {0} {1} the {3} {2} | the {3} {2} was {1} by the {0}"),
    _pattern("S", 5, "person verb_alone place time", "the {0} {1} near the {2} {3} | {3} the {0} {1} close to the {2}"),
    *(_pattern(name.split()[1], 1, name.split()[0], "{0}") for name, _ in _CLASSES),
]
"""Patterns of the training lines, a few tokens per side; the last patterns are single words."""
SENTENCES = [
    _pattern("S", 3, "person verb_thing object trait quality manner",
             "the {3} {0} {5} {1} the {4} {2} | {5} the {4} {2} was {1} by the {3} {0}"),
    _pattern("S", 3, "person verb_thing object quality place",
             "the {0} {1} the {3} {2} near the {4} | near the {4} the {3} {2} was {1} by the {0}"),
    _pattern("S", 2, "person verb_being person time",
             "the {0} {1} the {2} {3} | {3} the {2} was {1} by the {0} | {3} the {0} {1} the {2}"),
    _pattern("S", 2, "person verb_being animal trait manner",
             "the {3} {0} {4} {1} the {2} | {4} the {2} was {1} by the {3} {0}"),
    _pattern("S", 2, "person verb_alone place trait time",
             "the {3} {0} {1} near the {2} {4} | {4} the {3} {0} {1} close to the {2}"),
]
"""Longer sentences, for the corpus, the sentence pairs and the test pairs."""
# fmt: on

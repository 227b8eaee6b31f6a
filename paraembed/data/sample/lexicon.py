"""The words and sentence patterns of the generated sample, as plain data: 300 concepts, a few synonyms each.

Given up: number, tense and grammar beyond one form. Nouns are singular with "the"; every verb is one whose past
tense is also its past participle, so the same word serves "the cook sold the cake" and "the cake was sold by the cook".
A word that carries meaning belongs to one concept only, so a text can be read back into its concepts.
"""

from dataclasses import dataclass

_FUNCTION_WORDS = """
    the was were is had been never not by who that it near close to at in on of for with up over out off away every each
    and"""

FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
"""Words that templates and phrases share and that belong to no concept; only "never" and "not" change a meaning."""

_WORDS: dict[str, str] = {
    "person": """
        doctor, physician, medic | lawyer, attorney, solicitor, barrister | teacher, instructor, tutor
        child, kid, youngster | thief, robber, burglar | soldier, trooper, infantryman
        police officer, cop, policeman, constable | boss, supervisor, manager | writer, author, novelist
        farmer, grower, agriculturalist | scientist, researcher, scholar | singer, vocalist, crooner | cook, chef
        sailor, seaman, mariner | pilot, aviator, airman | journalist, reporter, correspondent
        actor, performer, thespian | judge, magistrate | king, monarch, sovereign | traveller, voyager, wayfarer
        neighbour, neighbor | friend, pal, buddy, companion, mate | enemy, foe, adversary
        stranger, outsider, newcomer | expert, specialist, authority | beginner, novice, learner
        driver, chauffeur, motorist | guard, sentry, watchman | merchant, trader, dealer | servant, attendant
        priest, clergyman, cleric | politician, lawmaker, legislator | student, pupil | winner, champion, victor
        carpenter, woodworker, joiner | mechanic, repairman, technician | customer, shopper, client
        tourist, visitor, sightseer | leader, chief | musician, instrumentalist | baby, infant, newborn
        woman, lady | man, gentleman, fellow, guy, bloke | boy, lad | girl, lass""",
    "animal": """
        dog, hound, canine | cat, feline, kitty | horse, steed | pig, hog, swine | rabbit, bunny | cow, bovine
        donkey, burro | rooster, cockerel | snake, serpent | hen, chicken | puppy, pup, whelp | bug, insect
        rat, rodent | bird, fowl | monkey, ape, simian | sheep, ewe | bull, ox | fox, vixen | deer, stag
        duck, mallard""",
    "object": """
        car, automobile, motorcar | bicycle, bike, cycle | truck, lorry | boat, vessel, craft
        plane, aircraft, airplane, aeroplane | book, volume, tome | letter, missive, epistle | gift, present
        photograph, photo, snapshot | painting, artwork, canvas | coat, jacket, overcoat | hat, bonnet
        bag, sack, pouch | suitcase, valise | box, crate, carton | cup, mug, beaker | rug, carpet, mat
        sofa, couch, settee | lamp, lantern | computer, laptop | phone, telephone, handset
        television, tv, telly | radio, wireless | refrigerator, fridge | stove, cooker | bottle, flask
        knife, blade, dagger | gun, firearm, pistol, revolver | stone, rock, boulder | jewel, gem, gemstone
        money, cash, currency | meal, repast | cake, gateau | candy, confectionery | drink, beverage
        medicine, remedy, medication | rope, cord, cable | fence, barrier, railing | gate, doorway
        mirror, looking glass | hammer, mallet | bucket, pail | basket, hamper | flag, banner, ensign | map, chart
        newspaper, gazette | magazine, periodical | film, movie, motion picture | song, tune, melody
        story, tale, narrative | report, dossier | contract, agreement, pact | plan, scheme, blueprint
        machine, device, apparatus, gadget | toy, plaything | violin, fiddle | rubbish, garbage, trash, litter
        clock, timepiece | plate, dish, platter | chair, seat, stool | statue, sculpture
        flower, blossom, bloom""",
    "place": """
        forest, woodland | street, road, avenue | shop, store, boutique | garden, yard | city, metropolis
        village, hamlet | school, academy | hospital, clinic, infirmary | church, chapel | hotel, inn, lodge
        prison, jail | house, home, dwelling, residence | castle, fortress, citadel | station, depot, terminal
        harbour, port, dock | hill, mound, knoll | mountain, peak, summit | river, stream, brook | sea, ocean
        beach, seashore, shore | cave, cavern, grotto | field, meadow, pasture | swamp, marsh, bog | factory, plant
        restaurant, diner, bistro, eatery | pub, bar, tavern | cemetery, graveyard, burial ground
        airport, airfield, aerodrome | basement, cellar | attic, loft, garret | square, plaza | farm, ranch
        cabin, hut, shack | bridge, viaduct | path, trail, track""",
    "verb_thing": """
        bought, purchased, acquired | sold, vended, peddled | repaired, fixed, mended
        destroyed, demolished, wrecked, ruined | built, constructed, assembled | cleaned, washed, scrubbed
        carried, transported, conveyed | found, discovered, located | lost, misplaced, mislaid | concealed, stashed
        displayed, exhibited, presented | burned, torched, incinerated | lifted, raised, hoisted
        pulled, dragged, hauled, tugged | pushed, shoved | examined, inspected, scrutinised, studied
        wanted, desired, craved | needed, required | loved, adored, cherished
        hated, detested, loathed, despised | collected, gathered, amassed | delivered, handed over
        rented, leased, hired | kept, retained | discarded, dumped, scrapped, got rid of
        improved, enhanced, upgraded | damaged, harmed, marred | copied, duplicated, replicated
        decorated, adorned, embellished | covered, wrapped | fastened, secured, attached
        detached, disconnected, unfastened | used, utilised, employed | noticed, spotted, glimpsed
        described, depicted, portrayed | praised, lauded, commended | criticised, condemned, denounced
        stored, stockpiled | demanded, insisted on | protected, safeguarded, shielded
        mocked, ridiculed, derided | ordered, requested, asked for | ignored, disregarded, neglected, overlooked
        measured, gauged | donated, contributed""",
    "verb_being": """
        helped, assisted, aided | hindered, obstructed, impeded | chased, pursued | followed, tailed, shadowed
        saved, rescued | attacked, assaulted | greeted, welcomed, saluted | insulted, offended, affronted
        frightened, scared, terrified | calmed, soothed, comforted | surprised, astonished, amazed, startled
        annoyed, irritated, bothered | pleased, delighted, gratified | deceived, tricked, fooled, duped
        met, encountered | punished, disciplined, penalised | rewarded, recompensed | trained, coached
        watched, observed | defeated, vanquished, conquered | trusted, relied on | feared, dreaded
        fed, nourished | questioned, interrogated, quizzed | captured, seized, apprehended
        freed, liberated, released | hugged, embraced | kicked, booted | sought, looked for, searched for
        admired, respected, esteemed | persuaded, convinced | visited, called on""",
    "verb_alone": """
        slept, dozed, napped, snoozed | laughed, chuckled, giggled | wept, cried, sobbed | shouted, yelled, hollered
        whispered, murmured | talked, chatted, conversed | worked, laboured, toiled | rested, relaxed
        waited, lingered | arrived, turned up, showed up | left, departed | vanished, disappeared
        appeared, emerged | walked, strolled, ambled | hurried, rushed, raced, dashed | stumbled, tripped
        jumped, leapt, hopped | argued, quarrelled, squabbled | rejoiced, celebrated
        complained, grumbled, moaned | succeeded, prospered, thrived | failed, flopped | stayed, remained
        died, perished, passed away | trembled, shivered, quivered | dined, feasted | lived, resided, dwelt""",
    "trait": """
        happy, glad, joyful, cheerful | sad, unhappy, sorrowful, gloomy | angry, furious, irate, enraged
        brave, courageous, fearless, valiant | cowardly, craven, gutless | clever, smart, intelligent, bright
        stupid, foolish, dumb, silly | rich, wealthy, affluent | poor, needy, impoverished, penniless
        kind, gentle, caring | cruel, brutal, merciless | tired, weary, exhausted | sick, ill, unwell, ailing
        healthy, fit, robust | famous, renowned, eminent | lazy, idle, slothful
        diligent, hardworking, industrious | polite, courteous, civil | rude, impolite, discourteous
        honest, truthful, sincere | nervous, anxious, uneasy | hungry, starving, famished | slim, thin, lean
        fat, plump, overweight, obese""",
    "quality": """
        big, large, huge, enormous | small, little, tiny, miniature | old, ancient, aged | new, modern, brand new
        beautiful, pretty, lovely, gorgeous | ugly, hideous, unsightly | expensive, costly, pricey
        cheap, inexpensive, low cost | dirty, filthy, grimy, soiled | clean, spotless, immaculate
        heavy, weighty, hefty | wet, damp, soaked | dry, parched, arid | strange, odd, peculiar, weird
        ordinary, usual, normal, commonplace | rare, scarce, uncommon | precious, valuable, priceless
        worthless, useless, valueless | shiny, gleaming, glossy | dangerous, hazardous, risky | safe, harmless
        strong, sturdy, solid | fragile, delicate, brittle, frail | colourful, vivid | red, crimson, scarlet
        round, circular | empty, vacant""",
    "manner": """
        quickly, rapidly, swiftly, speedily | slowly, gradually, unhurriedly | quietly, silently, noiselessly
        loudly, noisily | carefully, cautiously, warily | carelessly, recklessly | secretly, covertly, in secret
        openly, publicly | suddenly, abruptly, unexpectedly | gladly, willingly
        reluctantly, unwillingly, grudgingly | often, frequently, repeatedly | rarely, seldom, infrequently
        accidentally, inadvertently, by accident | deliberately, intentionally, on purpose
        eventually, finally, at last | immediately, instantly, at once | recently, lately
        skilfully, expertly, deftly | clumsily, awkwardly | eagerly, keenly, enthusiastically""",
    "time": """
        at dawn, at sunrise, at daybreak | at dusk, at sunset, at nightfall | at noon, at midday
        at christmas, at yuletide | every day, each day, daily | every week, weekly | every month, monthly
        every year, annually, yearly | in autumn, in the fall | in spring, in springtime""",
}

CLASS_TAGS = {
    "person": "[NN]", "animal": "[NN]", "object": "[NN]", "place": "[NN]", "verb_thing": "[VBD]", "verb_being": "[VBD]",
    "verb_alone": "[VBD]", "trait": "[JJ]", "quality": "[JJ]", "manner": "[RB]", "time": "[RB]",
}  # fmt: skip
"""The left-hand side that a bare word of each class carries in a line."""


@dataclass(frozen=True)
class Concept:
    """One meaning. ``words`` holds its 2 to 6 synonyms, each one word or a short phrase; the first names it."""

    kind: str
    words: tuple[str, ...]


@dataclass(frozen=True)
class Pattern:
    """Ways to say one thing: any two of ``variants`` mean the same once the slots are filled.

    Attributes:
        tag: the left-hand side of its PPDB lines.
        slots: the word class of each slot; ``variants`` refer to slots by number.
        variants: templates in ``str.format`` syntax, tokens separated by one space.
        core: how many leading slots make the combination that is held out for testing (3 for a sentence, else 0).
        share: relative share of the lines.
        denials: templates that say it is not so, used by test pairs only.
    """

    tag: str
    slots: tuple[str, ...]
    variants: tuple[str, ...]
    core: int = 0
    share: int = 1
    denials: tuple[str, ...] = ()


def _ways(text: str) -> tuple[str, ...]:
    return tuple(way.strip() for way in text.split("|"))


def _phrase(tag: str, slots: str, variants: str, *, share: int) -> Pattern:
    return Pattern(tag, tuple(slots.split()), _ways(variants), share=share)


def _sentence(slots: str, variants: str, denials: str = "", *, share: int) -> Pattern:
    denied = _ways(denials) if denials else ()
    return Pattern("[S]", tuple(slots.split()), _ways(variants), core=3, share=share, denials=denied)


CONCEPTS: tuple[Concept, ...] = tuple(
    Concept(kind, tuple(word.strip() for word in group.split(",")))
    for kind, text in _WORDS.items()
    for line in text.strip().splitlines()
    for group in line.split("|")
)

_OPPOSITES = """
    bought/sold repaired/damaged built/destroyed found/lost concealed/displayed pulled/pushed loved/hated
    kept/discarded fastened/detached praised/criticised helped/hindered frightened/calmed annoyed/pleased
    punished/rewarded captured/freed trusted/feared laughed/wept shouted/whispered worked/rested arrived/left
    vanished/appeared succeeded/failed died/lived happy/sad brave/cowardly clever/stupid rich/poor kind/cruel
    sick/healthy lazy/diligent polite/rude slim/fat big/small old/new beautiful/ugly expensive/cheap dirty/clean
    wet/dry strange/ordinary precious/worthless dangerous/safe strong/fragile quickly/slowly quietly/loudly
    carefully/carelessly secretly/openly gladly/reluctantly often/rarely accidentally/deliberately
    skilfully/clumsily friend/enemy expert/beginner ignored/noticed"""

OPPOSITES: tuple[tuple[str, str], ...] = tuple(
    (one, other) for one, _, other in (pair.partition("/") for pair in _OPPOSITES.split())
)
"""Concepts, by their first word, that contradict each other."""

BY_KIND: dict[str, list[int]] = {
    kind: [number for number, concept in enumerate(CONCEPTS) if concept.kind == kind] for kind in CLASS_TAGS
}
"""The concepts of each word class, as positions in ``CONCEPTS``."""

SHORT_SENTENCE = _sentence(
    "person verb_being animal",
    "the {0} {1} the {2} | the {2} was {1} by the {0} | it was the {0} who {1} the {2}",
    share=5,
)

PATTERNS: tuple[Pattern, ...] = (
    _phrase("[NP]", "person trait", "the {1} {0} | the {0} who was {1}", share=4),
    _phrase("[NP]", "object quality", "the {1} {0} | the {0} that was {1}", share=5),
    _phrase("[NP]", "object place", "the {0} near the {1} | the {0} close to the {1}", share=4),
    _phrase("[VP]", "verb_thing object", "{0} the {1} | had {0} the {1}", share=6),
    _phrase("[VP]", "verb_thing object quality", "{0} the {2} {1} | had {0} the {2} {1}", share=8),
    _phrase("[VP]", "verb_thing object manner", "{0} the {1} {2} | {2} {0} the {1}", share=8),
    _phrase("[VP]", "verb_being animal manner", "{0} the {1} {2} | {2} {0} the {1}", share=6),
    _phrase("[VP]", "verb_alone place manner", "{0} near the {1} {2} | {2} {0} close to the {1}", share=6),
    _sentence(
        "person verb_thing object",
        "the {0} {1} the {2} | the {2} was {1} by the {0} | it was the {0} who {1} the {2}",
        share=14,
    ),
    SHORT_SENTENCE,
    _sentence(
        "person verb_being person",
        "the {0} {1} the {2} | the {2} was {1} by the {0} | it was the {0} who {1} the {2}",
        share=6,
    ),
    _sentence(
        "person verb_thing object manner",
        "the {0} {3} {1} the {2} | {3} the {0} {1} the {2} | the {2} was {3} {1} by the {0}",
        share=8,
    ),
    _sentence(
        "person verb_thing object quality",
        "the {0} {1} the {3} {2} | the {3} {2} was {1} by the {0}",
        share=8,
    ),
    _sentence("person verb_alone place", "the {0} {1} near the {2} | near the {2} the {0} {1}", share=5),
    _sentence(
        "person verb_alone place time",
        "the {0} {1} near the {2} {3} | {3} the {0} {1} close to the {2}",
        share=5,
    ),
    _sentence("animal verb_alone place", "the {0} {1} near the {2} | close to the {2} the {0} {1}", share=3),
    _sentence(
        "person verb_thing object",
        "the {0} never {1} the {2} | the {2} was never {1} by the {0} | the {0} had not {1} the {2}",
        share=6,
    ),
    *(Pattern(tag, (kind,), ("{0}",)) for kind, tag in CLASS_TAGS.items()),
)
"""What the training lines say, a few tokens a side; the last ones are bare words. The seventeenth denies."""

SENTENCES: tuple[Pattern, ...] = (
    _sentence(
        "person verb_thing object trait quality manner",
        "the {3} {0} {5} {1} the {4} {2} | {5} the {4} {2} was {1} by the {3} {0} | {5} the {3} {0} {1} the {4} {2}",
        "the {3} {0} never {5} {1} the {4} {2} | the {4} {2} was not {5} {1} by the {3} {0}",
        share=3,
    ),
    _sentence(
        "person verb_thing object quality place",
        "the {0} {1} the {3} {2} near the {4} | near the {4} the {3} {2} was {1} by the {0}",
        "the {0} never {1} the {3} {2} near the {4} | near the {4} the {3} {2} was not {1} by the {0}",
        share=3,
    ),
    _sentence(
        "person verb_being person time",
        "the {0} {1} the {2} {3} | {3} the {2} was {1} by the {0} | {3} the {0} {1} the {2}",
        "the {0} never {1} the {2} {3} | {3} the {2} was not {1} by the {0}",
        share=2,
    ),
    _sentence(
        "person verb_being animal trait manner",
        "the {3} {0} {4} {1} the {2} | {4} the {2} was {1} by the {3} {0}",
        "the {3} {0} never {4} {1} the {2} | the {2} was not {4} {1} by the {3} {0}",
        share=2,
    ),
    _sentence(
        "person verb_alone place trait time",
        "the {3} {0} {1} near the {2} {4} | {4} the {3} {0} {1} close to the {2}",
        "the {3} {0} never {1} near the {2} {4} | {4} the {3} {0} had not {1} close to the {2}",
        share=2,
    ),
)
"""Longer sentences, for the corpus, the sentence pairs and the test pairs."""

"""The published test sets: how many rows they have, and generated files of the same formats and sizes.

The published files may not be copied into this project. Tests of what is read from them run on the generated files on
every machine, and on the published ones where the data folder is beside the checkout.
"""

import gzip
from pathlib import Path

import numpy as np

PUBLISHED = Path(__file__).parents[3] / "shared" / "data" / "eval"
STS = {
    "2012": {"MSRpar": 750, "MSRvid": 750, "OnWN": 750, "SMTeuroparl": 459, "SMTnews": 399},
    "2013": {"OnWN": 561, "headlines": 750},
    "2014": {"OnWN": 750, "deft-forum": 450, "deft-news": 300, "headlines": 750, "images": 750},
    "2015": {"answers-forums": 375, "answers-students": 750, "headlines": 750, "images": 750},
    "2016": {"answer-answer": 254, "headlines": 249, "plagiarism": 230, "postediting": 244, "question-question": 209},
    "benchmark": {"dev": 1500},
}
OTHERS = {
    ("sick", "test"): 4927, ("pit2015", "test"): 972,
    ("words", "simlex999"): 999, ("words", "ws353"): 353, ("words", "ws353-sim"): 203, ("words", "ws353-rel"): 252,
    ("bigrams", "JN"): 108, ("bigrams", "NN"): 108, ("bigrams", "VN"): 108,
    ("phrases", "pavlick"): 26456, ("phrases", "annotated-ppdb"): 3000,
    ("semeval2013", ""): 7490, ("turney", "5"): 2180, ("turney", "10"): 2180,
}  # fmt: skip
SEMEVAL_TRAIN = 11_175
VOCABULARY = [f"word{number}" for number in range(200)]


def write_collection(folder):
    """Write files in the formats of the published ones, with as many rows."""
    draw = np.random.default_rng(0)

    def rows(count):
        """Rows of a score and two texts; the last token of a text occurs once in the file."""
        texts = draw.choice(VOCABULARY, (count, 2, 5)).tolist()
        scores = draw.integers(10, 51, count) / 10
        return [
            (score, *(" ".join([*text, f"{side}{row}"]) for side, text in zip("ab", pair, strict=True)))
            for row, (score, pair) in enumerate(zip(scores.tolist(), texts, strict=True))
        ]

    def write(name, lines):
        path, data = folder / name, "".join(f"{line}\n" for line in lines).encode()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)

    for year, sets in STS.items():
        for name, count in sets.items():
            pairs = [f"{score}\t{one} {name}\t{two} {year}" for score, one, two in rows(count)]
            write(f"sts/{year}/{name}.tsv", ["score\tsentence1\tsentence2", *pairs])
    for name, count in {"train": 4500, "trial": 500, "test_annotated": OTHERS["sick", "test"]}.items():
        pairs = [f"1\t{one}\t{two}\t{score}\tNEUTRAL" for score, one, two in rows(count)]
        write(f"sick/SICK_{name}.txt", ["pair_ID\tsentence_A\tsentence_B\trelatedness_score\tjudgment", *pairs])
    tweets = rows(OTHERS["pit2015", "test"])
    write("pit2015/test.data", [f"1\ttopic\t{one}\t{two}\t3\tx\ty" for _, one, two in tweets])
    write("pit2015/test.label", [f"true\t{score / 5:.4f}" for score, *_ in tweets])
    words = [f"old{row}\tnew{row}\tA\t{row % 10}" + "\t0" * 6 for row in range(OTHERS["words", "simlex999"])]
    write("word/SimLex-999.txt", ["\t".join("abcdefghij"), *words])
    for name in ("ws353", "ws353-sim", "ws353-rel"):
        write(f"word/{name}.txt", [f"old{row}\tnew{row}\t{row % 10}" for row in range(OTHERS["words", name])])
    kinds = {"adjectivenouns": "JN", "compoundnouns": "NN", "verbobjects": "VN"}
    bigrams = [
        f"participant{rater} {kind} 1 a{row} b{row} c{row} d{row} {1 + (row + rater) % 7}"
        for rater in range(18)
        for kind, name in kinds.items()
        for row in range(OTHERS["bigrams", name])
    ]
    write("phrase/mitchell_lapata_2010.txt", ["participant type version a b c d rating", *bigrams])
    pavlick, annotated = rows(OTHERS["phrases", "pavlick"]), rows(OTHERS["phrases", "annotated-ppdb"])
    write("phrase/pavlick2015_ppdb_human.tsv.gz", [f"{score}\t[NP]\t{one}\t{two}\t3,4" for score, one, two in pavlick])
    write("phrase/annotated_ppdb_3k.txt", [f"{one}|||{two}|||{score}" for score, one, two in annotated])
    for part, count in {"train": SEMEVAL_TRAIN, "test": OTHERS["semeval2013", ""]}.items():  # a right, a wrong phrase
        phrases = (f"old{row}\tJJ\nthing{row}\tNN\nword{row // 2}\n{1 - row % 2}" for row in range(count))
        write(f"phrase/semeval2013_5a/en.{part}Set", phrases)
    questions = (
        f"m{row} h{row} | right{row} | m{row} | h{row} | a | b | c | d" for row in range(OTHERS["turney", "5"])
    )
    write("phrase/turney2012_jair.data", questions)
    return folder

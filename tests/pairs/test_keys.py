import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from paraembed.pairs.hashing import hash_strings, mixed, pair_keys

TEXT = st.text("ab é\0", max_size=6)


@settings(max_examples=100, deadline=None)
@given(pairs=st.lists(st.tuples(TEXT, TEXT), max_size=30), start=st.integers(0, 5))
def test_keys_are_equal_exactly_for_equal_unordered_pairs(pairs, start):
    table = pa.table({"first": pa.array([p[0] for p in pairs], pa.string()), "second": [p[1] for p in pairs]})
    keys = pair_keys(table.slice(start)).tolist()
    unordered = [tuple(sorted(pair)) for pair in pairs[start:]]
    assert len(keys) == len(unordered)
    for key, pair in zip(keys, unordered, strict=True):
        assert [other == key for other in keys] == [other == pair for other in unordered]


def test_hashes_are_the_same_on_every_machine():
    """Splits and samples of runs that are told about hang on these numbers."""
    texts = ["", "a", "ab", "snow 雪", "eight by", "nine byte", "a longer text of several words"]
    expected = [hash_of(text) for text in texts]
    assert hash_strings(pa.array(texts)).tolist() == expected
    assert hash_strings(pa.array(["x", *texts, "y"]).slice(1, len(texts))).tolist() == expected
    assert expected[1:3] == [A, AB]
    assert pair_keys(pa.table({"first": ["ab"], "second": ["a"]})).tolist() == [split_mix((A + AB) % 2**64)]
    assert mixed(hash_strings(pa.array(["a"])), 7).tolist() == [split_mix(A, 7)]


A, AB = 15295030668532515345, 18286230994722859428


def hash_of(text):
    octets = text.encode()
    words = [int.from_bytes(octets[start : start + 8], "little") for start in range(0, len(octets), 8)]
    total = sum(split_mix(word + place * 0x9E3779B97F4A7C15) for place, word in enumerate(words))
    return split_mix(total + len(octets))


def split_mix(bits, seed=0):
    bits = (bits + 0x9E3779B97F4A7C15 * (seed + 1)) % 2**64
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB % 2**64
    return bits ^ (bits >> 31)

import gzip
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraembed.io.inflate import cut_at_lines
from paraembed.io.limits import ReadLimits
from paraembed.io.lines import Lines, joined_lines, read_lines, read_text

# What a line may have: of a carriage return at its end nobody could tell whether it belongs to the line's end.
LINE = (st.binary(max_size=20) | st.text(max_size=6).map(str.encode)).filter(
    lambda line: not {*b"\n\0"} & {*line} and not line.endswith(b"\r")
)


def decoded(line):
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None


@given(
    content=st.lists(LINE, min_size=1),
    end=st.sampled_from([b"\n", b"\r\n"]),
    last_ends=st.booleans(),
    block=st.integers(1, 40),
    zipped=st.booleans(),
    longest=st.sampled_from([10, 1 << 20]),
    size=st.integers(1, 40),
    buffer=st.integers(1, 9),
)
def test_every_line_is_a_text_or_null_whatever_the_blocks_and_spans(
    tmp_path_factory, content, end, last_ends, block, zipped, longest, size, buffer
):
    content[0] = b"x" + content[0]  # the first bytes say that a file is compressed, or of its byte order mark
    if not last_ends and not content[-1]:
        content[-1] = b"x"  # an empty last line without an end is no line
    data = end.join(content) + end * last_ends
    path = tmp_path_factory.mktemp("lines") / ("text.gz" if zipped else "text")
    path.write_bytes(gzip.compress(data) if zipped else data)
    blocks = list(read_lines(path, limits=ReadLimits(max_line_bytes=longest), block_bytes=block, shown_bytes=4))
    for one, following in itertools.pairwise(blocks):
        assert following.first == one.first + len(one)
    rows = [(one[row], one.too_long[row].as_py(), one.text[row].as_py()) for one in blocks for row in range(len(one))]
    for line, (raw, too_long, text) in zip(content, rows, strict=True):
        assert too_long == (len(line) > longest)
        assert text == (None if too_long else decoded(line))
        assert line.startswith(raw.removesuffix(b"\r")) if too_long else raw == line
    if zipped:
        return
    spans = cut_at_lines(path, size, read_bytes=buffer)
    assert [start for start, _ in spans] == [0, *(stop for _, stop in spans[:-1])]
    assert spans[-1][1] == path.stat().st_size
    raw = []
    for span in spans:
        blocks = list(read_lines(path, span))
        assert blocks[0].first == 0
        assert span[1] - span[0] >= size or span is spans[-1]
        raw += [one[row] for one in blocks for row in range(len(one))]
    assert raw == content


@given(st.lists(st.lists(LINE, min_size=1, max_size=4), min_size=1, max_size=5), st.sampled_from([b"\n", b"\r\n"]))
def test_joined_blocks_are_the_block_of_their_bytes(blocks, end):
    datas = [b"".join(line + end for line in lines) for lines in blocks]
    firsts = itertools.accumulate(map(len, blocks), initial=3)
    joined = joined_lines([Lines.of(data, first) for data, first in zip(datas, firsts, strict=False)])
    whole = Lines.of(b"".join(datas), 3)
    assert (joined.first, joined.data) == (whole.first, whole.data)
    assert (joined.starts.tolist(), joined.ends.tolist()) == (whole.starts.tolist(), whole.ends.tolist())
    assert joined.text.equals(whole.text)


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"", "is empty; expected UTF-8"), (b"\xef\xbb\xbf", "is empty"), (b"PK\0\1", "is a binary file; expected")],
)
def test_a_file_without_lines_is_refused(tmp_path, data, message):
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(ValueError, match=message):
        list(read_lines(tmp_path / "file"))


def test_lines_of_a_text_that_is_read_at_once(tmp_path):
    path = tmp_path / "queries.txt"
    path.write_text("a cat\n\na dog")
    assert read_text(path) == ["a cat", "", "a dog"]
    path.write_bytes(b"a\n\xff\n")
    with pytest.raises(ValueError, match=r"queries\.txt, line 2: not UTF-8"):
        read_text(path)

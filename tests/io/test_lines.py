import gc
import gzip
import itertools

import psutil
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraembed.io.inflate import cut_at_lines
from paraembed.io.limits import ReadLimits
from paraembed.io.lines import read_lines

BYTES = st.binary(max_size=12) | st.text(max_size=6).map(str.encode)
LINE = BYTES.filter(lambda line: b"\n" not in line and b"\0" not in line and not line.endswith(b"\r"))


def read_all(path, block_bytes):
    blocks = list(read_lines(path, block_bytes=block_bytes))
    for block, following in itertools.pairwise(blocks):
        assert following.first == block.first + len(block)
    text = pa.chunked_array([block.text for block in blocks], pa.string()).to_pylist()
    return text, [block[row] for block in blocks for row in range(len(block))]


def decoded(line):
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None


@given(
    content=st.lists(LINE, min_size=1),
    ends=st.sampled_from([b"\n", b"\r\n"]),
    last_ends=st.booleans(),
    block=st.integers(1, 40),
    zipped=st.booleans(),
)
def test_every_line_comes_once_whatever_the_blocks(tmp_path_factory, content, ends, last_ends, block, zipped):
    if not last_ends and not content[-1]:
        content[-1] = b"x"  # an empty last line without an end is no line
    if content[0].startswith((b"\x1f\x8b", b"BZh", b"\x28\xb5\x2f\xfd", b"\xef\xbb\xbf")):
        content[0] = b"x" + content[0]  # the first bytes say that a file is compressed, or of its byte order mark
    data = ends.join(content) + (ends if last_ends else b"")
    path = tmp_path_factory.mktemp("lines") / ("text.gz" if zipped else "text")
    path.write_bytes(gzip.compress(data) if zipped else data)
    text, raw = read_all(path, block)
    assert raw == content
    assert text == [decoded(line) for line in content]


@given(content=st.lists(LINE, min_size=1), last_ends=st.booleans(), size=st.integers(1, 40), buffer=st.integers(1, 9))
def test_spans_hold_every_line_once(tmp_path_factory, content, last_ends, size, buffer):
    content[0] = b"x" + content[0]
    if not last_ends and not content[-1]:
        content[-1] = b"x"
    path = tmp_path_factory.mktemp("lines") / "text"
    path.write_bytes(b"\n".join(content) + b"\n" * last_ends)
    spans = cut_at_lines(path, size, read_bytes=buffer)
    assert [start for start, _ in spans] == [0, *(stop for _, stop in spans[:-1])]
    assert spans[-1][1] == path.stat().st_size
    raw = []
    for span in spans:
        blocks = list(read_lines(path, span))
        assert blocks[0].first == 0
        assert span[1] - span[0] >= size or span is spans[-1]
        raw += [block[row] for block in blocks for row in range(len(block))]
    assert raw == content


@given(
    # A last carriage return belongs to the line's end.
    content=st.lists(st.binary(max_size=20).filter(lambda line: not {*b"\n\0"} & {*line} and not line.endswith(b"\r"))),
    block=st.integers(1, 30),
)
def test_a_line_that_is_too_long_is_one_null(tmp_path_factory, content, block):
    path = tmp_path_factory.mktemp("lines") / "text"
    path.write_bytes(b"\n".join([b"x", *content, b"y"]))
    blocks = list(read_lines(path, limits=ReadLimits(max_line_bytes=10), block_bytes=block, shown_bytes=4))
    rows = [
        (part[row], part.too_long[row].as_py(), part.text[row].as_py()) for part in blocks for row in range(len(part))
    ]
    assert len(rows) == len(content) + 2
    for line, (raw, too_long, text) in zip([b"x", *content, b"y"], rows, strict=True):
        assert too_long == (len(line) > 10)
        if too_long:
            assert text is None
            assert line.startswith(raw.removesuffix(b"\r"))
        else:
            assert raw == line.removesuffix(b"\r")
            assert text == decoded(raw)


@pytest.mark.parametrize("data", [b"", b"\xef\xbb\xbf"], ids=["nothing", "a byte order mark"])
def test_a_file_without_text_is_empty(tmp_path, data):
    (tmp_path / "empty").write_bytes(data)
    with pytest.raises(ValueError, match="is empty; expected UTF-8 text"):
        list(read_lines(tmp_path / "empty"))


def test_binary_and_missing_files_are_refused(tmp_path):
    (tmp_path / "binary").write_bytes(b"PK\0\1")
    with pytest.raises(ValueError, match="is a binary file; expected"):
        list(read_lines(tmp_path / "binary"))
    with pytest.raises(IsADirectoryError, match="is a folder"):
        list(read_lines(tmp_path))
    with pytest.raises(FileNotFoundError, match="does not exist"):
        list(read_lines(tmp_path / "missing"))


def test_cut_gzip_names_the_last_whole_line(tmp_path):
    data = b"".join(b"line %d %d\n" % (number, number * 7919 % 1000) for number in range(20_000))
    whole = gzip.compress(data)
    path = tmp_path / "cut.gz"
    path.write_bytes(whole[: len(whole) // 2])
    blocks = []
    with pytest.raises(ValueError, match=r"gzip file .* last complete line: \d+") as caught:
        blocks.extend(read_lines(path, block_bytes=1000))  # keeps what came before the error
    seen = sum(map(len, blocks))
    assert seen > 1000
    assert str(caught.value).endswith(f"last complete line: {seen}")


def test_a_refused_file_is_closed_at_once(tmp_path):
    path = tmp_path / "binary.txt"
    path.write_bytes(b"text\n" * 20 + b"\0\n")
    gc.disable()
    try:
        with pytest.raises(ValueError, match="is a binary file"):
            list(read_lines(path))
        assert str(path) not in [file.path for file in psutil.Process().open_files()]
    finally:
        gc.enable()

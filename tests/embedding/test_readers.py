"""What the readers of embedding promise: any bytes are rows or reasons, as slow oracles read them, and parts add up to
the whole, whatever the file, its blocks and its parts. Seeded cases: few here, and thousands in ``make fuzz``.
"""

import csv
import io
import json
import re
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paraembed.embedding.plan import make_plan
from paraembed.embedding.rows import read_part, stream_parts
from paraembed.embedding.settings import Settings
from paraembed.io.limits import TableLimits
from tests import fuzz
from tests.embedding.test_rows import PACKED
from tests.embedding.without_ray import assert_is_read_again, list_inputs

BINARY = ".parquet", ".arrow", ".feather"
PIECES = ["a", "the cat", " ", "", ",", '"', '""', "\n", "\r", "\r\n", "\t", "é", "\0", "\ufeff", "x" * 30]


@pytest.fixture(params=[100, pytest.param(fuzz.CASES, marks=[pytest.mark.fuzz, pytest.mark.timeout(1200)])])
def cases(request, tmp_path):
    """How many cases; the scanner is compiled before any time limit."""
    (tmp_path / "warm.csv").write_text('id\n"a"\n')
    read(tmp_path / "warm.csv", TableLimits(), None, 64, 5)
    return request.param


def read(path, limits, settings, block, part_rows):
    """Every row, its number first, every rejected row, and the lines of CSV rows or the number of texts that are not
    UTF-8, as the parts of a plan give them.
    """
    inputs = list_inputs([path], limits, block_bytes=block)
    columns = inputs[0].columns
    chosen = settings or Settings(*columns[:1], keep=columns[1:])
    rows, rejected, lines = [], [], []
    plan = make_plan(inputs, Settings(chosen.text_column, keep=chosen.keep, part_rows=part_rows))
    assert_is_read_again(plan)
    if not path.name.endswith(BINARY):  # which is cut between row groups
        assert {part.rows for part in plan.parts[:-1]} <= {part_rows}
        pieces = [piece for one in plan.parts for piece in one.pieces]
        assert all(one.stop == next_.start for one, next_ in pairwise(pieces))
    for _, part, data in stream_parts(plan, plan.parts):
        blocks = list(read_part(inputs, part, plan.settings, data))
        assert sum(len(some.row_numbers) + len(some.rejected) for some in blocks) == part.rows
        for some in blocks:
            carried = [_numbers(array).to_pylist() for array in some.carried]
            rows += zip(some.row_numbers.tolist(), some.texts.to_pylist(), *carried[1:], strict=True)
            rejected += some.rejected
            lines += some.lines[:, 1].tolist() or [1] * some.num_replaced
    return rows, rejected, lines


CELL = r'(?:"(?:[^"]|"")*"|(?:[^",\r\n][^,\r\n]*)?)'
CSV_ROW = re.compile(rf"{CELL}(?:,{CELL})*(?:\r\n|\n|\r|\Z)")
LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r|\Z)")
LINE_END = re.compile(r"\r\n|\n|\r")


def csv_rows(data, limits):
    """Another reading of CSV, a character a byte: rows with their number of lines, the header first; rejected lines."""
    csv.field_size_limit(1 << 24)  # another reader may have set a small one in this process
    kept, lines_rejected, at, line = [], [], 0, 1
    while at < len(data):
        first, row = LINE.match(data, at), CSV_ROW.match(data, at)
        if len(first[0].rstrip("\r\n")) > limits.max_line_bytes:
            raise ValueError("longer than")
        cells = (next(csv.reader(io.StringIO(row[0], newline="")), []) or [""]) if row else []
        lines = [len(LINE_END.findall(cell)) for cell in cells]
        is_row = len(cells) == len(kept[0][0]) if kept else bool(cells)
        if row and row.end() > first.end():
            num_bytes = len(row[0]) - len(re.search(r"(?:\r\n|\n|\r|)\Z", row[0])[0])
            is_row &= max(lines) < limits.max_field_lines and num_bytes <= limits.max_line_bytes
            commas = {line.count(",") for line in LINE_END.split(row[0].removesuffix("\n").removesuffix("\r"))}
            is_row &= not (commas == {len(cells) - 1} and (len(cells) - 1) * (1 + sum(lines)) >= 12)
            is_row &= bool(kept) or not (len(commas) == 1 and max(commas) and sum(lines) > 1)
        if is_row:
            kept.append((cells, 1 + sum(lines)))
            at, line = row.end(), line + 1 + sum(lines)
        elif kept:
            lines_rejected.append(line)
            at, line = first.end(), line + 1
        else:
            raise ValueError("the header")
    return kept, lines_rejected


def _numbers(array):
    """Dates as days: a damaged file has dates that Python cannot represent."""
    return array.view(pa.int32()) if array.type == pa.date32() else array


def read_both(path, draw, limits, settings=None):
    """What a whole read gives, which parts of few rows in small blocks must give, too."""
    whole = read(path, limits, settings, 1 << 20, 100_000)
    size = path.stat().st_size  # of a large file, which mutations can make, as few blocks and parts as of a small one
    block, part_rows = max(draw.choice((1, 16, 64, 64, 500)), size // 100), max(draw.choice((1, 5, 50)), size // 100)
    assert read(path, limits, settings, block, part_rows) == whole
    numbers = sorted([*(row[0] for row in whole[0]), *(one.row for one in whole[1])])
    assert numbers == list(range(len(numbers)))
    return whole


def pack(data, name, draw, folder):
    """A file, compressed at times, and then damaged at times, which it is refused for, or by luck the same."""
    suffix = draw.choice(["", "", "", *PACKED])
    packed = PACKED[suffix](data)
    path = folder / f"{name}{suffix}"
    path.write_bytes(packed)
    if suffix and draw.random() < 0.1:
        path.write_bytes(fuzz.mutated(packed, draw))
        read_both(path, draw, TableLimits(), Settings() if name == "t.txt" else None)
        raise ValueError("damaged, but it can be read: bz2 and zst may hold no checksum")
    return path


def decoded(cells):
    return [cell.encode("latin-1").decode("utf-8", "replace") for cell in cells]


def test_csv(tmp_path, cases):
    def case(draw):
        width, end = draw.randint(1, 3), draw.choice(["\n", "\r\n", "\r"])
        rows = [
            ["".join(draw.choices(PIECES, k=draw.randrange(4))) for _ in range(width)]
            for _ in range(draw.randrange(12))
        ]
        buffer = io.StringIO(newline="")
        csv.writer(buffer, lineterminator=end, quoting=csv.QUOTE_ALL).writerows([["id", "b", "c"][:width], *rows])
        data = draw.choice(["", "\ufeff"]).encode() + buffer.getvalue().encode()
        well_formed = draw.random() < 0.3
        if not well_formed:
            data = fuzz.mutated(data, draw, (b'"', b'"', b",", b"\n", b"\r", b'""', b',"', b'"\n', b"\xff"))
        limits = (
            TableLimits()
            if well_formed
            else TableLimits(draw.choice((40, 1000)), max_field_lines=draw.choice((1, 2, 5)))
        )
        path = pack(data, "t.csv", draw, tmp_path)
        found, rejected, num_lines = read_both(path, draw, limits)
        kept, lines = csv_rows(data.removeprefix(b"\xef\xbb\xbf").decode("latin-1"), limits)
        assert [one.line for one in rejected] == lines
        assert num_lines == [lines_of for _, lines_of in kept[1:]]
        assert [list(row[1:]) for row in found] == [decoded(cells) for cells, _ in kept[1:]]
        assert not well_formed or [list(row[1:]) for row in found] == rows
        return "rejected" if lines else "read"

    ends = fuzz.run(case, cases)
    assert min(ends["read"], ends["rejected"], ends["refused"]) > 0, ends


def test_csv_dialects(tmp_path, cases):
    """Other delimiters, escaped quotes, blanks before cells and encodings."""

    def case(draw):
        delimiter, escape, skips = draw.choice(";|\t,^"), draw.choice(["", "\\", "~"]), draw.random() < 0.5
        encoding = draw.choice(["utf-8", "utf-16", "utf-16-be", "cp1252"])
        pieces = [*PIECES, delimiter, escape, "\\", f'{escape}"']
        texts = ["".join(draw.choices(pieces, k=draw.randrange(3))) for _ in range(2 * draw.randrange(9))]
        cells = [text.encode(encoding, "ignore").decode(encoding) for text in texts]

        def written(cell):
            inner = (cell.replace(escape, 2 * escape) if escape else cell).replace('"', (escape or '"') + '"')
            is_plain = not re.search(f'^[" ]|[\r\n{re.escape(delimiter)}]', cell) and draw.random() < 0.5
            return " " * (skips * draw.randrange(3)) + (cell if is_plain else f'"{inner}"')

        rows = [written("id") + delimiter + written("b")]
        rows += [delimiter.join(map(written, pair)) for pair in zip(cells[::2], cells[1::2], strict=True)]
        rows = [draw.choice((f"sep={delimiter}", *rows[:1]))] * (draw.random() < 0.2) + rows
        has_line = rows[0].startswith("sep=")
        data = "".join(row + draw.choice(["\n", "\r\n"]) for row in rows).encode(encoding)
        changed = draw.random() < 0.4
        data = fuzz.mutated(data, draw, (b'"', b" ", escape.encode(), b"\n")) if changed else data
        limits = TableLimits(
            csv_delimiter=None if has_line else delimiter, csv_escape=escape, csv_skip_blanks=skips, encoding=encoding
        )
        found, rejected, _ = read_both(pack(data, "t.csv", draw, tmp_path), draw, limits)
        if len(rows) > 1 and rows[1] == rows[0]:
            found = found[1:]  # the header, twice
        assert changed or not rejected
        assert changed or [cell for row in found for cell in row[1:]] == cells
        return "changed" if changed else "read"

    ends = fuzz.run(case, cases)
    assert min(ends["read"], ends["changed"]) > 0, ends


def test_tsv(tmp_path, cases):
    def case(draw):
        rows = [draw.choices(PIECES, k=draw.choice((2, 2, 2, 3))) for _ in range(draw.randrange(12))]
        data = draw.choice(["", "\ufeff"]).encode() + "\n".join("\t".join(row) for row in [["id", "b"], *rows]).encode()
        data = fuzz.mutated(data, draw, (b"\t", b"\n", b"\r", b'"')) if draw.random() < 0.5 else data
        found, rejected, _ = read_both(pack(data, "t.tsv", draw, tmp_path), draw, TableLimits())
        lines = [
            line.rstrip("\r\n") for line in LINE.findall(data.removeprefix(b"\xef\xbb\xbf").decode("latin-1")) if line
        ]
        width = lines[0].count("\t")
        expected = {row: line.split("\t") for row, line in enumerate(lines[1:]) if line.count("\t") == width}
        assert [(row, *decoded(cells)) for row, cells in expected.items()] == found
        assert len(rejected) == len(lines) - 1 - len(expected)
        return "rejected" if rejected else "read"

    ends = fuzz.run(case, cases)
    assert min(ends["read"], ends["rejected"], ends["refused"]) > 0, ends


def value(draw, depth=0):
    match draw.randrange(9 if depth < 3 else 6):
        case 0:
            return None
        case 1:
            return draw.choice([True, False])
        case 2:
            return draw.choice([0, -1, 1.5, 1e400, float("nan"), 10**30])
        case 3 | 4 | 5:
            return "".join(draw.choices([*PIECES, "\ud800", "\\"], k=2))
        case 6 | 7:
            return {draw.choice(["body", "key", "é"]): value(draw, depth + 1) for _ in range(draw.randrange(3))}
        case _:
            return [value(draw, depth + 1) for _ in range(draw.randrange(3))]


def test_json_lines(tmp_path, cases):
    def case(draw):
        values = [value(draw) for _ in range(draw.choice((0, 0, 1, 5)))]
        values += [{"body": value(draw), "key": value(draw)} for _ in range(draw.randrange(6))]
        draw.shuffle(values)
        lines = [json.dumps(one, ensure_ascii=draw.random() < 0.5).encode("utf-8", "replace") for one in values]
        data = draw.choice([b"\n", b"\r\n"]).join(lines)
        if draw.random() < 0.3:
            data = b" [\n" + b", ".join(lines).replace(b"{", b"\r\n{ ") + b"]"
        tokens = (b"{", b"}", b"[" * 3000, b'"body":', b"\\u0062ody", b'"', b"1" * 5000, b"\n", b"NaN", b"\xff")
        data = fuzz.mutated(data, draw, tokens) if draw.random() < 0.6 else data
        path = pack(data, "t.jsonl", draw, tmp_path)
        found, rejected, _ = read_both(path, draw, TableLimits(), Settings("body", keep=("key",)))
        texts, lines = {}, data.removesuffix(b"\n").split(b"\n")
        if data.lstrip(b" \t\r\n")[:1] == b"[":
            lines = [json.dumps(one).encode() for one in json.loads(data.decode("utf-8", "replace"))]
        for row, line in enumerate(lines):
            try:
                one = json.loads(line.decode("utf-8", "replace").removeprefix("" if row else "\ufeff"))
            except (ValueError, RecursionError):
                continue
            if isinstance(one, dict) and isinstance(one.get("body", 0), str | None):
                texts[row] = one["body"] and one["body"].encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        assert texts == {row: text for row, text, _ in found}
        return "rejected" if rejected else "read"

    ends = fuzz.run(case, cases)
    assert min(ends["read"], ends["rejected"], ends["refused"]) > 0, ends


def test_text(tmp_path, cases):
    def case(draw):
        data = "".join(draw.choices([*PIECES, "\n", "\n"], k=draw.randrange(40))).encode()
        data = fuzz.mutated(data, draw) if draw.random() < 0.6 else data
        found, rejected, replaced = read_both(pack(data, "t.txt", draw, tmp_path), draw, TableLimits(), Settings())
        end = b"\r" if b"\r" in data and b"\n" not in data else b"\n"
        lines = data.removeprefix(b"\xef\xbb\xbf").removesuffix(end).split(end)
        assert [row[1] for row in found] == [line.removesuffix(b"\r").decode("utf-8", "replace") for line in lines]
        assert not rejected
        assert len(replaced) == sum(line.decode("utf-8", "ignore").encode() != line for line in lines)
        return "read"

    ends = fuzz.run(case, cases)
    assert min(ends["read"], ends["refused"]) > 0, ends


def strings(values, draw):
    """Strings of one of the types that texts may have, at times with bytes that are not UTF-8."""
    octets = [value and value.encode() + (b"\xff" if draw.random() < 0.1 else b"") for value in values]
    array = pa.array(octets, pa.binary())
    array = pa.Array.from_buffers(pa.string(), len(array), array.buffers(), array.null_count)
    return draw.choice([array, array, array.cast(pa.binary()), array.dictionary_encode()])


def test_parquet_and_arrow(tmp_path, cases):
    def case(draw):
        count = draw.randrange(1, 20)
        texts = [draw.choice([None, *PIECES]) for _ in range(count)]
        others = {
            "key": strings(texts, draw),
            "number": pa.array(range(count), pa.int32()).cast(
                draw.choice([pa.int8(), pa.uint64(), pa.float32(), pa.date32()])
            ),
            "list": pa.array([[text] for text in texts]),
            "struct": pa.array([{"a": text, "b": row} for row, text in enumerate(texts)]),
        }
        table = pa.table({"body": strings(texts, draw), **others})
        path = tmp_path / f"t{draw.choice(BINARY)}"
        if path.suffix == ".parquet":
            pq.write_table(
                table,
                path,
                row_group_size=draw.choice((1, 3, 100)),
                compression=draw.choice(["none", "snappy", "zstd", "gzip"]),
                use_dictionary=draw.random() < 0.5,
                data_page_size=draw.choice((16, 1 << 20)),
                data_page_version=draw.choice(["1.0", "2.0"]),
            )
        else:
            options = pa.ipc.IpcWriteOptions(compression=draw.choice([None, "lz4", "zstd"]))
            opened = pa.ipc.new_file if path.suffix == ".feather" else pa.ipc.new_stream
            with opened(path, table.schema, options=options) as writer:
                writer.write_table(table, draw.choice((1, 3, 100)))
        damaged = draw.random() < 0.6
        if damaged:
            data = bytearray(path.read_bytes())
            for at in draw.choices(range(len(data)), k=draw.randint(1, 3)):
                data[at] ^= draw.randint(1, 255)
            path.write_bytes(data if draw.random() < 0.5 else fuzz.mutated(path.read_bytes(), draw))
        keep = tuple(draw.sample([*others], draw.randrange(len(others) + 1)))
        found, _, replaced = read_both(path, draw, TableLimits(), Settings("body", keep=keep))
        body = table["body"].cast(pa.large_binary()).to_pylist()
        expected = [text if text is None else text.decode("utf-8", "replace") for text in body]
        assert damaged or [row[1] for row in found] == expected
        assert damaged or keep or len(replaced) == sum(text is not None and b"\xff" in text for text in body)
        return "damaged" if damaged else "read"

    ends = fuzz.run(case, cases)
    assert min(ends["read"], ends["damaged"], ends["refused"]) > 0, ends

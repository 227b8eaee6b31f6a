"""Convert a stream of text to UTF-8 lines: from another encoding, or from an array of JSON."""

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from itertools import chain

from paraembed.io.inflate import read_blocks
from paraembed.io.places import Place, shown

_BLANKS = " \t\r\n"
_SOME_BLANKS = re.compile(rf"[{_BLANKS}]*")
_ELEMENT = json.JSONDecoder().raw_decode


def read_utf8(place: Place, size: int, encoding: str, max_inflation: int) -> Iterator[bytes]:
    """Yield a text file, decompressed and converted to UTF-8, in pieces of about ``size`` bytes, see ``decoded``."""
    pieces = read_blocks(place, size, max_inflation)
    return pieces if encoding == "utf-8" else filter(None, decoded(pieces, encoding, shown(place)))


def decoded(pieces: Iterable[bytes], encoding: str, shown: str) -> Iterator[bytes]:
    """Yield text of another encoding as UTF-8. A byte that a codec of bytes does not have stays, and is then invalid
    UTF-8; raise ValueError, with the name of the file, for others.
    """
    decoder = codecs.getincrementaldecoder(encoding)("surrogateescape")
    for piece in chain(pieces, [b""]):
        try:
            yield decoder.decode(piece, not piece).encode("utf-8", "surrogateescape")
        except UnicodeError as error:
            reason = getattr(error, "reason", error)
            raise ValueError(f"{shown} is not {encoding} ({reason}); give another `encoding`") from None


def is_array(head: bytes) -> bool:
    """Return whether the first bytes of JSON begin an array."""
    return head.removeprefix(codecs.BOM_UTF8).lstrip(_BLANKS.encode())[:1] == b"["


def array_lines(pieces: Iterable[bytes], shown: str, max_line_bytes: int) -> Iterator[bytes]:
    """Yield the elements of a JSON array, one per line. Raise ValueError, with the name of the file, if the array is
    not valid JSON to its end, text follows it, or an element is longer than ``max_line_bytes``.

    The memory is bounded by a few pieces, or some copies of the longest element.
    """
    decoder = codecs.getincrementaldecoder("utf-8-sig")("surrogateescape")
    text, enough, count = "", 0, 0  # from the bracket or comma before the next element
    for piece in chain(pieces, [b""]):
        text += decoder.decode(piece, not piece)
        if piece and len(text) < enough:
            continue
        text = text.lstrip(_BLANKS)
        if text and text[0] != "]":
            lines, last = _elements(text, count, shown)
            text, count = text[last:], count + len(lines)
            yield "".join(lines).encode("utf-8", "surrogateescape")
        if text[:1] == "]" and text[1:].strip(_BLANKS):
            raise ValueError(f"{shown}: text follows the array of {count:,} elements; write one JSON object per line")
        if len(text) > max_line_bytes:
            raise _invalid(shown, count, f"longer than `max_line_bytes`, {max_line_bytes:,} bytes, or not closed")
        enough = 2 * len(text)
    if text[:1] != "]":
        raise _invalid(shown, count, "not valid JSON, or not closed")


def _elements(text: str, count: int, shown: str) -> tuple[list[str], int]:
    """Return the complete elements of an array, a line each, and where the bracket or comma behind them is."""
    lines, last = list[str](), 0
    while text[last] != "]":
        start = _skip(text, last + 1)
        try:
            if text[start] == "]" and text[last] == "[":
                return [], start
            _, stop = _ELEMENT(text, start)
            after = _skip(text, stop)
            end = text[after]
        except (ValueError, IndexError):
            break  # of a valid array, the rest comes
        except RecursionError:
            raise _invalid(shown, count + len(lines), "too many brackets") from None
        if end not in ",]":
            raise _invalid(shown, count + len(lines), f"{end!r} follows it")
        lines.append(text[start:stop].replace("\n", " ").replace("\r", " ") + "\n")
        last = after
    return lines, last


def _skip(text: str, start: int) -> int:
    return _SOME_BLANKS.match(text, start).end()  # type: ignore[union-attr]  # it matches no blank, too


def _invalid(shown: str, count: int, fault: str) -> ValueError:
    return ValueError(f"{shown}: element {count + 1:,} of the JSON array: {fault}; correct the file, or write it again")

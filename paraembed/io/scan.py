"""Scan CSV and TSV for ends of records and faulty quotes, in loops over bytes compiled by numba."""

import numpy as np
import numpy.typing as npt

from paraembed.compiled import compiled, inlined
from paraembed.io.codes import (
    BARE,
    CARRIAGE_RETURN,
    CELL_START,
    COMMA,
    EMPTY_LINE,
    JOINED_SEPARATORS,
    LINE_FEED,
    NO_FAULT,
    OPEN_QUOTE,
    QUOTE_IN_QUOTED,
    QUOTED,
    SPACE,
    TEXT_AFTER_QUOTE,
    WIDTH,
)


@compiled
def scan(
    octets: npt.NDArray[np.uint8],
    separator: int,
    quote: int,
    escape: int,
    skips_blanks: bool,
    start: int,
    width: int,
    max_field_lines: int,
    max_bytes: int,
    repairs: bool,
    is_whole: bool,
    ends: npt.NDArray[np.int64],
    faults: npt.NDArray[np.uint8],
    cells: npt.NDArray[np.int32],
    breaks: npt.NDArray[np.int32],
) -> int:
    """Fill the last four arrays and return the number of records, reading from byte ``start``.

    A record that is still open at the end of ``octets`` is left for the next call, unless ``is_whole`` is set or the
    record is already longer than ``max_bytes``.

    The scanner reads some lines again after a fault, but a line of w cells at most about w times: a line that leaves a
    quote open, whether or not it began inside of one, has a separator, and a record ends at more than ``width`` cells.
    Without a width, only the header is read.
    """
    size, count = len(octets), 0
    while start < size and not (repairs and width == 0 and count):
        pos, stop, line_end, fault, num_cells, num_breaks, of_each = _walk(
            octets, separator, quote, escape, skips_blanks, start, width, max_field_lines, repairs, is_whole
        )
        if stop < 0 and not is_whole:
            is_too_long = repairs and line_end >= 0 and size - start > max_bytes + 2
            if not is_too_long and (line_end < 0 or fault == NO_FAULT):
                return count
        are_rows = of_each == num_cells - 1 and of_each * (num_breaks + 1) >= JOINED_SEPARATORS
        are_rows |= width == 0 and of_each > 0 and num_breaks > 1  # below the names of columns
        if (repairs and line_end >= 0) and (
            stop < 0 or fault != NO_FAULT or stop - start > max_bytes or (width > 0 and num_cells != width) or are_rows
        ):
            pos, fault, num_breaks = line_end, OPEN_QUOTE, 0
        elif fault == NO_FAULT and width > 1 and stop == start:
            fault = EMPTY_LINE
        elif fault == NO_FAULT and width > 0 and num_cells != width:
            fault = WIDTH
        ends[count], faults[count], cells[count], breaks[count] = pos, fault, num_cells, num_breaks
        count += 1
        start = pos
    return count


@inlined
def _walk(  # noqa: C901, PLR0912 - a machine of four states, in one loop
    octets: npt.NDArray[np.uint8],
    separator: int,
    quote: int,
    escape: int,
    skips_blanks: bool,
    start: int,
    width: int,
    max_field_lines: int,
    repairs: bool,
    is_whole: bool,
) -> tuple[int, int, int, int, int, int, int]:
    """Read a record, up to its first fault.

    Return the byte after the record; the byte after its text, or -1 if its end was not reached; the byte after its
    first line, or -1 if it has only one line; its fault; its number of cells; the number of line breaks inside of
    cells; the number of separators in each of its lines, including quoted ones, or -1 if the lines differ in it.
    """
    size, pos, line_end = len(octets), start, -1
    state, fault, num_cells, num_breaks, cell_lines = CELL_START, NO_FAULT, 1, 0, 1
    separators, of_each = 0, -1  # inside of quotes, too; of each line, if all have as many
    limit, blank = max(COMMA, separator, escape), -1 if separator == SPACE else SPACE
    while pos < size:
        octet = octets[pos]
        pos += 1
        if octet > limit and state != QUOTE_IN_QUOTED:  # no separator, quote or line end
            if state == CELL_START:
                state = BARE
            while pos < size and (octets[pos] > limit or octets[pos] == blank):
                pos += 1
        elif octet in (LINE_FEED, CARRIAGE_RETURN):
            stop = pos - 1
            if octet == CARRIAGE_RETURN and pos == size and not is_whole:
                break  # half of a CRLF perhaps
            if octet == CARRIAGE_RETURN and pos < size and octets[pos] == LINE_FEED:
                pos += 1
            of_each = separators if line_end < 0 else of_each if separators == of_each * (num_breaks + 1) else -1
            if state != QUOTED:
                return pos, stop, line_end, fault, num_cells, num_breaks, of_each
            num_breaks, cell_lines = num_breaks + 1, cell_lines + 1
            line_end = pos if line_end < 0 else line_end
            fault = OPEN_QUOTE if repairs and cell_lines > max_field_lines else fault
        elif state == QUOTED and octet == escape:
            if pos == size and not is_whole:
                break
            pos += pos < size and (octets[pos] == quote or octets[pos] == escape)
        elif state == QUOTED:
            state = QUOTE_IN_QUOTED if octet == quote else state
            separators += octet == separator
        elif fault != NO_FAULT:
            continue  # to the end of the line
        elif octet == separator:
            state, num_cells, separators = CELL_START, num_cells + 1, separators + 1
            fault = OPEN_QUOTE if repairs and line_end >= 0 and num_cells > width > 0 else fault
        elif skips_blanks and octet == SPACE and state == CELL_START:
            continue
        elif octet == quote and state != BARE:
            cell_lines = 1 if state == CELL_START else cell_lines
            state = QUOTED
        else:
            fault = TEXT_AFTER_QUOTE if state == QUOTE_IN_QUOTED else fault
            state = BARE
        if fault != NO_FAULT and line_end >= 0:
            return pos, -1, line_end, fault, num_cells, num_breaks, -1
    if is_whole and state == QUOTED:
        return size, -1 if line_end >= 0 else size, line_end, OPEN_QUOTE, num_cells, num_breaks, -1
    of_each = of_each if separators == of_each * (num_breaks + 1) else -1
    return size, size if is_whole else -1, line_end, fault, num_cells, num_breaks, of_each

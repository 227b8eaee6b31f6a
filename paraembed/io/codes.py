"""Numbers that the reader of tables and its compiled scan share; the reader needs numba only for large files."""

LINE_FEED, CARRIAGE_RETURN, QUOTE, COMMA, TAB, SPACE = b'\n\r",\t '
CELL_START, BARE, QUOTED, QUOTE_IN_QUOTED = range(4)
"""State of the scan within a cell."""
NO_FAULT, TEXT_AFTER_QUOTE, OPEN_QUOTE, EMPTY_LINE, WIDTH = range(5)
"""Why a record is rejected."""
JOINED_SEPARATORS = 12
"""Separators within one quoted cell that show that its quote was not closed: six lines of two, or twelve of one."""

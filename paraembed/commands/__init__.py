"""The command line: flags, one call, one message."""

"""Download the public original data of the four papers."""

"""Train an encoder on pairs, in plain torch without Ray."""

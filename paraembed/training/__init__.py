"""Train an encoder on pairs; plain torch."""

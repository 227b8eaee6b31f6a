"""How long the core takes: plain measurements on generated data, without Ray."""

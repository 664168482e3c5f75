// Nothing of our own: see Cargo.toml.

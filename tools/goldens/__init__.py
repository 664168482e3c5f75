"""Golden files for the C++ tests, computed by libraries that share no code with the engine."""

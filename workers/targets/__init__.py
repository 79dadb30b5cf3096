"""Where results are written. Each target says what it can do (`capabilities.py`) and stages, seals, adopts,
verifies and cleans by itself; handlers know a target only through that."""

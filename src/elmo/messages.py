"""MESSAGES TO THE USER: numbers with their unit."""


def counted(count: int, unit: str) -> str:
    """Return a number with its unit, in the plural unless it is 1: "1 sentence", "0 tokens", "1,200 words"."""
    return f"{count:,} {unit}" if count == 1 else f"{count:,} {unit}s"

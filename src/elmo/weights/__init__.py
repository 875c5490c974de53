"""FILES ◀─▶ MODEL: the published format, our own folder, and where models come from."""

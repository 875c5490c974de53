"""simple_elmo's speed, run by `embed_speed.py` in an environment that has it: MODEL-FOLDER SENTENCES.json ─▶ JSON."""

import json
import sys
import time
from pathlib import Path

from simple_elmo import ElmoModel

folder, text = sys.argv[1:]
sentences = json.loads(Path(text).read_text())
found = {}
for batch in (32, 1):
    start = time.perf_counter()
    model = ElmoModel()
    model.load(folder, max_batch_size=batch)
    found["load"] = time.perf_counter() - start
    some = sentences if batch > 1 else sentences[: len(sentences) // 6]
    model.get_elmo_vectors(some[:batch], warmup=False, layers="all")
    start = time.perf_counter()
    for k in range(0, len(some), batch):
        model.get_elmo_vectors(some[k : k + batch], warmup=False, layers="all")
    found[f"batch {batch}"] = sum(map(len, some)) / (time.perf_counter() - start)
print(json.dumps(found))

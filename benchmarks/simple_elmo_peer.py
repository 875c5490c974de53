"""Speed of simple_elmo: FOLDER SENTENCES.json BATCH ─▶ JSON. `embed_speed.py` runs it in its own environment."""

import json
import sys
import time
from pathlib import Path

from simple_elmo import ElmoModel

folder, text, batch = sys.argv[1], sys.argv[2], int(sys.argv[3])
sentences = json.loads(Path(text).read_text())
start = time.perf_counter()
model = ElmoModel()
model.load(folder, max_batch_size=batch)
loaded = time.perf_counter() - start
model.get_elmo_vectors(sentences[:batch], warmup=False, layers="all")
start = time.perf_counter()
model.get_elmo_vectors(sentences, warmup=False, layers="all")  # it cuts the batches itself
print(json.dumps({"load": loaded, "speed": sum(map(len, sentences)) / (time.perf_counter() - start)}))

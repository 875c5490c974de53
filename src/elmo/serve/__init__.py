"""HTTP: a model as a server, and the page that shows what it computes. `elmo serve`, or `elmo.serve.run.serve(…)`.

request ─▶ gate (key, size of the body) ─▶ app (checks it) ─▶ service (tokens) ─▶ worker (batches) ─▶ the library
"""

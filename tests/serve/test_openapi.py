"""schemathesis sends what the description allows, and what it forbids: every answer must be one it promises.

`python tests/serve/test_openapi.py N` sends N requests of either kind to every path.
"""

import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.config import SchemathesisConfig

from elmo.serve.app import create_app
from elmo.serve.limits import Limits
from serve.small_tasks import untrained
from serving import language_model

EXAMPLES = 12
MODES = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE]


@cache
def operations() -> dict[str, Any]:
    """The paths of a server, by their label."""
    # 422 also answers what a JSON schema cannot say: more tokens than allowed, a word that is not there.
    accepted, refused = ["2xx", "404", "422"], ["400", "404", "413", "422"]
    checks = {
        "positive_data_acceptance": {"expected-statuses": accepted},
        "negative_data_rejection": {"expected-statuses": refused},
    }
    config = SchemathesisConfig.from_dict({"checks": checks})
    app = create_app(language_model(), {"names": untrained()}, limits=Limits(tokens=2000))
    schema = schemathesis.openapi.from_asgi("/openapi.json", app, config=config)
    return {found.ok().label: found.ok() for found in schema.get_all_operations()}


def check(label: str, mode: GenerationMode, examples: int) -> int:
    """Send requests to a path and check every answer; return their number."""
    sent = 0

    @settings(
        max_examples=examples, deadline=None, derandomize=True, phases=[Phase.generate, Phase.shrink], database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operations()[label].as_strategy(generation_mode=mode))
    def send(case: Any) -> None:
        nonlocal sent
        sent += 1
        case.call_and_validate()

    run: Callable[[], None] = send
    run()
    return sent


PATHS = ["/embed", "/v1/embeddings", "/score", "/substitutes", "/uses", "/predict/{task}"]
LABELS = [f"POST {path}" for path in PATHS]


def test_every_path_is_there() -> None:
    assert {*LABELS, "GET /health", "GET /metrics"} == set(operations())


@pytest.mark.parametrize("label", [*LABELS, "GET /health", "GET /metrics"])
def test_every_answer_is_as_described(label: str) -> None:
    for mode in MODES if label.startswith("POST") else MODES[:1]:  # GET has no parameter that could be wrong
        assert check(label, mode, EXAMPLES) > 0


if __name__ == "__main__":
    for name in LABELS:
        print(name, *(f"{mode.value}: {check(name, mode, int(sys.argv[1]))} requests" for mode in MODES), flush=True)

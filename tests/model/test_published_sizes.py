"""The published models' sizes, which their authors printed, and their options."""

import pytest
import torch

from elmo.model.bilm import BiLM, BiLMConfig
from elmo.weights import bilm_tf
from reference_files import SHARED, needs_shared


@pytest.mark.parametrize(
    ("name", "parameters", "width"),
    [("small", 13_593_296, 256), ("medium", 28_027_728, 512), ("original", 93_600_848, 1024)],
)
def test_parameters_of_the_published_models(name: str, parameters: int, width: int) -> None:
    config = BiLMConfig.preset(name)
    with torch.device("meta"):
        bilm = BiLM(config)
    assert bilm.n_parameters() == parameters
    assert (config.n_layers, config.output_dim) == (3, width)


def test_the_default_is_the_paper_s_model() -> None:
    assert BiLMConfig() == BiLMConfig.preset("original")


def test_the_softmax_is_not_counted() -> None:
    with torch.device("meta"):
        bilm = BiLM(BiLMConfig(n_softmax=793_471))
    assert bilm.n_parameters() == 93_600_848
    assert sum(parameter.numel() for parameter in bilm.softmax.parameters()) == 793_471 * 512 + 793_471


@needs_shared
@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("small", "elmo_2x1024_128_2048cnn_1xhighway_options.json"),
        ("original", "elmo_2x4096_512_2048cnn_2xhighway_options.json"),
    ],
)
def test_published_options_are_the_presets(name: str, file: str) -> None:
    assert SHARED is not None
    assert bilm_tf.read_options(SHARED / "fixtures" / "published-options" / file) == BiLMConfig.preset(name)

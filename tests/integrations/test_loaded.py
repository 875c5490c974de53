"""A model is loaded once for each name and setting."""

from pathlib import Path

from elmo.integrations.loaded import loaded
from embedders import assert_close, fresh, write_model


def test_a_model_is_loaded_once_for_its_settings(tmp_path: Path) -> None:
    name = str(write_model(tmp_path / "model"))
    model = loaded(name, "cpu", "float32")
    assert loaded(name, "cpu", "float32") is model
    assert_close(next(model.embed([["The", "cat"]])), fresh(["The", "cat"]))
    assert loaded(name, "cpu", "bfloat16").precision == "bfloat16"

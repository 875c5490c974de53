"""`check_recipe`: the complete recipe, which reads back as the same."""

import tomllib
from pathlib import Path

import pytest

from elmo.errors import ConfigError
from elmo.recipes import check_recipe


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('task = "ner"\nhidden = 100\n[train]\npatience = "none"\n', "ner"),
        ('task = "sst"\n[inputs.elmo]\nmix = "last"\n', "sst"),
        ("analysis = 'pos'\nseeds = 5\n", "the analysis pos"),
        ("analysis = 'state'\n[[tasks]]\ntask = 'ner'\ndata = 'entities'\n", "the analysis state"),
        ("analysis = 'fine-tuning'\nseeds = 2\n", "the analysis fine-tuning"),
        ("steps = 7\n[optimizer]\nname = 'adam'\n", "pretraining"),
        ("negatives = 'none'\n[model]\nchar_cnn = 'none'\n", "pretraining"),
    ],
)
def test_a_shown_recipe_reads_back(text: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / "some.toml").write_text(text)
    found = check_recipe(tmp_path / "some.toml")
    assert found.kind == kind
    shown = found.to_toml()
    assert len(tomllib.loads(shown)) >= 5
    (tmp_path / "every.toml").write_text(shown)
    assert check_recipe(tmp_path / "every.toml") == found


def test_the_files_that_a_recipe_names_are_checked(tmp_path: Path) -> None:
    file = tmp_path / "ner.toml"
    file.write_text('task = "ner"\n[inputs]\nvectors = "none.txt"\n')
    with pytest.raises(ConfigError, match=r"ner\.toml: inputs\.vectors is 'none\.txt'; there is no such file$"):
        check_recipe(file)
    file.write_text('task = "ner"\n[inputs.elmo]\nmodel = "nowhere"\n')
    with pytest.raises(ConfigError, match=r"ner\.toml: inputs\.elmo\.model is 'nowhere'; there is no such file or"):
        check_recipe(file)

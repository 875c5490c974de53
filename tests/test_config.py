"""Configs from TOML and `--set`: every kind of field, later sources win, and every refusal names its field."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo.config import Bounds, CheckedConfig, PositiveInt, Probability, build, merged, parse_assignments, read_toml
from elmo.errors import ConfigError
from elmo.model.bilm import BiLMConfig
from elmo.pretrain.config import PretrainConfig


@dataclass(frozen=True)
class Inner:
    width: int
    name: str = "inner"


@dataclass(frozen=True)
class Outer:
    """One field of every kind that a recipe has."""

    count: int = 1
    share: float = 0.5
    flag: bool = False
    text: str = "a"
    maybe: int | None = 7
    rate: float | None = None
    choice: Literal["one", "two"] = "one"
    pair: tuple[float, float] = (0.9, 0.99)
    filters: tuple[tuple[int, int], ...] = ((1, 32),)
    inner: Inner = field(default_factory=lambda: Inner(3))
    other: Inner | None = None


def test_nothing_given_is_all_defaults() -> None:
    assert build(Outer, {}) == Outer()


@pytest.mark.parametrize(
    ("name", "given", "wanted"),
    [
        ("count", 5, 5),
        ("count", 5.0, 5),  # JSON and TOML write 1e4 as a float
        ("count", -3, -3),
        ("share", 0.25, 0.25),
        ("share", 2, 2.0),
        ("flag", True, True),
        ("text", "none", "none"),  # only where a field may be none does the word mean it
        ("text", "", ""),
        ("maybe", 3, 3),
        ("maybe", None, None),
        ("maybe", "none", None),
        ("rate", 1, 1.0),
        ("rate", "none", None),
        ("choice", "two", "two"),
        ("pair", [0, 1], (0.0, 1.0)),
        ("pair", (0.5, 0.75), (0.5, 0.75)),
        ("filters", [[1, 2], [3, 4.0]], ((1, 2), (3, 4))),
        ("filters", [], ()),
        ("inner", {"width": 9}, Inner(9)),
        ("inner", {"width": 9, "name": "x"}, Inner(9, "x")),
        ("other", {"width": 2}, Inner(2)),
        ("other", "none", None),
    ],
)
def test_a_value_becomes_what_its_field_wants(name: str, given: Any, wanted: Any) -> None:
    built = getattr(build(Outer, {name: given}), name)
    assert built == wanted
    assert type(built) is type(wanted)
    if isinstance(wanted, tuple) and wanted:
        assert [type(item) for item in built] == [type(item) for item in wanted]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"count": 1.5}, r"^count is 1\.5; expected an integer$"),
        ({"count": "5"}, r"^count is '5'; expected an integer$"),
        ({"count": True}, r"^count is True; expected an integer$"),
        ({"count": "none"}, r"^count is 'none'; expected an integer$"),
        ({"count": None}, r"^count is None; expected an integer$"),
        ({"count": [1]}, r"^count is \[1\]; expected an integer$"),
        ({"share": "much"}, r"^share is 'much'; expected a number$"),
        ({"share": False}, r"^share is False; expected a number$"),
        ({"flag": 1}, r"^flag is 1; expected true or false$"),
        ({"flag": "true"}, r"^flag is 'true'; expected true or false$"),
        ({"text": 3}, r"^text is 3; expected a string$"),
        ({"maybe": "nothing"}, r"^maybe is 'nothing'; expected an integer$"),
        ({"choice": "three"}, r"^choice is 'three'; expected one of one, two$"),
        ({"choice": None}, r"^choice is None; expected one of one, two$"),
        ({"pair": 3}, r"^pair is 3; expected a list$"),
        ({"pair": "ab"}, r"^pair is 'ab'; expected a list$"),
        ({"pair": [1]}, r"^pair is \[1\]; expected 2 values$"),
        ({"pair": [1, 2, 3]}, r"^pair is \[1, 2, 3\]; expected 2 values$"),
        ({"pair": [1, "x"]}, r"^pair\[1\] is 'x'; expected a number$"),
        ({"filters": [[1, 2], 3]}, r"^filters\[1\] is 3; expected a list$"),
        ({"filters": [[1, 2], [3]]}, r"^filters\[1\] is \[3\]; expected 2 values$"),
        ({"filters": [[1, 2], [3, 4.5]]}, r"^filters\[1\]\[1\] is 4\.5; expected an integer$"),
        ({"inner": 3}, r"^inner is 3; expected a table of its fields$"),
        ({"inner": {"width": "x"}}, r"^inner\.width is 'x'; expected an integer$"),
        ({"inner": {"name": "x"}}, r"^inner\.width is missing$"),
        ({"other": {}}, r"^other\.width is missing$"),
        ({"coutn": 1}, r"^unknown field 'coutn'; did you mean 'count'\?$"),
        ({"inner": {"widht": 1, "width": 2}}, r"^unknown field 'inner\.widht'; did you mean 'inner\.width'\?$"),
        ({"zzz": 1}, r"^unknown field 'zzz'; expected one of count, share, flag, text, maybe, rate, .*, inner, other$"),
        ({"inner.width": 1}, r"^unknown field 'inner\.width'; "),
    ],
)
def test_a_wrong_value_is_named_with_what_was_expected(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(Outer, values)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_is_none_is_no_whole_number(value: float) -> None:
    with pytest.raises(ConfigError, match=r"^count is (nan|inf); expected an integer$"):
        build(Outer, {"count": value})


@pytest.mark.parametrize("value", [[], {}, [1]])
def test_a_choice_is_refused_whatever_it_is(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"^choice is .*; expected one of one, two$"):
        build(Outer, {"choice": value})


PLAIN = st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | st.text() | st.none()
TABLES = st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)


@given(st.dictionaries(st.sampled_from(list(Outer.__dataclass_fields__)), TABLES))
@settings(deadline=None, max_examples=300)
def test_anything_is_built_or_refused_in_one_line(values: dict[str, Any]) -> None:
    try:
        built = build(Outer, values)
    except ConfigError as error:
        assert "expected" in str(error) or "unknown field" in str(error) or "is missing" in str(error)
    else:
        assert build(Outer, asdict(built)) == built


# Bounds, and several errors


@dataclass(frozen=True)
class Bounded(CheckedConfig):
    size: PositiveInt = 1
    dropout: Probability = 0.0
    decay: Annotated[float, Bounds(gt=0, le=1)] | None = None
    most: Annotated[int, Bounds(le=9)] = 0
    below: Annotated[int, Bounds(lt=9)] = 0
    pair: tuple[Probability, Probability] = (0.0, 0.0)


@dataclass(frozen=True)
class Holder:
    bounded: Bounded = field(default_factory=Bounded)
    flag: bool = False


@pytest.mark.parametrize(
    ("name", "inside", "outside", "expected"),
    [
        ("size", [1, 7], [0, -1], "1 or more"),
        ("dropout", [0.0, 0.999], [-0.001, 1.0, 1.5], r"a number in \[0, 1\)"),
        ("decay", [0.001, 1.0, None], [0.0, -1.0, 1.001], r"a number in \(0, 1\]"),
        ("most", [-5, 9], [10], "9 or less"),
        ("below", [-5, 8], [9, 10], "less than 9"),
    ],
)
def test_a_number_stays_within_the_bounds_of_its_field(
    name: str, inside: list[Any], outside: list[Any], expected: str
) -> None:
    for value in inside:
        assert getattr(build(Holder, {"bounded": {name: value}}).bounded, name) == value
        assert getattr(Bounded(**{name: value}), name) == value
    for value in outside:
        with pytest.raises(ConfigError, match=rf"^bounded\.{name} is {value}; expected {expected}$"):
            build(Holder, {"bounded": {name: value}})
        with pytest.raises(ConfigError, match=rf"^{name} is {value}; expected {expected}$"):
            Bounded(**{name: value})


def test_bounds_inside_a_list_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"^bounded\.pair\[1\] is 1\.0; expected a number in \[0, 1\)$"):
        build(Holder, {"bounded": {"pair": [0.9, 1]}})


def test_all_errors_are_reported_at_once() -> None:
    values = {"flag": 3, "flga": True, "bounded": {"size": 0, "dropout": 2, "pair": [-1, "x"], "siez": 1}}
    with pytest.raises(ConfigError) as refused:
        build(Holder, values)
    assert str(refused.value).split("\n") == [
        "7 errors in the config:",
        "  flag is 3; expected true or false",
        "  unknown field 'flga'; did you mean 'flag'?",
        "  bounded.size is 0; expected 1 or more",
        "  bounded.dropout is 2.0; expected a number in [0, 1)",
        "  bounded.pair[0] is -1.0; expected a number in [0, 1)",
        "  bounded.pair[1] is 'x'; expected a number",
        "  unknown field 'bounded.siez'; did you mean 'bounded.size'?",
    ]
    with pytest.raises(ConfigError, match=r"^2 errors in the config:\n  size is 0; .*\n  dropout is 1; expected"):
        Bounded(size=0, dropout=1)


def test_a_rule_about_several_fields_is_one_of_the_errors() -> None:
    with pytest.raises(ConfigError) as refused:
        PretrainConfig.load("tiny", None, ["batch.accumulate=3", "dropout=2", "model.lstm.dim=0"])
    assert [line.split(" is ")[0].strip() for line in str(refused.value).split("\n")] == [
        "3 errors in the config:", "lstm.dim", "batch.size", "dropout",
    ]  # fmt: skip


# Merging


def test_tables_are_merged_and_values_replaced() -> None:
    below = {"a": 1, "b": {"c": 2, "d": {"e": 3, "f": 4}}, "g": [1, 2]}
    over = {"b": {"d": {"f": 5}, "h": 6}, "g": [3]}
    assert merged(below, over) == {"a": 1, "b": {"c": 2, "d": {"e": 3, "f": 5}, "h": 6}, "g": [3]}


def test_merging_changes_neither_side() -> None:
    below, over = {"a": {"b": {"c": 1}}}, {"a": {"b": {"d": 2}}, "e": {"f": 3}}
    both = merged(below, over)
    both["a"]["b"]["c"] = both["e"]["f"] = 0
    assert below == {"a": {"b": {"c": 1}}}
    assert over == {"a": {"b": {"d": 2}}, "e": {"f": 3}}


def test_a_value_replaces_a_table_and_a_table_replaces_none() -> None:
    assert merged({"cnn": {"n": 1}}, {"cnn": "none"}) == {"cnn": "none"}
    assert merged({"cnn": None}, {"cnn": {"n": 1}}) == {"cnn": {"n": 1}}
    assert merged({"cnn": "none"}, {"cnn": {"n": 1}}) == {"cnn": {"n": 1}}
    assert merged({}, {"cnn": {}}) == {"cnn": {}}


def flat(values: dict[str, Any], prefix: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Every value by its path: a second way to say what merging means."""
    found: dict[tuple[str, ...], Any] = {}
    for name, value in values.items():
        found |= flat(value, (*prefix, name)) if isinstance(value, dict) else {(*prefix, name): value}
    return found


LEAVES = st.fixed_dictionaries({}, optional={name: st.integers() for name in "ab"})
SAME_SHAPE = st.fixed_dictionaries({}, optional={"a": st.integers(), "t": LEAVES, "u": LEAVES})


@given(SAME_SHAPE, SAME_SHAPE, SAME_SHAPE)
@settings(deadline=None, max_examples=100)
def test_three_sources_merge_path_by_path(one: dict[str, Any], two: dict[str, Any], three: dict[str, Any]) -> None:
    assert flat(merged(merged(one, two), three)) == flat(one) | flat(two) | flat(three)


# --set


@pytest.mark.parametrize(
    ("assignment", "wanted"),
    [
        ("seed=3", {"seed": 3}),
        ("optimizer.learning_rate=0.1", {"optimizer": {"learning_rate": 0.1}}),
        ("a.b.c=true", {"a": {"b": {"c": True}}}),
        ("steps=1_000", {"steps": 1000}),
        ("rate=1e-3", {"rate": 1e-3}),
        ("name=adam", {"name": "adam"}),  # no TOML: a text
        ('name="adam"', {"name": "adam"}),
        ("name=", {"name": ""}),
        ("name=a=b", {"name": "a=b"}),
        ("filters=[[1, 2], [3, 4]]", {"filters": [[1, 2], [3, 4]]}),
        ("cnn=none", {"cnn": "none"}),
        ("cnn={n = 1}", {"cnn": {"n": 1}}),
        ("device=cuda:1", {"device": "cuda:1"}),
    ],
)
def test_an_assignment_is_read_as_toml_or_is_a_text(assignment: str, wanted: dict[str, Any]) -> None:
    assert parse_assignments([assignment]) == wanted


def test_later_assignments_win_and_tables_grow() -> None:
    assert parse_assignments(["a.b=1", "a.c=2", "a.b=3", "d=4"]) == {"a": {"b": 3, "c": 2}, "d": 4}
    assert parse_assignments([]) == {}


@pytest.mark.parametrize("assignment", ["seed", "", "=3", ".rate=1", "optimizer.=1", "a..b=1", "."])
def test_an_assignment_without_a_name_or_a_value_is_refused(assignment: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_assignments([assignment])
    assert str(refused.value) == f"--set {assignment}: expected name=value, such as optimizer.learning_rate=0.1"


# Files


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    text = 'steps = 5\n[model.char_cnn]\nfilters = [[1, 2]]\n[optimizer]\nname = "adam"  # ü\n'
    path.write_text(text, encoding="utf-8")
    assert read_toml(path) == {
        "steps": 5,
        "model": {"char_cnn": {"filters": [[1, 2]]}},
        "optimizer": {"name": "adam"},
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"steps 5\n", r"recipe\.toml: not TOML \(Expected '=' .*line 1.*\)$"),
        (b"steps = 1\nsteps = 2\n", r"recipe\.toml: not TOML \(Cannot overwrite a value .*line 2.*\)$"),
        (b"caf\xe9 = 1\n", r"recipe\.toml: not TOML \(.*can't decode byte 0xe9.*\)$"),
    ],
)
def test_bad_toml_says_where(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "recipe.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=message) as refused:
        read_toml(path)
    assert str(refused.value).startswith(str(path))
    assert "\n" not in str(refused.value)


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    missing = tmp_path / "none.toml"
    with pytest.raises(ConfigError) as refused:
        read_toml(missing)
    assert str(refused.value) == f"{missing}: cannot be read (No such file or directory); expected a TOML file"
    with pytest.raises(ConfigError, match=r"cannot be read \(Is a directory\)"):
        read_toml(tmp_path)


# The recipe


def recipe(tmp_path: Path, text: str, *assignments: str, preset: str = "original") -> PretrainConfig:
    path = tmp_path / "recipe.toml"
    path.write_text(text, encoding="utf-8")
    return PretrainConfig.load(preset, path, assignments)


def test_the_command_line_wins_over_the_file_over_the_preset_over_defaults(tmp_path: Path) -> None:
    text = "[model.lstm]\ndim = 111\nn_layers = 1\n[optimizer]\nlearning_rate = 0.5\nname = 'adam'\n"
    config = recipe(tmp_path, text, "model.lstm.dim=222", "optimizer.learning_rate=0.7", preset="small")
    lstm = config.model.lstm
    assert (lstm.dim, lstm.n_layers, lstm.projection_dim, lstm.cell_clip) == (222, 1, 128, 3.0)
    assert (config.optimizer.learning_rate, config.optimizer.name, config.optimizer.clip_norm) == (0.7, "adam", 10.0)


def test_the_defaults_are_the_original_s() -> None:
    config = PretrainConfig.load("original")
    assert config == PretrainConfig()
    assert config.model.for_vocabulary(50) == BiLMConfig(n_softmax=50)
    assert (config.batch.size, config.batch.unroll, config.negatives, config.dropout) == (128, 20, 8192, 0.1)
    optimizer = config.optimizer
    assert (optimizer.name, optimizer.learning_rate, optimizer.initial_accumulator) == ("adagrad", 0.2, 1.0)
    assert (config.optimizer.clip_norm, config.optimizer.loss_times_unroll, config.epochs) == (10.0, True, 10.0)


def test_what_may_be_none_can_be_taken_away(tmp_path: Path) -> None:
    text = 'negatives = "none"\n[optimizer]\nclip_norm = "none"\n[model.lstm]\ncell_clip = "none"\nproj_clip = "none"\n'
    config = recipe(tmp_path, text)
    assert (config.negatives, config.optimizer.clip_norm) == (None, None)
    assert (config.model.lstm.cell_clip, config.model.lstm.proj_clip) == (None, None)


def test_filters_come_from_a_file_and_from_the_command_line(tmp_path: Path) -> None:
    text = "[model.char_cnn]\nfilters = [[1, 4], [2, 8]]\n"
    assert recipe(tmp_path, text).model.char_cnn.filters == ((1, 4), (2, 8))
    assert recipe(tmp_path, text, "model.char_cnn.filters=[[3, 5]]").model.char_cnn.filters == ((3, 5),)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("optimizer.nmae=adam", r"^unknown field 'optimizer\.nmae'; did you mean 'optimizer\.name'\?$"),
        ("model.lstm.projection_dm=3", r"did you mean 'model\.lstm\.projection_dim'\?$"),
        ("optimizer.name=sgd", r"^optimizer\.name is 'sgd'; expected one of adagrad, adam, adamw$"),
        ("optimizer.betas=[0.9]", r"^optimizer\.betas is \[0\.9\]; expected 2 values$"),
        ("model.char_cnn.filters=[[1]]", r"^model\.char_cnn\.filters\[0\] is \[1\]; expected 2 values$"),
        ("batch=3", r"^batch is 3; expected a table of its fields$"),
        ("batch.size=0", r"^batch\.size is 0; expected 1 or more$"),
        ("epochs=0", r"^epochs is 0\.0; expected more than 0$"),
        ("steps=-1", r"^steps is -1; expected 1 or more$"),
        ("negatives=0", r"^negatives is 0; expected 1 or more$"),
        ("optimizer.learning_rate=0", r"^optimizer\.learning_rate is 0\.0; expected more than 0$"),
        ("optimizer.clip_norm=-1", r"^optimizer\.clip_norm is -1\.0; expected more than 0$"),
        ("evaluation.patience=0", r"^evaluation\.patience is 0; expected 1 or more$"),
        ("evaluation.every=-1", r"^evaluation\.every is -1; expected 0 or more$"),
        ("seed=-1", r"^seed is -1; expected a number in \[0, 18446744073709551616\)$"),
        ("seed=18446744073709551616", r"^seed is 18446744073709551616; expected a number in \[0, 1844674407370955161"),
        (f"seed={'1' * 5000}", r"^seed is '1111.*1111'; expected an integer$"),  # Python reads no number of such a size
        ("dropout=1", r"^dropout is 1\.0; expected a number in \[0, 1\)$"),
        ("dropout=-0.1", r"^dropout is -0\.1; expected a number in \[0, 1\)$"),
        ("batch.accumulate=3", r"^batch\.size is 128; expected a multiple of batch\.accumulate, which is 3$"),
        ("optimizer.warmup_steps=-1", r"^optimizer\.warmup_steps is -1; expected 0 or more$"),
        ("model.lstm.dim=0", r"lstm\.dim is 0"),
    ],
)
def test_a_recipe_that_cannot_be_trained_is_refused(assignment: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PretrainConfig.load("original", None, [assignment])


@pytest.mark.parametrize("name", ["dropout", "optimizer.learning_rate", "epochs", "optimizer.clip_norm"])
def test_not_a_number_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{name} is nan; expected"):
        PretrainConfig.load("original", None, [f"{name}=nan"])


def test_negatives_are_drawn_only_where_they_are_less_than_half() -> None:
    """The sampled softmax scores the targets one by one besides: at half the words it saves nothing."""
    config = PretrainConfig(negatives=10)
    assert [config.sampled(n) for n in (10, 19, 20, 21, 1000)] == [None, None, None, 10, 10]
    assert PretrainConfig(negatives=None).sampled(1000) is None


@pytest.mark.parametrize(("assignments", "n_words"), [([], None), (["model.char_cnn=none"], 50)])
def test_the_vocabulary_gives_the_model_its_words(assignments: list[str], n_words: int | None) -> None:
    config = PretrainConfig.load("original", None, assignments)
    assert "n_words" not in config.values()["model"]
    model = config.model.for_vocabulary(50)
    assert (model.n_softmax, model.n_words) == (50, n_words)


def test_a_shared_softmax_needs_a_word_table() -> None:
    shared = "model.share_embedding_softmax=true"
    with pytest.raises(ConfigError, match=r"^model\.share_embedding_softmax needs a word table to share: set model"):
        PretrainConfig.load("tiny", None, [shared])
    model = PretrainConfig.load("tiny", None, [shared, "model.char_cnn=none"]).model.for_vocabulary(9)
    assert (model.share_embedding_softmax, model.n_words, model.n_softmax) == (True, 9, 9)


def test_a_record_without_a_model_is_one_line() -> None:
    with pytest.raises(ConfigError, match=r"^model is None; expected a table of its fields$"):
        PretrainConfig.load(None, started_with={"steps": 3})


def test_a_file_of_another_kind_gives_fifty_errors() -> None:
    with pytest.raises(ConfigError) as error:
        build(BiLMConfig, {f"field{k}": k for k in range(10**5)})
    assert str(error.value).startswith("50 errors in the config:\n  unknown field 'field0'")

"""Run files: strict, composed, saved and read back."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoommil.errors import ConfigError, UnknownNameError
from zoommil.models.creation import list_models
from zoommil.training.run import RunSpec, list_recipes, load_recipe, parse_override, toml_of


def test_every_model_has_a_recipe_and_every_recipe_is_valid() -> None:
    assert set(list_models()) <= set(list_recipes())
    assert {"zoommil_paper", "zoommil_robust", "zoommil_exact"} <= set(list_recipes())
    for name in list_recipes():
        run = RunSpec.from_recipe(name)
        assert run.recipe == name
        assert run.model.name in list_models()


def test_recipes_carry_the_published_settings() -> None:
    paper = RunSpec.from_recipe("zoommil_paper")
    assert (paper.optimiser.name, paper.optimiser.lr, paper.optimiser.weight_decay) == (
        "adam",
        1e-4,
        0.0,
    )
    assert (paper.schedule.name, paper.schedule.factor, paper.schedule.patience) == (
        "plateau",
        0.8,
        5,
    )
    assert (paper.training.epochs, paper.training.batch_bags, paper.stopping.patience) == (
        100,
        1,
        0,
    )
    transmil = RunSpec.from_recipe("transmil")
    assert transmil.optimiser.name == "lookahead_radam"
    assert (transmil.optimiser.lr, transmil.optimiser.weight_decay) == (2e-4, 1e-5)
    assert not transmil.optimiser.decay_vectors
    assert (transmil.training.batch_bags, transmil.stopping.patience) == (2, 10)
    clam = RunSpec.from_recipe("clam_sb")
    assert (clam.stopping.patience, clam.stopping.min_epochs, clam.training.epochs) == (20, 50, 100)
    assert clam.stopping.ties_improve
    sparse = RunSpec.from_recipe("sparseconvmil")
    assert (sparse.training.batch_bags, sparse.optimiser.lr, sparse.optimiser.weight_decay) == (
        8,
        1e-3,
        1e-4,
    )


@pytest.mark.parametrize(
    ("table", "unknown", "meant"),
    [
        ({"training": {"epoch": 3}}, "training.epoch", "training.epochs"),
        ({"trainning": {"epochs": 3}}, "trainning", "training"),
        ({"epochs": 3}, "epochs", "training.epochs"),
        ({"optimiser": {"learning_rate": 1.0, "lr": 1.0}}, "optimiser.learning_rate", None),
        ({"model": {"embed_dims": 3}}, "model.embed_dims", "model.embed_dim"),
        ({"data": {"clases": ["a"]}}, "data.clases", "data.classes"),
        ({"sed": 1}, "sed", "seed"),
    ],
)
def test_h22_unknown_key_is_an_error_with_the_nearest_known_one(table, unknown, meant) -> None:
    with pytest.raises(ConfigError, match=f"unknown key '{unknown}'") as error:
        RunSpec.compose(table)
    if meant:
        assert f"Did you mean '{meant}'?" in str(error.value)
    assert "\n" not in str(error.value)


def test_h22_typo_in_a_file_or_an_override_is_an_error_too(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("[training]\nepoch = 3\n")
    with pytest.raises(ConfigError, match=r"training\.epochs"):
        RunSpec.load(path)
    path.write_text("[training]\nepochs = 3\n")
    with pytest.raises(ConfigError, match=r"optimiser\.lr"):
        RunSpec.load(path, ["optimiser.lrr=0.1"])


def test_value_that_cannot_be_is_named_in_one_line() -> None:
    with pytest.raises(ConfigError, match=r"training\.epochs = -1 cannot be"):
        RunSpec.compose({"training": {"epochs": -1}})
    with pytest.raises(ConfigError, match=r"training\.select = 'f1' cannot be.*weighted_f1"):
        RunSpec.compose({"training": {"select": "f1"}})
    with pytest.raises(UnknownNameError, match="'zoommil_paper'"):
        RunSpec.from_recipe("zoomil_paper")
    with pytest.raises(ConfigError, match="not TOML"):
        raise_on_load("a = = 1")


def raise_on_load(text: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.toml"
        path.write_text(text)
        RunSpec.load(path)


def test_later_wins_recipe_then_file_then_override() -> None:
    assert RunSpec.from_recipe("transmil").training.epochs == 200
    table = {"recipe": "transmil", "training": {"epochs": 30}}
    assert RunSpec.compose(table).training.epochs == 30
    run = RunSpec.compose(table, overrides=["training.epochs=7", "seed=3"])
    assert (run.training.epochs, run.seed, run.training.batch_bags) == (7, 3, 2)


def test_model_names_its_recipe_and_contradictions_are_refused() -> None:
    assert RunSpec.compose({"model": {"name": "transmil"}}).optimiser.name == "lookahead_radam"
    with pytest.raises(ConfigError, match="recipe 'abmil' trains 'abmil'"):
        RunSpec.compose({"recipe": "abmil", "model": {"name": "transmil"}})


def test_resolved_run_is_read_back_equal(tmp_path: Path) -> None:
    for name in list_recipes():
        run = RunSpec.from_recipe(
            name, {"data": {"classes": ['a "b"', "c\\d", "é"]}, "optimiser": {"eps": 1e-12}}
        )
        run.save(tmp_path / "run.toml")
        assert RunSpec.load(tmp_path / "run.toml") == run


def test_zoom_arguments_survive_the_file(tmp_path: Path) -> None:
    run = RunSpec.compose({"model": {"name": "zoommil", "k": [12, 8], "sigma": 0.3}})
    run.save(tmp_path / "run.toml")
    assert RunSpec.load(tmp_path / "run.toml").model.arguments["k"] == [12, 8]


plain = st.recursive(
    st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=8),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)
keys = st.text("abc_-. é", min_size=1, max_size=5)


@given(st.dictionaries(keys, plain | st.dictionaries(keys, plain, max_size=3), max_size=4))
def test_toml_is_what_tomllib_reads(table: dict) -> None:
    assert tomllib.loads(toml_of(table)) == table


def test_overrides_speak_toml_or_plain_text() -> None:
    assert parse_override("a.b.c=1") == {"a": {"b": {"c": 1}}}
    assert parse_override("a=[1, 2]") == {"a": [1, 2]}
    assert parse_override("a = some words") == {"a": "some words"}
    assert parse_override('a="x=y"') == {"a": "x=y"}
    with pytest.raises(ConfigError, match="not key=value"):
        parse_override("training.epochs")


def test_paths_in_a_file_are_relative_to_it(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('[data]\ncohort = "c.csv"\nbags = "/somewhere"\n')
    run = RunSpec.load(tmp_path / "run.toml")
    assert run.data.cohort == str(tmp_path / "c.csv")
    assert run.data.bags == "/somewhere"


def test_saved_paths_are_relative_to_the_file_and_lead_to_the_same_place(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = RunSpec.compose({"data": {"cohort": "c.csv", "bags": "bags"}, "out": "runs/x"})
    run.save("runs/x/artefact/run.toml")
    assert str(tmp_path) not in Path("runs/x/artefact/run.toml").read_text()
    assert RunSpec.load("runs/x/artefact/run.toml") == run
    monkeypatch.chdir("runs")
    assert RunSpec.load("x/artefact/run.toml").data.cohort == "../c.csv"


def test_names_and_places_do_not_determine_a_run() -> None:
    run = RunSpec.from_recipe("abmil")
    assert run.changed(name="x", out="y", data={"bags": "z"}).determining() == run.determining()
    assert run.changed(seed=1).determining() != run.determining()
    assert run.changed(training={"epochs": 1}).determining() != run.determining()


def test_recipes_are_package_data() -> None:
    assert load_recipe("abmil")["model"]["name"] == "abmil"

"""From pixels or from stored features: the same answer, and nothing read that was not chosen."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small_cases import GRID, SMALL, bag_of

from zoommil.encoders.encoder import Encoder
from zoommil.errors import ArtefactError, PredictionError, TissueError
from zoommil.extraction import extract
from zoommil.grid import GridSpec, PatchPyramid
from zoommil.inference.limits import Limits
from zoommil.inference.predictor import Predictor
from zoommil.slides.opening import open_slide
from zoommil.tissue import find_tissue

FILTER_MARGIN = 2.0  # output pixels that resampling may reach beyond a box
SINGLE = ("abmil", "clam_sb", "clam_mb", "transmil", "sparseconvmil", "maxmil", "meanmil")
ZOOMS = {
    "default": {},
    "paper": {"preset": "paper"},
    "robust": {"preset": "robust"},
    "exact": {"preset": "exact"},
    "single attention": {"attention": "single"},
    "random_low": {"selection": "random_low"},
    "random_high": {"selection": "random_high"},
    "shared, concat": {"projection": "shared", "aggregation": "concat"},
    "adaptive": {"adaptive_mass": 0.2},
    "all": {"k": 10_000},
}


def assert_same_answer(answer, stored, output) -> None:
    """Pixels, stored bag and the model's own forward pass agree, and saw the same patches."""
    np.testing.assert_allclose(answer.logits, stored.logits, atol=1e-5, rtol=0)
    np.testing.assert_allclose(answer.logits, output.logits.numpy(), atol=1e-5, rtol=0)
    assert [one.step for one in answer.steps] == list(output.steps)
    for one, other, rows in zip(answer.steps, stored.steps, output.rows, strict=True):
        np.testing.assert_array_equal(one.rows, rows.numpy())
        np.testing.assert_array_equal(one.rows, other.rows)
        np.testing.assert_array_equal(one.boxes, other.boxes)
        np.testing.assert_allclose(one.attention, other.attention, atol=1e-6)
    chosen = [one.selected for one in answer.steps if one.selected is not None]
    for one, other in zip(chosen, output.selected, strict=True):
        np.testing.assert_array_equal(one, other.numpy())


def check_lazy_equals_full(artefact, encoder, slides, bags) -> None:
    predictor = Predictor(artefact, encoders=encoder, device="cpu")
    model = artefact.build_model()
    for path, bag in zip(slides, bags, strict=True):
        with torch.inference_mode():
            output = model(bag.features, bag.coords, bag.valid)
        answer = predictor.predict(path)
        assert_same_answer(answer, predictor.predict_bag(bag), output)
        assert answer.cost.patches == sum(len(rows) for rows in output.rows)


@pytest.mark.parametrize("settings", ZOOMS.values(), ids=ZOOMS)
def test_check_12_zooming_from_pixels_is_zooming_in_the_bag(
    settings, make_artefact, encoder, slides, bags
):
    num_slides = 1 if settings.get("k") else 3  # with a large k everything is encoded
    artefact = make_artefact("zoommil", **settings)
    check_lazy_equals_full(artefact, encoder, slides[:num_slides], bags[:num_slides])


@pytest.mark.parametrize("name", SINGLE)
def test_lazy_equals_full_for_models_of_one_magnification(
    name, make_artefact, encoder, slides, bags
):
    at = 1  # of the middle step: the others must not be read
    artefact = make_artefact(name, at=at)
    check_lazy_equals_full(artefact, encoder, slides[:1], bags[:1])
    answer = Predictor(artefact, encoders=encoder, device="cpu").predict(slides[0])
    assert [one.step for one in answer.steps] == [at]
    assert answer.cost.patches == len(bags[0].features[at])
    assert answer.exhaustive_cost.patches == len(bags[0].features[2])


def test_check_12_with_flagged_children_and_float32_storage(make_artefact, encoder, slides):
    grid = GRID.model_copy(update={"child_tissue": 0.5})
    with open_slide(slides[0]) as slide:
        pyramid = PatchPyramid.build(slide, find_tissue(slide), grid)
        bag = extract(slide, pyramid, encoder, dtype="float32")
    assert bag.valid is not None
    assert not all(valid.all() for valid in bag.valid)
    artefact = make_artefact("zoommil", bag=bag)
    predictor = Predictor(artefact, encoders=encoder, device="cpu")
    with torch.inference_mode():
        output = artefact.build_model()(bag.features, bag.coords, bag.valid)
    answer = predictor.predict(slides[0])
    assert_same_answer(answer, predictor.predict_bag(bag), output)
    assert answer.cost.patches == sum(
        int(valid[rows].sum()) for valid, rows in zip(bag.valid, output.rows, strict=True)
    )


def test_an_encoder_per_step(make_artefact, encoder, slides):
    from zoommil.encoders.loading import load_encoder

    other = load_encoder(
        "resnet18", weights="random:7", precision="fp32", runtime="torch", device="cpu"
    )
    encoders = (other, encoder, encoder)
    with open_slide(slides[0]) as slide:
        pyramid = PatchPyramid.build(slide, find_tissue(slide), GRID)
        bag = extract(slide, pyramid, encoders)
    artefact = make_artefact("zoommil", bag=bag)
    given = Predictor(artefact, encoders=encoders, device="cpu")
    loaded = Predictor.load(artefact.folder, "cpu", weights=["random:7", "random:0", "random:0"])
    answer = given.predict(slides[0])
    assert answer.to_json() == loaded.predict(slides[0]).to_json()
    assert answer.logits == given.predict_bag(bag).logits
    with pytest.raises(ArtefactError, match=r"weights_hash .* Pass the weights"):
        _ = Predictor(artefact, encoders=encoder, device="cpu").encoders


class Spy:
    """Remembers which boxes of a slide were read, and at which resolution."""

    def __init__(self, slide) -> None:
        self.reads: list[tuple[float, np.ndarray]] = []
        self._read = slide.read
        slide.read = self.read

    def read(self, x, y, width, height, mpp):
        self.reads.append((mpp, np.array([x, y, width, height], float)))
        return self._read(x, y, width, height, mpp)


def test_check_12_only_children_of_the_selected_are_read(predictor, slides, monkeypatch):
    """At higher steps nothing outside selected parents, and P_zoom patches are encoded."""
    encoded: list[int] = []
    encoder = predictor.encoders[0]
    encode = encoder.encode
    monkeypatch.setattr(encoder, "encode", lambda rows: encoded.append(len(rows)) or encode(rows))
    for path in slides:
        encoded.clear()
        with open_slide(path) as slide:
            spy = Spy(slide)
            answer = predictor.predict(slide)
            pyramid = PatchPyramid.build(slide, find_tissue(slide), GRID)
        first, *later = answer.steps
        expected = len(pyramid.steps[0])
        for before, ratio in zip(answer.steps, pyramid.ratios, strict=False):
            expected += min(3, len(before.rows)) * ratio**2  # min(K_m, n_m) * r_m
        assert sum(encoded) == expected == answer.cost.patches
        assert len(first.rows) == len(pyramid.steps[0])
        for before, step in zip(answer.steps, later, strict=False):
            place = pyramid.steps[step.step]
            parents = pyramid.steps[before.step].boxes[before.selected]
            margin = FILTER_MARGIN * place.downsample
            reads = [box for mpp, box in spy.reads if mpp == place.mpp]
            assert len(reads) == len(step.rows)
            for x, y, width, height in reads:
                right, bottom = x + width * place.downsample, y + height * place.downsample
                inside = (
                    (parents[:, 0] - margin <= x)
                    & (parents[:, 1] - margin <= y)
                    & (parents[:, 0] + parents[:, 2] + margin >= right)
                    & (parents[:, 1] + parents[:, 3] + margin >= bottom)
                )
                assert inside.any()


def test_check_12_the_slide_counts_no_more_pixels_than_the_patches_need(predictor, slides):
    """The slide's own counter: what higher steps took is their patches plus the filter margin."""
    for path in slides:
        with open_slide(path) as slide:
            answer = predictor.predict(slide)
            plans = [slide.plan_of(step.mpp) for step in answer.steps]
        for step, cost, plan in zip(
            answer.steps[1:], answer.cost.steps[1:], plans[1:], strict=True
        ):
            side = 32 * plan.downsample / plan.level_downsample + 2 * FILTER_MARGIN + 2
            most = len(step.rows) * side**2 * 4 ** (plan.decoded_pixels > 4)
            assert 0 < cost.pixels_read <= most * (4 if plan.is_virtual else 1)


def test_mask_and_first_step_share_one_read(predictor, slides):
    with open_slide(slides[0]) as slide:
        spy = Spy(slide)
        answer = predictor.predict(slide)
        mpp = answer.steps[0].mpp
        _, _, width, height = slide.bounds
        own = [box for at, box in spy.reads if at == mpp and box[2] == box[3] == 32]
        whole = (width // 256) * (height // 256)
    assert mpp == 8.0
    assert len(own) <= len(answer.steps[0].rows)
    sticking_out = answer.steps[0].boxes[:, :2] + 256 > np.array([width, height])
    assert len(own) == int(sticking_out.any(axis=1).sum()) < whole


def test_a_given_mask_decides_where_to_look(predictor, slides, tmp_path):
    from PIL import Image

    path = tmp_path / "mask.png"
    picture = np.zeros((125, 128), np.uint8)
    picture[:, :64] = 255
    Image.fromarray(picture).save(path)
    answer = predictor.predict(slides[0], mask=path)
    assert (answer.steps[0].boxes[:, 0] < 512).all()
    assert "mask_sha256" in answer.provenance["tissue"]
    assert answer.key != predictor.predict(slides[0]).key


def test_stream_gives_every_prefix_and_ends_with_the_answer(predictor, slides):
    partial = list(predictor.stream(slides[0]))
    whole = predictor.predict(slides[0])
    assert [len(one.steps) for one in partial] == [1, 2, 3]
    assert [one.is_final for one in partial] == [False, False, True]
    assert partial[-1].to_json() == whole.to_json()
    for one in partial:
        assert one.logits == whole.steps[len(one.steps) - 1].logits


def test_check_24_early_exit(make_artefact, encoder, slides, bags):
    """tau = 1 is the full model, cost does not rise with lower tau, prefixes are the model's."""
    artefact = make_artefact("zoommil", step_loss=0.3)
    predictor = Predictor(artefact, encoders=encoder, device="cpu")
    for path, bag in zip(slides, bags, strict=True):
        full = predictor.predict(path)
        never = predictor.predict(path, limits=Limits(exit_confidence=1.0))
        assert never.logits == full.logits
        assert never.cost == full.cost
        assert full.steps[-1].logits == full.logits
        costs = []
        for tau in (1.0, 0.9, 0.7, 0.6, 0.5, 0.4, 0.34):
            answer = predictor.predict_bag(bag, limits=Limits(exit_confidence=tau))
            costs.append(answer.cost.patches)
            for one, other in zip(answer.steps, full.steps, strict=False):
                assert one.logits == other.logits
            if answer.bound.by == "exit_confidence":
                assert max(answer.probabilities.values()) >= tau
                assert answer.steps[-1].selected is None
        assert costs == sorted(costs, reverse=True)
        assert costs[-1] < costs[0]


def test_early_exit_needs_a_model_trained_for_it(make_artefact, encoder, bags):
    predictor = Predictor(make_artefact("zoommil"), encoders=encoder, device="cpu")
    with pytest.raises(PredictionError, match=r"Train with model\.step_loss above 0"):
        predictor.predict_bag(bags[0], limits=Limits(exit_confidence=0.9))


def test_a_limit_of_zooming_on_a_model_that_does_not_zoom(make_artefact, encoder, bags):
    predictor = Predictor(make_artefact("abmil"), encoders=encoder, device="cpu")
    with pytest.raises(PredictionError, match="one magnification only"):
        predictor.predict_bag(bags[0], limits=Limits(k=(3,)))


def test_plain_bags_can_be_predicted_but_slides_cannot(make_artefact, bags, slides):
    from zoommil.bags.bag import Bag

    plain = Bag(features=bags[0].features, slide_id="plain")
    artefact = make_artefact("zoommil", bag=plain)
    predictor = Predictor(artefact, device="cpu")
    assert predictor.predict_bag(plain).steps[0].boxes is None
    with pytest.raises(ArtefactError, match="cannot look at slides"):
        predictor.predict(slides[0])


def test_a_white_slide_is_refused_by_name(predictor):
    white = np.full((2048, 2048, 3), 255, np.uint8)
    with pytest.raises(TissueError, match="no tissue that could be found"):
        predictor.predict(white, mpp=1.0)


class Remembering(Encoder):
    """An encoder that computes a patch once: the same pixels, the same row."""

    def __init__(self, encoder: Encoder):
        self.__dict__.update(encoder.__dict__)
        self.rows: dict[bytes, np.ndarray] = {}

    def encode(self, patches):
        keys = [patch.tobytes() for patch in patches]
        new = [index for index, key in enumerate(keys) if key not in self.rows]
        if new:
            found = super().encode(patches[new])
            self.rows |= {keys[index]: row for index, row in zip(new, found, strict=True)}
        return np.stack([self.rows[key] for key in keys])


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_lazy_equals_full_on_20_slides_and_every_recipe(tmp_path, make_artefact, encoder):
    from zoommil.synthetic.slide import SlideSpec, write_slide
    from zoommil.training.run import list_recipes, load_recipe

    paths = [tmp_path / f"t{number}.svs" for number in range(20)]
    for number, path in enumerate(paths):
        magnification = (10.0, 12.5, 20.0)[number % 3]
        size = round(64 * magnification)
        spec = SlideSpec(size_px=(size, size + 64), magnification=magnification, tissue=0.5)
        write_slide(path, spec, seed=number)
    grid = GridSpec(magnifications=(1.25, 2.5, 5), patch_px=32)
    encoder = Remembering(encoder)
    bags = [bag_of(path, encoder, grid) for path in paths]
    for recipe in list_recipes():
        settings = dict(load_recipe(recipe)["model"])
        name = settings.pop("name")
        if name == "zoommil":
            settings = {**settings, **SMALL, "k": 3}
        artefact = make_artefact(name, bag=bags[0], **settings)
        check_lazy_equals_full(artefact, encoder, paths, bags)

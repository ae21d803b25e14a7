"""The perturbation engine against one plain call of the model per perturbed input."""

import sys
import time
from typing import Any

import pytest
import torch
import transformers
from helpers import tiny_models, tiny_tokenizers
from helpers.linear_models import linear_image, linear_text
from helpers.pictures import picture
from helpers.terminal import terminal
from helpers.tiny_models import answering_bert, bert, llama, vit
from helpers.tiny_tokenizers import PLOT_WORDS

import clearhead
from clearhead.engine.batching import in_batches
from clearhead.errors import BadInput, BadOption, UnsupportedModel
from clearhead.model.inputs import as_inputs
from clearhead.model.model import Model
from clearhead.model.target import Target
from clearhead.perturbation import run
from clearhead.perturbation.features import grid_labels, group_features
from clearhead.perturbation.replacement import TEXT_REPLACEMENTS, blur
from clearhead.perturbation.run import perturbed_logits, perturbed_scores
from clearhead.perturbation.scores import score_targets
from clearhead.progress import progress

TEXTS = ["a fine film", ("is it good", "it is really bad . a film with no plot"), "really good or bad film"]


def random_masks(model: Model, inputs: Any, count: int = 6, **options: Any) -> list[torch.Tensor]:
    drawn = torch.Generator().manual_seed(3)
    features_of_inputs = group_features(model, as_inputs(model, inputs), **options)
    return [torch.rand(count, features.count, generator=drawn) < 0.6 for features in features_of_inputs]


def one_by_one(model: Model, text: Any, mask: torch.Tensor, replacement: str) -> torch.Tensor:
    """The slow definition: tokens of one text changed in a loop, and one call of the network."""
    row = as_inputs(model, text)
    ids, attention = row.tensors["input_ids"][0].tolist(), row.tensors["attention_mask"][0].tolist()
    kinds = row.tensors["token_type_ids"][0].tolist()
    plain = [position for position, special in enumerate(row.items[0].special) if not special]
    hidden = [position for position, present in zip(plain, mask.tolist(), strict=True) if not present]
    for position in hidden:
        if replacement in ("mask", "mask-attention"):
            ids[position] = PLOT_WORDS.index("[MASK]")
        if replacement == "pad":
            ids[position] = PLOT_WORDS.index("[PAD]")
        if replacement in ("attention", "mask-attention"):
            attention[position] = 0
    kept = [position for position in range(len(ids)) if replacement != "delete" or position not in hidden]
    named = {"input_ids": ids, "attention_mask": attention, "token_type_ids": kinds}
    tensors = {name: torch.tensor([[values[position] for position in kept]]) for name, values in named.items()}
    with torch.no_grad():
        return model.network(**tensors).logits[0]


@pytest.mark.parametrize("replacement", TEXT_REPLACEMENTS)
def test_packed_texts_give_what_each_gives_alone(replacement: str) -> None:
    model = bert()
    masks = random_masks(model, TEXTS)
    packed = perturbed_logits(model, TEXTS, masks, replacement=replacement)
    for text, mask, logits in zip(TEXTS, masks, packed, strict=True):
        alone = torch.stack([one_by_one(model, text, row, replacement) for row in mask])
        torch.testing.assert_close(logits, alone, rtol=0, atol=1e-12)


def test_a_black_patch_is_black_before_normalisation() -> None:
    model, image = vit(), picture()
    mask = torch.ones(1, 9, dtype=torch.bool)
    mask[0, 4] = False
    image_with_hole = image.copy()
    image_with_hole.paste((0, 0, 0), (8, 8, 16, 16))
    with torch.no_grad():
        expected = model.network(**as_inputs(model, image_with_hole).tensors).logits
    torch.testing.assert_close(
        perturbed_logits(model, image, [mask], replacement="zero")[0], expected, rtol=0, atol=1e-12
    )


def test_mean_and_blur_keep_what_is_present() -> None:
    model = linear_image()
    pixels = torch.rand(2, 3, 12, 12, dtype=torch.float64)
    masks = [torch.eye(9, dtype=torch.bool)] * 2
    cells = grid_labels(12, 12, (3, 3))
    for replacement in ("mean", "blur"):
        logits = perturbed_logits(model, {"pixel_values": pixels}, masks, replacement=replacement)
        for index in range(2):
            own = pixels[index : index + 1]
            background = own.mean((2, 3), keepdim=True) if replacement == "mean" else blur(own)
            for cell in range(9):
                shown = torch.where(cells == cell + 1, own, background)
                torch.testing.assert_close(logits[index][cell], model.network(shown)[0].detach())


def test_blur_keeps_a_flat_picture_and_spreads_a_dot() -> None:
    flat = torch.full((1, 3, 32, 32), 0.7, dtype=torch.float64)
    torch.testing.assert_close(blur(flat), flat)
    dot = torch.zeros(1, 1, 33, 33, dtype=torch.float64)
    dot[0, 0, 16, 16] = 1
    soft = blur(dot)[0, 0]
    sigma = 33 / 16
    assert float(soft.sum()) == pytest.approx(1)
    assert float(soft[16, 18] / soft[16, 16]) == pytest.approx(torch.exp(torch.tensor(-4 / (2 * sigma**2))).item())


def test_nothing_hidden_is_the_plain_model_and_special_tokens_stay() -> None:
    model = bert()
    batch = as_inputs(model, TEXTS)
    masks = [torch.ones(1, features.count, dtype=torch.bool) for features in group_features(model, batch)]
    with torch.no_grad():
        expected = model.network(**batch.tensors).logits
    torch.testing.assert_close(torch.cat(perturbed_logits(model, batch, masks)), expected, rtol=0, atol=1e-12)
    labels = group_features(model, batch)[1].labels
    special = torch.tensor(batch.items[1].special)
    assert (labels[: len(special)] == 0).tolist() == special.tolist()
    assert (group_features(model, batch)[0].labels[5:] == 0).all()


def test_equal_inputs_are_computed_once_across_examples() -> None:
    model = linear_text()
    masks = [torch.tensor([[True, True, False]] * 4 + [[False] * 3]), torch.tensor([[False] * 3] * 2)]
    outputs = perturbed_logits(model, ["a fine film", "no good plot"], masks)
    rows = sum(shape[0] for shape in model.network.calls)
    assert rows == 2
    assert [len(logits) for logits in outputs] == [5, 2]
    torch.testing.assert_close(outputs[0][4], outputs[1][0])


def test_equal_pictures_are_computed_once() -> None:
    model = linear_image()
    pixels = torch.rand(1, 3, 12, 12, dtype=torch.float64)
    mask = torch.tensor([[True] * 9, [False] * 9])
    perturbed_logits(model, {"pixel_values": pixels.repeat(3, 1, 1, 1)}, [mask] * 3)
    assert sum(shape[0] for shape in model.network.calls) == 2


def test_batches_are_full_and_sorted_by_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_batch_tokens", lambda device: 60)
    model = linear_text()
    texts = ["a fine film with no plot", "film", "is it good", "a bad film"] * 4
    masks = random_masks(model, texts, 8)
    outputs = perturbed_logits(model, texts, masks, replacement="delete")
    widths = [shape[1] for shape in model.network.calls]
    assert widths == sorted(widths, reverse=True)
    assert all(rows * width <= 60 for rows, width in model.network.calls)
    assert all(60 // width == rows for rows, width in model.network.calls[:-1])
    monkeypatch.setattr(run, "_batch_tokens", lambda device: 2048)
    for logits, expected in zip(outputs, perturbed_logits(model, texts, masks, replacement="delete"), strict=True):
        torch.testing.assert_close(logits, expected)


@pytest.mark.parametrize("size", [1, 3, 100])
def test_any_batch_size_gives_the_same(size: int) -> None:
    model = bert()
    masks = random_masks(model, TEXTS)
    for logits, expected in zip(
        perturbed_logits(model, TEXTS, masks, batch_size=size), perturbed_logits(model, TEXTS, masks), strict=True
    ):
        torch.testing.assert_close(logits, expected, rtol=0, atol=1e-12)


class Crowded(torch.nn.Module):
    """A network that runs out of memory above a number of rows."""

    def __init__(self, network: Any, most: int) -> None:
        super().__init__()
        self.network, self.config, self.most, self.sizes = network, network.config, most, []

    def forward(self, **tensors: torch.Tensor) -> Any:
        self.sizes.append(len(tensors["input_ids"]))
        if self.sizes[-1] > self.most:
            raise torch.OutOfMemoryError("no memory left")
        return self.network(**tensors)


def test_batches_are_halved_until_they_fit() -> None:
    plain = bert()
    crowded = Model(Crowded(plain.network, 3), plain.processor)
    masks = random_masks(plain, TEXTS)
    for logits, expected in zip(
        perturbed_logits(crowded, TEXTS, masks), perturbed_logits(plain, TEXTS, masks), strict=True
    ):
        torch.testing.assert_close(logits, expected, rtol=0, atol=1e-12)
    assert max(crowded.network.sizes) > 3
    with pytest.raises(BadOption, match="8 rows"):
        perturbed_logits(crowded, TEXTS, masks, batch_size=8)
    with pytest.raises(BadOption, match="single input"):
        perturbed_logits(Model(Crowded(plain.network, 0), plain.processor), TEXTS, masks)


def test_interrupting_leaves_the_model_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    model = bert()
    model.network.train()
    forward, calls = model.network.forward, []

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        assert torch.is_inference_mode_enabled() and not model.network.training
        return forward(*args, **kwargs)

    monkeypatch.setattr(model.network, "forward", interrupted)
    with pytest.raises(KeyboardInterrupt):
        perturbed_logits(model, TEXTS, random_masks(model, TEXTS), batch_size=2)
    assert all(module.training for module in model.network.modules())
    assert all(parameter.requires_grad for parameter in model.network.parameters())
    assert not torch.is_inference_mode_enabled()


def test_training_mode_does_not_matter_and_no_graph_is_kept() -> None:
    model = bert()
    masks = random_masks(model, TEXTS)
    calm = perturbed_logits(model, TEXTS, masks)
    model.network.train()
    for logits, expected in zip(perturbed_logits(model, TEXTS, masks), calm, strict=True):
        assert torch.equal(logits, expected) and not logits.requires_grad and not logits.is_inference()


def test_span_models_keep_their_positions() -> None:
    model = answering_bert()
    masks = random_masks(model, TEXTS)
    together = perturbed_scores(model, TEXTS, masks, [Target(span=(1, 2))] * 3)
    for text, mask, scores in zip(TEXTS, masks, together, strict=True):
        alone = perturbed_scores(model, text, [mask], [Target(span=(1, 2))])[0]
        torch.testing.assert_close(scores, alone, rtol=0, atol=1e-12)
    with pytest.raises(UnsupportedModel, match="moves what is explained"):
        perturbed_logits(model, TEXTS, masks, replacement="delete")


@pytest.mark.parametrize("replacement", ["delete", "attention", "pad"])
def test_a_decoder_can_lose_every_token(replacement: str) -> None:
    model = llama()
    ids = torch.tensor([[5, 6, 7, 8, 9], [7, 8, 9, 0, 0]])
    mask = ids != 0
    tensors = {"input_ids": ids, "attention_mask": mask.long()}
    masks = [torch.zeros(1, 5, dtype=torch.bool), torch.zeros(1, 3, dtype=torch.bool)]
    together = perturbed_logits(model, tensors, masks, replacement=replacement)
    alone = perturbed_logits(model, {"input_ids": ids[1:, :3]}, masks[1:], replacement=replacement)
    assert all(torch.isfinite(logits).all() for logits in together)
    torch.testing.assert_close(together[1], alone[0])


TEXT_FAMILIES = [name for name, (_, options, _) in tiny_models.FAMILIES.items() if "vocab_size" in options]


@pytest.mark.parametrize("family", TEXT_FAMILIES)
@pytest.mark.parametrize("replacement", ["attention", "pad", "delete"])
def test_padding_changes_nothing_in_any_family(family: str, replacement: str) -> None:
    """Also where the token that the head reads is hidden, which attends to nothing in a DeBERTa."""
    model, batch = tiny_models.shared_model(family), tiny_models.tensors(family)
    masks = random_masks(model, batch)
    together = perturbed_logits(model, batch, masks, replacement=replacement)
    alone = [
        perturbed_logits(model, tiny_models.alone(batch, row), masks[row : row + 1], replacement=replacement)[0]
        for row in (1, 2)
    ]
    torch.testing.assert_close(together[1:], alone, rtol=0, atol=1e-12)


@pytest.mark.parametrize("replacement", ["attention", "mask-attention", "mask"])
def test_padding_changes_no_answer_of_a_deberta(replacement: str) -> None:
    network_class = transformers.DebertaV2ForQuestionAnswering
    network = tiny_models.network("deberta-v2", network_class=network_class, num_labels=2)
    model = clearhead.load(network, tiny_tokenizers.word_piece_tokenizer())
    pairs = [("is it good", "a film"), ("is it good", "the film is not good , very bad and joyless .")]
    masks = random_masks(model, pairs)
    together = perturbed_logits(model, pairs, masks, replacement=replacement)[0]
    alone = perturbed_logits(model, pairs[0], masks[:1], replacement=replacement)[0]
    torch.testing.assert_close(together[..., : alone.shape[-1]], alone, rtol=0, atol=1e-12)


def test_left_padding_is_kept_where_it_is() -> None:
    model = bert()
    ids = torch.tensor([[0, 0, 2, 6, 7, 3], [2, 6, 7, 8, 9, 3]])
    tensors = {"input_ids": ids, "attention_mask": (ids != 0).long()}
    masks = [
        torch.ones(1, features.count, dtype=torch.bool) for features in group_features(model, as_inputs(model, tensors))
    ]
    with torch.no_grad():
        expected = model.network(**tensors).logits
    for replacement in ("mask", "delete"):
        torch.testing.assert_close(
            torch.cat(perturbed_logits(model, tensors, masks, replacement=replacement)), expected
        )


# --- units -----------------------------------------------------------------------------------------------------


def labels(text: Any, unit: str) -> list[int]:
    model = bert()
    return group_features(model, as_inputs(model, text), unit)[0].labels.tolist()


def test_units_of_a_text() -> None:
    assert labels("a goodly film . no plot", "sub-word") == [0, 1, 2, 3, 4, 5, 6, 7, 0]
    assert labels("a goodly film . no plot", "word") == [0, 1, 2, 2, 3, 4, 5, 6, 0]
    assert labels("a goodly film. no plot", "word") == [0, 1, 2, 2, 3, 3, 4, 5, 0]
    assert labels("a goodly film . no plot", "sentence") == [0, 1, 1, 1, 1, 1, 2, 2, 0]
    assert labels(("a film. bad", "a film"), "sentence") == [0, 1, 1, 1, 2, 0, 3, 3, 0]


def test_units_of_an_image() -> None:
    model = vit()
    batch = as_inputs(model, [picture(), picture(1)])
    patches = group_features(model, batch)[0]
    assert (patches.count, patches.kind) == (9, "patch")
    assert (patches.labels[8:16, 16:] == 6).all()
    assert group_features(model, batch, "grid", segments=4)[0].count == 4
    assert group_features(model, batch, "pixel")[0].count == 24 * 24
    for features in group_features(model, batch, "segment", segments=6):
        assert features.kind == "slic" and features.count == features.labels.max() and features.labels.min() == 1
        assert len(features.labels.unique()) == features.count


def test_segments_fall_back_to_a_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "skimage.segmentation", None)
    model = vit()
    batch = as_inputs(model, picture())
    assert group_features(model, batch, "segment", segments=9)[0].kind == "grid"
    with pytest.raises(BadOption, match="scikit-image"):
        group_features(model, batch, "slic")


@pytest.mark.parametrize(
    ("options", "message"), [({"replacement": "blur"}, "mask-attention"), ({"batch_size": 0}, "at least 1")]
)
def test_options_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    model = bert()
    with pytest.raises(BadOption, match=message):
        perturbed_logits(model, TEXTS, random_masks(model, TEXTS), **options)


def test_masks_and_units_that_do_not_fit() -> None:
    model = bert()
    with pytest.raises(BadInput, match=r"\(masks, 3\)"):
        perturbed_logits(model, "a fine film", [torch.ones(1, 5, dtype=torch.bool)])
    with pytest.raises(BadInput, match="at least one row"):
        perturbed_logits(model, "a fine film", [torch.ones(0, 3, dtype=torch.bool)])
    with pytest.raises(BadInput, match="nothing to hide"):
        group_features(model, as_inputs(model, {"input_ids": torch.tensor([[2, 3]])}))
    with pytest.raises(BadInput, match="as many"):
        perturbed_logits(model, TEXTS, [torch.ones(1, 3, dtype=torch.bool)])
    with pytest.raises(BadOption, match="sub-word"):
        group_features(model, as_inputs(model, "a film"), "patch")
    with pytest.raises(BadOption, match="original text"):
        group_features(llama(), as_inputs(llama(), {"input_ids": torch.tensor([[5, 6]])}), "word")
    with pytest.raises(BadOption, match="mask token"):
        ids = {"input_ids": torch.tensor([[5, 6]])}
        perturbed_logits(llama(), ids, [torch.ones(1, 2, dtype=torch.bool)], replacement="mask")


def test_scores_of_a_target() -> None:
    logits = torch.tensor([[1.0, 3.0, -2.0], [0.0, 0.5, 4.0]], dtype=torch.float64)
    shares = logits.softmax(-1)
    torch.testing.assert_close(score_targets(logits, Target(1), "single-label"), shares[:, 1])
    torch.testing.assert_close(score_targets(logits, Target(1, 2), "single-label"), shares[:, 1] - shares[:, 2])
    torch.testing.assert_close(score_targets(logits, Target(1), "multi-label"), logits.sigmoid()[:, 1])
    torch.testing.assert_close(score_targets(logits, Target(1), "regression"), logits[:, 1])
    torch.testing.assert_close(
        score_targets(logits, Target(1, 0), "single-label", "logit"), logits[:, 1] - logits[:, 0]
    )
    with pytest.raises(BadOption, match="probability"):
        score_targets(logits, Target(1), "single-label", "odds")


@pytest.mark.parametrize(
    ("lengths", "overhead", "batches"),
    [
        ([10, 10, 4, 4], 11, [(0, 2), (2, 4)]),
        ([10, 10, 4, 4], 12, [(0, 4)]),
        ([10, 10, 4, 4], None, [(0, 4)]),
        ([9, 9, 9], 0, [(0, 3)]),
        ([8, 7, 6, 5, 4, 3, 2, 1], 15, [(0, 4), (4, 8)]),
    ],
)
def test_short_rows_get_a_batch_of_their_own_if_that_saves_padding(
    lengths: list[int], overhead: int | None, batches: list[tuple[int, int]]
) -> None:
    computed: list[tuple[int, int]] = []
    in_batches(lengths, lambda start, stop: computed.append((start, stop)), tokens=1000, overhead=overhead)
    assert computed == batches


def test_no_bar_without_a_terminal(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearhead.progress.PATIENCE", 0.0)
    in_batches([1] * 5, lambda start, stop: None, tokens=1)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("patience", "shown"), [(0.0, True), (30.0, False)])
def test_a_bar_on_a_terminal_once_patience_ends(patience: float, shown: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearhead.progress.PATIENCE", patience)
    with terminal(monkeypatch) as printed:
        in_batches([1] * 4, lambda start, stop: time.sleep(0.02), tokens=1, label="inputs")
        assert (b"inputs" in printed()) is shown


def test_one_bar_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearhead.progress.PATIENCE", 0.0)
    with terminal(monkeypatch) as printed:
        with progress(3, "windows") as advance:
            advance(1)
            in_batches([1] * 4, lambda start, stop: time.sleep(0.02), tokens=1, label="passes")
            advance(1)
        first = printed()
        in_batches([1] * 4, lambda start, stop: time.sleep(0.02), tokens=1, label="passes")
        then = printed()
    assert b"windows" in first
    assert b"passes" not in first
    assert b"passes" in then

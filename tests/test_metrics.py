"""Each metric against an independent slow formula, hand-computed examples, and oracle and random explanations."""

import gc
import math
import re
import weakref
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import small_networks
import torch
from PIL import Image

import clearhead
from clearhead.data.task import Example, Mask, Picture, Task
from clearhead.errors import BadInput, BadOption, UnknownName, UnsupportedModel
from clearhead.evaluation import confidence, faithfulness, localisation, sanity
from clearhead.evaluation import statistics as significance
from clearhead.evaluation import top_words as corpus
from clearhead.evaluation.metric import METRICS, ExplainedExample, Metric, parse_metric
from clearhead.model.inputs import encode
from clearhead.perturbation import ranking as removal

TEXTS = [
    "a fine film with no plot",
    "is it really good or bad",
    "it is a badly plot film with no film in it . really .",
    "good",
    "a a a good good film is it",
]


@pytest.fixture(scope="module")
def bert():
    return small_networks.bert()


@pytest.fixture(scope="module")
def vit():
    return small_networks.vit()


@pytest.fixture(scope="module")
def linear():
    return small_networks.linear_text()


def noise(explanation, seed):
    return np.random.default_rng([seed, len(explanation.relevance)]).normal(size=len(explanation.relevance))


def cases_of(model, inputs, relevance=noise, labels=None, seed=0):
    """Cases whose relevance is chosen, for the prediction and every class."""
    found = clearhead.explain(model, list(inputs), "random")
    cases = []
    for place, (raw, own) in enumerate(zip(inputs, found, strict=True)):
        own = replace(own, relevance=np.asarray(relevance(own, seed + place), dtype=np.float64))
        label = own.target.number if labels is None else labels[place]
        cases.append(ExplainedExample(Example(str(place), raw, label), {"prediction": own, "label": own}))
    return cases


def values(name, model, cases):
    measure = parse_metric(name)
    return measure.summarise(measure.measure(model, cases))


# --- perturbation metrics against one slow pass per step ------------------------------------------------------------


def slow_order(explanation, lowest=False):
    """Positions of real tokens, most relevant first, ties by position."""
    real = [place for place in range(len(explanation.tokens)) if not explanation.special[place]]
    sign = 1 if lowest else -1
    return sorted(real, key=lambda place: (sign * explanation.relevance[place], place))


def slow_logits(model, text, hidden, absent):
    """One forward pass of one text, changed by hand."""
    encoded = encode(model, text)
    ids, mask = list(encoded.values["input_ids"]), [1] * len(encoded.values["input_ids"])
    if absent == "delete":
        ids = [one for place, one in enumerate(ids) if place not in hidden]
        mask = mask[: len(ids)]
    else:
        name = absent.removesuffix("-attention")
        fill = model.processor.convert_tokens_to_ids(f"[{name.upper()}]")
        ids = [fill if place in hidden else one for place, one in enumerate(ids)]
        mask = [0 if place in hidden and absent.endswith("attention") else 1 for place in range(len(ids))]
    with torch.no_grad():
        output = model.network(input_ids=torch.tensor([ids]), attention_mask=torch.tensor([mask]))
    return (output if isinstance(output, torch.Tensor) else output.logits)[0]


def slow_probabilities(model, case, percents, absent, keep=False):
    explanation = case.explanations["prediction"]
    order = slow_order(explanation)
    found = []
    for percent in percents:
        count = math.ceil(percent * len(order) / 100)
        hidden = set(order[count:] if keep else order[:count])
        found.append(slow_logits(model, case.example.input, hidden, absent).softmax(-1)[explanation.target.number])
    return np.array([float(one) for one in found])


def test_aopc_is_the_mean_drop_over_eleven_steps(bert):
    cases = cases_of(bert, TEXTS)
    slow = [slow_probabilities(bert, case, range(0, 101, 10), "delete") for case in cases]
    expected = [np.mean(one[0] - one) for one in slow]
    records = parse_metric("aopc").measure(bert, cases)
    np.testing.assert_allclose([record["aopc"] for record in records], expected, atol=1e-9)
    np.testing.assert_allclose(records[0]["changes"], slow[0][0] - slow[0], atol=1e-9)
    assert values("aopc", bert, cases)["aopc"] == pytest.approx(np.mean(expected), abs=1e-9)


def test_lodds_replaces_by_padding_and_keeps_the_attention(bert):
    cases = cases_of(bert, TEXTS)
    slow = [np.log(slow_probabilities(bert, case, range(0, 101, 10), "pad")) for case in cases]
    records = parse_metric("lodds").measure(bert, cases)
    np.testing.assert_allclose([one["lodds"] for one in records], [np.mean(one - one[0]) for one in slow], atol=1e-9)


def test_the_authors_variant_of_aopc(bert):
    cases = cases_of(bert, TEXTS)
    percents = [Fraction(100 * step, 9) for step in range(10)]
    slow = [slow_probabilities(bert, case, percents, "delete") for case in cases]
    records = parse_metric("aopc:steps=9,first=1,absolute=true").measure(bert, cases)
    expected = [np.mean(np.abs(one[0] - one[1:])) for one in slow]
    np.testing.assert_allclose([record["aopc"] for record in records], expected, atol=1e-9)


def test_comprehensiveness_and_sufficiency(bert):
    cases, bins = cases_of(bert, TEXTS), (1, 5, 10, 20, 50)
    whole = [slow_probabilities(bert, case, [0], "delete")[0] for case in cases]
    without = [slow_probabilities(bert, case, bins, "delete").mean() for case in cases]
    alone = [slow_probabilities(bert, case, bins, "delete", keep=True).mean() for case in cases]
    found = values("comprehensiveness", bert, cases) | values("sufficiency", bert, cases)
    assert found["comprehensiveness"] == pytest.approx(np.mean(whole) - np.mean(without), abs=1e-9)
    assert found["sufficiency"] == pytest.approx(np.mean(whole) - np.mean(alone), abs=1e-9)


@pytest.mark.parametrize("name", ["hiding", "revealing"])
def test_hiding_and_revealing_take_tokens_from_attention(linear, name):
    labels = [0, 1, 0, 1, 0]
    cases = cases_of(linear, TEXTS, labels=labels)
    for case, record in zip(cases, parse_metric(name).measure(linear, cases), strict=True):
        order, correct = slow_order(case.explanations["prediction"]), []
        for step in range(11):
            count = math.ceil(step * len(order) / 10)
            hidden = set(order[:count] if name == "hiding" else order[count:])
            logits = slow_logits(linear, case.example.input, hidden, "mask-attention")
            correct.append(float(logits.argmax() == case.example.label))
        assert record["correct"] == correct
        assert record[name] == pytest.approx(sum((correct[k] + correct[k + 1]) / 20 for k in range(10)))


@pytest.mark.parametrize(("name", "lowest"), [("positive-perturbation", False), ("negative-perturbation", True)])
def test_pixels_go_black_in_the_order_of_the_upsampled_map(vit, name, lowest):
    pictures = [small_networks.picture(seed) for seed in range(4)]
    cases = cases_of(vit, pictures)
    for picture, case, record in zip(pictures, cases, parse_metric(name).measure(vit, cases), strict=True):
        pixels = vit.processor(images=picture, return_tensors="pt")["pixel_values"].double()
        grid = torch.tensor(case.explanations["prediction"].relevance[1:]).reshape(1, 1, 3, 3)
        heat = torch.nn.functional.interpolate(grid, size=(24, 24), mode="bilinear").flatten()
        order = torch.argsort(heat, descending=not lowest, stable=True)
        black = -torch.tensor(vit.processor.image_mean) / torch.tensor(vit.processor.image_std)
        correct = []
        for step in range(10):
            changed = pixels.clone().flatten(2)
            changed[:, :, order[: math.ceil(step * 576 / 10)]] = black.double()[None, :, None]
            with torch.no_grad():
                logits = vit.network(pixel_values=changed.reshape(pixels.shape)).logits
            correct.append(float(logits.argmax() == case.example.label))
        assert record["correct"] == correct
        assert record[name] == pytest.approx(100 * sum((correct[k] + correct[k + 1]) / 20 for k in range(9)))


def test_the_papers_text_starts_at_ten_percent(vit):
    cases = cases_of(vit, [small_networks.picture()])
    record = parse_metric("positive-perturbation:start=0.1").measure(vit, cases)[0]
    assert record["correct"] == parse_metric("positive-perturbation").measure(vit, cases)[0]["correct"][1:]


# --- a model whose true relevances are known --------------------------------------------------------------------------


def true_weights(model, explanation):
    """What each token adds to the score of class 0, or to the logit of being the answer."""
    ids = model.processor.convert_tokens_to_ids(list(explanation.tokens))
    return model.network.weight(torch.tensor(ids)).numpy()


def signed_weights(model, explanation, number):
    return true_weights(model, explanation) * (1 if number == 0 else -1)


def ways(oracle):
    """The truth, its opposite, and five kinds of noise, as functions of an explanation and a number to draw by."""
    noises = {f"random {seed}": lambda own, place, seed=seed: noise(own, 1000 * seed + place) for seed in range(1, 6)}
    return {"oracle": oracle, "reversed": lambda *one: -oracle(*one), **noises}


def drawn_texts(count, least, most):
    words = [word for word in small_networks.WORDS[6:] if not word.startswith("#")]
    generator = np.random.default_rng(3)
    return [" ".join(generator.choice(words, size=generator.integers(least, most))) for _ in range(count)]


def bracketed(model, inputs, oracle):
    """Cases explained by the truth, by its opposite, and by noise."""
    return {key: cases_of(model, inputs, way) for key, way in ways(oracle).items()}


def assert_bracketed(name, model, several):
    found = {key: next(iter(values(name, model, cases).values())) for key, cases in several.items()}
    sign = 1 if METRICS[name.partition(":")[0]].better == "higher" else -1
    noisy = np.mean([value for key, value in found.items() if key.startswith("random")])
    assert sign * found["oracle"] > sign * noisy > sign * found["reversed"], found


@pytest.mark.parametrize("name", ["aopc", "lodds", "comprehensiveness", "sufficiency", "hiding", "revealing"])
def test_true_weights_beat_random_and_reversed_on_a_linear_model(linear, name):
    def oracle(explanation, _):
        return signed_weights(linear, explanation, explanation.target.number)

    assert_bracketed(name, linear, bracketed(linear, drawn_texts(30, 5, 12), oracle))


@pytest.mark.parametrize("name", ["positive-perturbation", "negative-perturbation"])
def test_true_weights_beat_random_and_reversed_on_pixels(name):
    processor = small_networks.vit().processor
    processor.size = {"height": 12, "width": 12}
    model = replace(small_networks.linear_image(), processor=processor)

    def oracle(explanation, _):
        pixels = processor(images=explanation.image, return_tensors="pt")["pixel_values"].double()
        black = -torch.tensor(processor.image_mean) / torch.tensor(processor.image_std)
        products = model.network.products(pixels - black.double().reshape(1, 3, 1, 1))[0].numpy()
        return products if explanation.target.number == 0 else -products

    assert_bracketed(name, model, bracketed(model, [small_networks.picture(seed) for seed in range(24)], oracle))


def marked_spans(text, words):
    """Where these words stand in a text."""
    return tuple((0, one.start(), one.end()) for one in re.finditer(r"\S+", text) if one.group() in words)


def test_token_f1_of_true_weights_beats_random_and_reversed(linear):
    """People marked the words that speak for the class."""
    words = small_networks.WORDS[6:18]
    found = clearhead.explain(linear, " ".join(words), "random")
    weight = dict(zip(found.tokens, true_weights(linear, found), strict=True))
    several = {}
    for key, way in ways(lambda own, _: signed_weights(linear, own, own.target.number)).items():
        several[key] = cases = cases_of(linear, drawn_texts(12, 60, 90), way)
        for place, case in enumerate(cases):
            sign = 1 if case.example.label == 0 else -1
            best = sorted(words, key=lambda word: -sign * weight[word])[:3]
            gold = marked_spans(case.example.input, best)
            cases[place] = replace(case, example=replace(case.example, gold=gold))
    assert_bracketed("token-f1", linear, several)


def test_precision_at_k_of_true_weights_beats_random_and_reversed():
    """The answer is the three tokens in a row with the largest logits."""
    model, several = small_networks.linear_answers(), {}
    for key, way in ways(lambda own, _: true_weights(model, own)).items():
        several[key] = []
        for place, passage in enumerate(drawn_texts(20, 12, 20)):
            own = clearhead.explain(model, ("is it good", passage), "random")
            weights = true_weights(model, own)[5:-1]
            first = int(np.argmax(np.convolve(weights, np.ones(3), "valid")))
            offsets = own.offsets[5 + first], own.offsets[7 + first]
            gold = ((1, offsets[0][-2], offsets[1][-1]),)
            parts = {side: replace(own, relevance=way(own, place)) for side in ("start", "end")}
            several[key].append(ExplainedExample(Example(str(place), ("is it good", passage), None, gold), parts))
    assert_bracketed("precision-at-k:k=4", model, several)


def test_mosaics_of_true_weights_beat_random_and_reversed(linear):
    """Two texts of different classes are joined; the truth lies in the half of the class that is asked for."""
    texts = drawn_texts(60, 6, 12)
    labels = [found.target.number for found in clearhead.explain(linear, texts, "random")]
    assert set(labels) == {0, 1}
    rows = [Example(str(place), *row) for place, row in enumerate(zip(texts, labels, strict=True))]
    joined = parse_metric("mosaic").prepare(clearhead.data.task.Task("t", rows))
    several = {}
    for key in ways(None):
        several[key] = []
        for place, example in enumerate(joined):
            own = clearhead.explain(linear, example.input, "random")
            way = ways(lambda own, _, label=example.label: signed_weights(linear, own, label))[key]
            several[key].append(ExplainedExample(example, {"label": replace(own, relevance=way(own, place))}))
    assert_bracketed("mosaic", linear, several)


def test_kendall_of_true_weights_lies_below_noise_and_that_below_blindness(linear):
    """Reversed or not, the order for one class is the other's backwards; the far end is not to tell classes apart."""

    def case_of(text, place, way):
        own = clearhead.explain(linear, text, "random")
        both = {str(number): replace(own, relevance=way(own, number, place)) for number in (0, 1)}
        return ExplainedExample(Example(str(place), text), {**both, "prediction": both[str(own.target.number)]})

    def found(way):
        return values(
            "kendall", linear, [case_of(text, place, way) for place, text in enumerate(drawn_texts(30, 6, 12))]
        )["kendall"]

    oracle = found(lambda own, number, _: signed_weights(linear, own, number) + 1e-9 * (-1) ** number * rising(own))
    backwards = found(lambda own, number, _: -signed_weights(linear, own, number) - 1e-9 * (-1) ** number * rising(own))
    noisy = found(lambda own, number, place: noise(own, 2 * place + number))
    blind = found(lambda own, *_: true_weights(linear, own))
    assert oracle == backwards == pytest.approx(-1)
    assert abs(noisy) < 0.2
    assert blind == pytest.approx(1)


def rising(explanation):
    """Tells equal words apart."""
    return np.arange(len(explanation.tokens))


def test_segmentation_by_true_weights_beats_random_and_reversed():
    """The object is where pixel × weight speaks for the class."""
    processor = small_networks.vit().processor
    processor.size = {"height": 12, "width": 12}
    model = replace(small_networks.linear_image(), processor=processor)

    def oracle(explanation, _):
        pixels = processor(images=explanation.image, return_tensors="pt")["pixel_values"].double()
        products = model.network.products(pixels)[0].numpy()
        return products if explanation.target.number == 0 else -products

    several = {}
    for key, way in ways(oracle).items():
        several[key] = cases = cases_of(model, [small_networks.picture(seed) for seed in range(16)], way)
        for place, case in enumerate(cases):
            there = oracle(case.explanations["prediction"], 0).reshape(3, 3) > 0
            gold = Mask(png(255 * np.kron(there, np.ones((8, 8)))))
            cases[place] = replace(case, example=replace(case.example, gold=gold))
    found = {key: values("segmentation", model, cases) for key, cases in several.items()}
    for name in ("pixel-accuracy", "map", "miou"):
        noisy = np.mean([one[name] for key, one in found.items() if key.startswith("random")])
        assert found["oracle"][name] > noisy > found["reversed"][name], (name, found)


def test_one_packed_call_runs_equal_inputs_once(linear):
    linear.network.calls.clear()
    cases = cases_of(linear, TEXTS) + cases_of(linear, TEXTS)
    linear.network.calls.clear()
    parse_metric("aopc").measure(linear, cases)
    rows = sum(shape[0] for shape in linear.network.calls)
    longest = max(len(case.explanations["prediction"].tokens) for case in cases)
    assert rows < 11 * len(TEXTS)
    assert len(linear.network.calls) <= math.ceil(rows * longest / 1024) + 1


def test_stages_count_upwards_and_break_ties_by_position():
    assert removal.removal_counts([0, 0.1, 0.5, 1], 7) == [0, 1, 4, 7]
    assert removal.removal_counts([step / 10 for step in range(11)], 10) == list(range(11))
    assert removal.removal_stages(np.array([1.0, 3.0, 3.0, 0.0]), [0, 0.25, 0.5, 1]).tolist() == [3, 1, 2, 3]
    assert removal.removal_stages(np.array([1.0, 3.0, 2.0]), [0, 0.3]).tolist() == [2, 1, 2]


# --- what people marked ----------------------------------------------------------------------------------------------


def marked(model, text, relevance, gold):
    own = clearhead.explain(model, text, "random")
    own = replace(own, relevance=np.asarray(relevance, dtype=np.float64))
    keys = ("prediction", "label", "start", "end")
    return ExplainedExample(Example("x", text, 0, gold), dict.fromkeys(keys, own))


def test_token_f1_by_hand(bert):
    text = "a fine film with no plot is it really goodly bad or a fine film"
    words = text.split()
    tokens = clearhead.explain(bert, text, "random").tokens
    assert tokens[10:12] == ("good", "##ly")
    relevance = [0.0] * len(tokens)
    relevance[11] = 5.0
    start = text.index("goodly")
    case = marked(bert, text, relevance, ((0, start, start + 6),))
    record = parse_metric("token-f1").measure(bert, [case])[0]
    assert len(words) == 15
    assert record["f1"][0] == pytest.approx(2 * (1 / 10) * 1 / (1 / 10 + 1))
    assert record["f1"][1:] == pytest.approx([2 * (1 / 15) / (1 / 15 + 1)] * 7)
    assert record["token-f1"] == pytest.approx(np.mean(record["f1"]))


def test_token_f1_of_oracle_and_reversed_explanations(bert):
    text = " ".join(["film"] * 30 + ["good"] * 10)
    gold = ((0, text.index("good"), len(text)),)
    relevance = np.array([0.0] * 31 + [1.0] * 10 + [0.0])
    found = [
        parse_metric("token-f1").measure(bert, [marked(bert, text, one, gold)])[0]["f1"]
        for one in (relevance, -relevance)
    ]
    assert found[0][:4] == pytest.approx([1, 2 / 3, 0.5, 0.4])
    assert found[1][:4] == pytest.approx([0, 0, 0, 0.4])


def test_marked_words_past_the_models_length_count_unless_told(bert):
    text = "good " * 100
    own = clearhead.explain(bert, text, "random", long="truncate")
    case = ExplainedExample(Example("x", text, 0, ((0, 0, len(text)),)), {"label": own})
    seen = len(own.tokens) - 2
    first = parse_metric("token-f1").measure(bert, [case])[0]["f1"][0]
    second = parse_metric("token-f1:beyond=false").measure(bert, [case])[0]["f1"][0]
    assert first == pytest.approx(20 / 110)
    assert second == pytest.approx(20 / (10 + seen))


def test_precision_at_k_by_hand():
    model = small_networks.answering_bert()
    text = ("is it good", "a fine film with no plot")
    own = clearhead.explain(model, text, "random")
    assert own.tokens[5:12] == ("a", "fine", "film", "with", "no", "plot", "[SEP]")
    start, end = np.zeros(12), np.zeros(12)
    start[[7, 1]], end[[8, 6]] = [3, 5], [4, 1]
    start[0] = 100
    parts = {"start": replace(own, relevance=start), "end": replace(own, relevance=end)}
    answer = text[1].index("fine"), text[1].index("with")
    case = ExplainedExample(Example("x", text, None, ((1, *answer),)), parts)
    assert parse_metric("precision-at-k:k=1").measure(model, [case])[0] == {"count": 0, "share": 0, "counts": [0]}
    record = parse_metric("precision-at-k:k=4").measure(model, [case])[0]
    assert record == {"count": 2, "share": 1, "counts": [0, 0, 1, 2]}
    unanswered = replace(case, example=replace(case.example, gold=()))
    measure = parse_metric("precision-at-k:k=4")
    records = measure.measure(model, [case, unanswered])
    assert records[1]["count"] is None
    assert measure.summarise(records) == {"count": 2, "share": 1}


# --- classes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["rank", "index"])
def test_kendall_is_scipys_tau_averaged_over_the_other_classes(bert, order):
    stats = pytest.importorskip("scipy.stats", reason="the flow extra, which brings SciPy, is not installed")
    own = clearhead.explain(bert, TEXTS[2], "random")
    generator = np.random.default_rng(1)
    several = {str(number): replace(own, relevance=generator.normal(size=len(own.tokens))) for number in range(3)}
    predicted = own.target.number
    case = ExplainedExample(Example("x", TEXTS[2]), {**several, "prediction": several[str(predicted)]})
    record = parse_metric(("kendall", {"order": order})).measure(bert, [case])[0]
    lists = {key: one.relevance[1:-1] for key, one in several.items()}
    if order == "index":
        lists = {key: np.argsort(-value) for key, value in lists.items()}
    taus = [stats.kendalltau(lists[str(predicted)], lists[str(n)]).statistic for n in range(3) if n != predicted]
    assert record["kendall"] == pytest.approx(np.mean(taus))


def test_ties_count_neither_way():
    stats = pytest.importorskip("scipy.stats", reason="the flow extra, which brings SciPy, is not installed")
    first, second = np.random.default_rng(0).integers(0, 4, (2, 30)).astype(float)
    assert confidence.tau(first, second) == pytest.approx(stats.kendalltau(first, second).statistic)
    assert confidence.tau(first, first) == pytest.approx(1)
    assert confidence.tau(first, np.zeros(30)) == 0


def test_kendall_of_equal_and_opposite_classes():
    model = small_networks.bert(labels=2)
    own = clearhead.explain(model, TEXTS[0], "random")
    opposite = replace(own, relevance=-own.relevance)
    other = str(1 - own.target.number)
    same = ExplainedExample(Example("x", TEXTS[0]), {"prediction": own, other: own})
    against = ExplainedExample(Example("x", TEXTS[0]), {"prediction": own, other: opposite})
    assert [one["kendall"] for one in parse_metric("kendall").measure(model, [same, against])] == [1, -1]


def overlap_record(label, **relevance):
    return {"class": label, "tokens": list(relevance), "relevance": list(relevance.values())}


def test_token_overlap_by_hand():
    records = [
        overlap_record("negative", bad=3.0, film=2.0, a=0.5),
        overlap_record("negative", bad=1.0, plot=2.5),
        overlap_record("positive", good=3.0, film=1.0, plot=0.2),
        overlap_record("neutral", film=1.0, plot=0.5, it=0.1),
    ]
    assert parse_metric("token-overlap:k=1").summarise(records) == {"token-overlap": 0, "count": 0}
    # top 2: negative bad plot, positive good film, neutral film plot: one pair shares film, one shares plot
    assert parse_metric("token-overlap:k=2").summarise(records) == {"token-overlap": pytest.approx(2 / 6), "count": 2}
    assert corpus.word_lists(records, 2)["negative"] == [("bad", 4.0), ("plot", 2.5)]
    xs, ys = parse_metric("token-overlap").curve(records)
    assert len(xs) == len(ys) and xs[0] == 5


def test_overlap_of_an_oracle_is_below_that_of_noise(linear):
    words = small_networks.WORDS[5:18]
    generator = np.random.default_rng(0)
    texts = [" ".join(generator.choice(words, size=8)) for _ in range(40)]

    def oracle(explanation, _):
        return signed_weights(linear, explanation, explanation.target.number)

    found = [values("token-overlap:k=4", linear, cases_of(linear, texts, one)) for one in (oracle, noise)]
    assert found[0]["token-overlap"] == 0 < found[1]["token-overlap"]


def test_rare_words_weigh_more(bert, tmp_path):
    path = tmp_path / "reference.txt"
    path.write_text("a film\na plot\na good film\n")
    case = cases_of(bert, ["a good film"], lambda own, _: np.ones(len(own.tokens)))[0]
    record = parse_metric(("token-overlap", {"reference": str(path)})).measure(bert, [case])[0]
    assert record["tokens"] == ["a", "good", "film"]
    assert record["relevance"] == pytest.approx([math.log(4 / 4), math.log(4 / 2), math.log(4 / 3)])


def test_a_reference_that_changed_is_read_again_and_holds_no_model(tmp_path):
    path, model = tmp_path / "reference.txt", small_networks.bert()
    case = cases_of(model, ["a good film"], lambda own, _: np.ones(len(own.tokens)))[0]
    metric = parse_metric(("token-overlap", {"reference": str(path)}))
    path.write_text("a film\na plot\n")
    assert metric.measure(model, [case])[0]["relevance"] == pytest.approx([0, math.log(3), math.log(3 / 2)])
    path.write_text("a good film\na good plot\n")
    assert metric.measure(model, [case])[0]["relevance"] == pytest.approx([0, 0, math.log(3 / 2)])
    gone = weakref.ref(model)
    del model, case
    gc.collect()
    assert gone() is None


def test_references_without_texts_are_refused(bert, tmp_path):
    case = cases_of(bert, ["a good film"])[0]
    Image.new("RGB", (9, 9)).save(tmp_path / "1.png")
    for reference, says in ((str(tmp_path), "holds pictures"), ("", "names no task")):
        with pytest.raises(BadInput, match=says):
            parse_metric(("token-overlap", {"reference": reference})).measure(bert, [case])


def test_one_class_alone_overlaps_with_none():
    found = parse_metric("token-overlap:k=1").summarise([overlap_record("negative", bad=3.0)])
    assert math.isnan(found["token-overlap"])


# --- where ----------------------------------------------------------------------------------------------------------


def png(values):
    import io

    buffer = io.BytesIO()
    Image.fromarray(np.asarray(values, dtype=np.uint8)).save(buffer, "PNG")
    return Picture(buffer.getvalue())


def slow_segmentation(heats, masks):
    """Pixel by pixel, as defined."""
    right = labelled = 0
    both, either, precisions = [0, 0], [0, 0], []
    for heat, mask in zip(heats, masks, strict=True):
        scaled = (heat - heat.min()) / (heat.max() - heat.min())
        pairs = [(s, m) for s, m in zip(scaled.flatten(), mask.flatten(), strict=True) if m >= 0]
        for score, gold in pairs:
            found = int(score > scaled.mean())
            right, labelled = right + (found == gold), labelled + 1
            for side in (0, 1):
                both[side] += found == side and gold == side
                either[side] += found == side or gold == side
        scores = sorted([(s, m == 1) for s, m in pairs] + [(1 - s, m == 0) for s, m in pairs], reverse=True)
        total, hits, area = len(pairs), 0, 0.0
        for threshold in sorted({score for score, _ in scores}, reverse=True):
            group = [gold for score, gold in scores if score >= threshold]
            area += (sum(group) - hits) / total * sum(group) / len(group)
            hits = sum(group)
        precisions.append(area)
    miou = (both[0] / either[0] + both[1] / either[1]) / 2
    return {"pixel-accuracy": right / labelled, "map": np.mean(precisions), "miou": miou}


def test_segmentation_against_pixel_loops(vit):
    generator = np.random.default_rng(2)
    pictures = [small_networks.picture(seed).resize((12, 12)) for seed in range(3)]
    trimaps = [generator.integers(1, 4, (12, 12)) for _ in pictures]
    cases = cases_of(vit, pictures)
    cases = [
        replace(case, example=replace(case.example, gold=Mask(png(trimap), (1,), (3,))))
        for case, trimap in zip(cases, trimaps, strict=True)
    ]
    masks = [np.select([trimap == 1, trimap == 2], [1, 0], -1) for trimap in trimaps]
    expected = slow_segmentation([case.explanations["prediction"].heatmap() for case in cases], masks)
    found = values("segmentation", vit, cases)
    assert found == pytest.approx(expected)


def test_an_explanation_that_is_the_mask_segments_perfectly(vit):
    mask = np.zeros((24, 24))
    mask[:8, :16] = 255
    relevance = np.array([0, 1, 1, 0, 0, 0, 0, 0, 0, 0.0])
    case = cases_of(vit, [small_networks.picture()], lambda *_: relevance)[0]
    exact = replace(case.explanations["prediction"], pixels=mask / 255)
    case = ExplainedExample(replace(case.example, gold=Mask(png(mask))), {"prediction": exact})
    assert values("segmentation", vit, [case]) == {"pixel-accuracy": 1, "map": 1, "miou": 1}


def test_average_precision_by_hand():
    assert localisation.average_precision(np.array([0.9, 0.8, 0.7]), np.array([True, False, True])) == pytest.approx(
        0.5 * 1 + 0.5 * 2 / 3
    )
    assert localisation.average_precision(np.array([0.5, 0.5]), np.array([True, False])) == pytest.approx(0.5)


def test_a_mask_of_another_size_is_an_error(vit):
    case = cases_of(vit, [small_networks.picture()])[0]
    case = replace(case, example=replace(case.example, gold=Mask(png(np.ones((5, 7))))))
    with pytest.raises(BadInput, match="7×5"):
        parse_metric("segmentation").measure(vit, [case])


def test_a_picture_without_labelled_pixels_takes_no_part(vit):
    pictures = [Image.fromarray(np.full((32, 32, 3), 40 * place, np.uint8)) for place in range(2)]
    masks = [Mask(png(np.full((32, 32), value)), (1,), (255,)) for value in (1, 255)]
    several = [
        ExplainedExample(
            Example(str(place), picture, 0, mask), {"prediction": clearhead.explain(vit, picture, "random")}
        )
        for place, (picture, mask) in enumerate(zip(pictures, masks, strict=True))
    ]
    measure = parse_metric("segmentation")
    both, first = (measure.measure(vit, several[:count]) for count in (2, 1))
    assert both[1] == {}
    assert measure.summarise(both) == measure.summarise(first)
    assert significance.intervals(measure, [both])["miou"].n == 1


def test_the_parts_of_a_mosaic_are_drawn_together():
    records = [{"mosaic": share, "group": str(place)} for place in range(6) for share in (0.3, 0.7)]
    found = significance.intervals(parse_metric("mosaic"), [records])["mosaic"]
    assert (found.low, found.high, found.n) == (pytest.approx(0.5), pytest.approx(0.5), 12)
    raised = [{**one, "mosaic": one["mosaic"] + 0.1} for one in records]
    assert significance.differences(parse_metric("mosaic"), [raised], [records])["mosaic"].p == pytest.approx(
        2 / 2**6, abs=0.01
    )


def test_a_part_of_a_mosaic_past_the_models_length_takes_no_part(bert):
    task = Task("t", [Example("1", "good film " * 100, 0), Example("2", "bad film " * 100, 1)])
    (records,) = clearhead.evaluate(bert, task, ["att-cat"], ["mosaic"]).records["att-cat", "mosaic"]
    assert [record["mosaic"] for record in records] == [pytest.approx(1), None]


def test_text_mosaics_join_two_classes(bert):
    examples = [Example(str(place), text, place % 2) for place, text in enumerate(TEXTS[:4])]
    made = parse_metric("mosaic").prepare(clearhead.data.task.Task("t", examples))
    assert len(made) == 4
    for one in made:
        (_, start, end), source = one.gold[0], int(one.id.partition(":")[0].split("+")[int(one.id[-1])])
        assert one.input[start:end] == TEXTS[source]
        assert one.label == source % 2


def test_mosaic_shares_by_hand(bert):
    text = "a fine film no plot"
    case = marked(bert, text, [9, 1, 2, -5, 0, 1, 9], ((0, 0, text.index(" no")),))
    assert parse_metric("mosaic").measure(bert, [case])[0]["mosaic"] == pytest.approx(3 / 4)
    silent = marked(bert, text, [-1] * 7, ((0, 0, 6),))
    assert parse_metric("mosaic").measure(bert, [silent])[0]["mosaic"] == 0


def test_picture_mosaics_have_four_classes(vit):
    examples = [Example(str(seed), small_networks.picture(seed), seed % 5) for seed in range(9)]
    made = parse_metric("mosaic").prepare(clearhead.data.task.Task("t", examples))
    assert len(made) == 8 and len({one.label for one in made[:4]}) == 4
    canvas = made[0].raw
    assert canvas.size == (48, 48)
    for place, one in enumerate(made[:4]):
        source = int(one.id.partition(":")[0].split("+")[place])
        left, top, right, bottom = (round(48 * side) for side in one.gold)
        np.testing.assert_array_equal(canvas.crop((left, top, right, bottom)), small_networks.picture(source))
    relevance = np.array([0, 1, 0, 0, 0, 0, 0, 0, 0, 0.0])
    own = replace(clearhead.explain(vit, canvas, "random"), relevance=relevance)
    found = parse_metric("mosaic").measure(vit, [ExplainedExample(one, {"label": own}) for one in made[:4]])
    assert found[0]["mosaic"] > 0.9 and sum(one["mosaic"] for one in found) == pytest.approx(1)


def test_mosaics_need_different_labels():
    with pytest.raises(BadInput, match="different labels"):
        parse_metric("mosaic").prepare(clearhead.data.task.Task("t", [Example("1", "a", 0), Example("2", "b", 0)]))


# --- sanity ---------------------------------------------------------------------------------------------------------


def test_randomisation_leaves_the_model_alone_and_tells_noise_from_explanation(bert):
    before = {name: value.clone() for name, value in bert.network.state_dict().items()}
    several = {
        name: [
            ExplainedExample(Example(str(place), text), {"prediction": one})
            for place, (text, one) in enumerate(zip(TEXTS, clearhead.explain(bert, TEXTS, name), strict=True))
        ]
        for name in ("att-cat", "random")
    }
    records = parse_metric("randomisation").measure(bert, several["att-cat"] + several["random"])
    assert all(torch.equal(value, before[name]) for name, value in bert.network.state_dict().items())
    assert all(len(record["correlations"]) == 5 for record in records)
    noisy = [one["randomisation"] for one in records[5:] if one["randomisation"] is not None]
    assert noisy == pytest.approx([1] * 4)
    assert np.mean([one["randomisation"] for one in records[:5] if one["randomisation"] is not None]) < 0.9


def test_parts_go_from_the_head_to_the_embeddings(bert):
    parts = sanity.parts_from_output(bert.network)
    names = {id(value): name for name, value in bert.network.named_parameters()}
    firsts = [{names[id(one)].split("layer.")[-1].split(".")[0] for one in part} for part in parts]
    assert firsts == [{"bert", "classifier"}, {"2"}, {"1"}, {"0"}, {"bert"}]
    assert all("embeddings" in names[id(one)] for one in parts[-1])
    assert sum(len(part) for part in parts) == len(names)


def test_spearman_is_scipys():
    stats = pytest.importorskip("scipy.stats", reason="the flow extra, which brings SciPy, is not installed")
    generator = np.random.default_rng(0)
    first, second = generator.integers(0, 5, 20).astype(float), generator.normal(size=20)
    assert sanity.spearman(first, second) == pytest.approx(stats.spearmanr(first, second).statistic)
    assert sanity.spearman(np.ones(4), np.arange(4.0)) == 0


# --- statistics -------------------------------------------------------------------------------------------------------


def scored(values_N, name="aopc"):
    return [[{name: float(value)} for value in values_N]]


def test_intervals_are_those_of_resampled_records():
    generator = np.random.default_rng(0)
    sample = generator.normal(3, 2, size=400)
    found = significance.intervals(parse_metric("aopc"), scored(sample), samples=4000)["aopc"]
    half = 1.96 * sample.std() / 20
    assert found.value == pytest.approx(sample.mean())
    assert (found.low, found.high) == pytest.approx((sample.mean() - half, sample.mean() + half), abs=0.1 * half)
    assert found.n == 400
    assert found == significance.intervals(parse_metric("aopc"), scored(sample), samples=4000)["aopc"]


@pytest.mark.parametrize("name", ["segmentation", "token-overlap:k=2", "aopc"])
def test_reweighted_records_are_repeated_records(name):
    generator = np.random.default_rng(4)
    measure = parse_metric(name)
    records = {
        "segmentation": [dict.fromkeys((*localisation.COUNTS, "ap"), 0) for _ in range(6)],
        "token-overlap": [
            {"class": str(place % 3), "tokens": list("abcd"), "relevance": generator.normal(size=4).tolist()}
            for place in range(6)
        ],
        "aopc": [{"aopc": value} for value in (*generator.normal(size=5), None)],
    }[measure.metric.name]
    for record in records if name == "segmentation" else ():
        record.update({key: float(generator.integers(1, 9)) for key in record})
    weights = np.array([[1, 1, 1, 1, 1, 1], [2, 0, 1, 3, 1, 1]], dtype=float)
    found = measure.resampled(records, weights)
    for row, weight in enumerate(weights):
        repeated = [record for record, times in zip(records, weight, strict=True) for _ in range(int(times))]
        assert {key: value[row] for key, value in found.items()} == pytest.approx(measure.summarise(repeated))


def test_a_band_is_the_interval_at_each_place_of_the_curve():
    generator = np.random.default_rng(4)
    rows = generator.normal(size=(30, 11))
    records = [{"aopc": float(row.mean()), "changes": row.tolist()} for row in rows]
    found = significance.band(parse_metric("aopc"), [records, records], seed=5)
    assert found.x == pytest.approx(np.arange(11) / 10) and found.y == pytest.approx(rows.mean(0))
    for place in (0, 4, 10):
        column = [{"aopc": value} for value in rows[:, place]]
        one = significance.intervals(parse_metric("aopc"), [column], seed=5)["aopc"]
        assert (found.low[place], found.high[place]) == pytest.approx((one.low, one.high))


def test_the_band_of_an_overlap_lies_around_the_curve():
    words = [chr(97 + place) for place in range(26)]
    generator = np.random.default_rng(0)
    records = [
        {"class": str(place % 2), "tokens": words, "relevance": generator.normal(size=26).tolist()}
        for place in range(20)
    ]
    found = significance.band(parse_metric("token-overlap"), [records], samples=200)
    assert found.y == tuple(parse_metric("token-overlap").curve(records)[1])
    assert all(low <= y <= high for low, y, high in zip(found.low, found.y, found.high, strict=True))
    assert found.low[0] < found.high[0]


def test_records_without_anything_to_draw_have_no_curve():
    assert parse_metric("token-f1").curve([{"token-f1": None, "f1": None}]) is None
    assert parse_metric("kendall").curve([{"kendall": 0.5}]) is None
    assert significance.band(parse_metric("token-f1"), [[{"token-f1": None, "f1": None}]]) is None


def test_few_examples_show_nothing():
    """However large the difference: two methods trade one, two or four records in as many ways."""
    counts = dict.fromkeys(localisation.COUNTS, 9.0)
    for size in (1, 2, 4):
        good = [{**counts, "both_fg": 9.0, "right": 9.0, "ap": 1 - 0.01 * place} for place in range(size)]
        poor = [{**counts, "both_fg": 1.0, "right": 1.0, "ap": 0.1 + 0.01 * place} for place in range(size)]
        for name, one in significance.differences(parse_metric("segmentation"), [good], [poor]).items():
            assert one.p == pytest.approx(2 / 2**size, abs=0.05), name


def test_shares_stay_shares():
    """Moved around their value, resampled overlaps would lie below nothing."""
    generator = np.random.default_rng(1)
    records = [
        {"class": str(place % 3), "tokens": list("abcdefghijkl"), "relevance": generator.normal(size=12).tolist()}
        for place in range(9)
    ]
    for k in (1, 2, 12):
        found = significance.intervals(parse_metric(f"token-overlap:k={k}"), [records])
        assert 0 <= found["token-overlap"].low <= found["token-overlap"].high <= 1
        assert found["count"].low >= 0


def test_the_paired_test_against_all_sign_flips():
    first, second = np.array([0.9, 0.4, 0.8, 0.3, 0.6, 0.7]), np.array([0.1, 0.5, 0.2, 0.1, 0.3, 0.4])
    difference = first - second
    flips = [sum(d * (1 if bits >> place & 1 else -1) for place, d in enumerate(difference)) for bits in range(64)]
    exact = np.mean([abs(one) >= abs(difference.sum()) - 1e-12 for one in flips])
    found = significance.differences(parse_metric("aopc"), scored(first), scored(second))["aopc"]
    assert found.p == pytest.approx(exact, abs=0.02)
    assert found.value == pytest.approx(difference.mean())
    assert found.low < found.value < found.high
    same = significance.differences(parse_metric("aopc"), scored(first), scored(first))["aopc"]
    assert (same.p, same.value) == (1, 0)


def test_values_that_are_no_means_are_tested_too():
    generator = np.random.default_rng(0)

    def records(right):
        return [
            [
                dict.fromkeys((*localisation.COUNTS, "ap"), 1.0) | {"right": float(one), "labelled": 10.0}
                for one in right
            ]
        ]

    low, high = generator.integers(2, 5, 50), generator.integers(6, 9, 50)
    found = significance.differences(parse_metric("segmentation"), records(high), records(low))
    assert found["pixel-accuracy"].p < 0.01 and found["pixel-accuracy"].low > 0
    assert found["miou"].p == 1


def test_false_alarms_are_as_rare_as_promised():
    generator = np.random.default_rng(5)
    found = [
        significance.differences(
            parse_metric("aopc"), scored(generator.normal(size=30)), scored(generator.normal(size=30)), samples=10
        )["aopc"].p
        for _ in range(60)
    ]
    assert np.mean(np.array(found) < 0.05) < 0.15


def test_the_interval_of_an_overlap_lies_around_it():
    generator = np.random.default_rng(6)
    words = [f"w{place}" for place in range(200)]
    records = [
        {"class": str(place % 2), "tokens": list(generator.choice(words, 10)), "relevance": [1.0] * 10}
        for place in range(60)
    ]
    found = significance.intervals(parse_metric("token-overlap"), [records], samples=200)["token-overlap"]
    assert found.low < found.value < found.high


def test_repeats_are_averaged():
    repeats = [*scored([1, 2, 3]), *scored([3, 4, 5])]
    assert significance.intervals(parse_metric("aopc"), repeats)["aopc"].value == pytest.approx(3)


def test_holm_by_hand():
    assert significance.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert significance.holm([0.5, 0.9]) == [1, 1]
    assert significance.holm([]) == []


# --- the registry --------------------------------------------------------------------------------------------------


def test_metrics_are_listed_with_their_papers():
    listed = clearhead.metrics()
    names = (
        "positive-perturbation negative-perturbation segmentation token-f1 hiding revealing token-overlap aopc lodds "
        "kendall precision-at-k comprehensiveness sufficiency randomisation mosaic"
    )
    assert set(listed) == set(names.split())
    for name, one in listed.items():
        assert isinstance(one, Metric) and one.paper and one.summary and one.better in ("higher", "lower"), name


def test_options_are_spelled_as_for_methods():
    assert parse_metric("aopc:absent=pad,steps=9").options == {"absent": "pad", "steps": 9}
    assert parse_metric(("aopc", {"steps": 9})).text == "aopc:steps=9"
    assert parse_metric("aopc:target=label").targets == ("label",)
    with pytest.raises(UnknownName, match="Did you mean 'aopc'"):
        parse_metric("aopcs")
    with pytest.raises(BadOption, match="steps"):
        parse_metric("aopc:stpes=9")
    with pytest.raises(BadOption, match="prediction"):
        _ = parse_metric("aopc:target=class").targets
    with pytest.raises(BadOption, match="'aopc:steps=5,steps=6' gives an option twice"):
        parse_metric("aopc:steps=5,steps=6")
    with pytest.raises(BadOption, match="name with its options"):
        parse_metric(("aopc", None))


@pytest.mark.parametrize(
    "name",
    [
        "aopc:steps=0",
        "hiding:against=me",
        "kendall:order=x",
        "token-overlap:k=0",
        "randomisation:correlation=x",
        "comprehensiveness:bins=5/1",
        ("comprehensiveness", {"bins": (1, float("nan"), 50)}),
        ("sufficiency", {"bins": (1, 10**400)}),
        ("positive-perturbation", {"start": 10**400}),
        ("positive-perturbation", {"start": float("inf")}),
        "positive-perturbation:start=0.5",
        "precision-at-k:k=0",
    ],
)
def test_bad_values_of_options(bert, name):
    case = cases_of(bert, TEXTS[:1])
    option = name.partition(":")[2].partition("=")[0] if isinstance(name, str) else next(iter(name[1]))
    with pytest.raises(BadOption, match=option):
        parse_metric(name).measure(bert, case)


def test_a_label_the_model_does_not_know(bert):
    case = cases_of(bert, TEXTS[:1], labels=["lovely"])
    with pytest.raises(BadInput, match=r"'0' is labelled 'lovely'.*No label"):
        parse_metric("hiding").measure(bert, case)


def test_lodds_needs_a_padding_token(bert, monkeypatch):
    monkeypatch.setattr(faithfulness, "token_id", lambda *_: None)
    with pytest.raises(UnsupportedModel, match="absent=attention"):
        parse_metric("lodds").measure(bert, cases_of(bert, TEXTS[:1]))
    assert len(parse_metric("lodds:absent=attention").measure(bert, cases_of(bert, TEXTS[:1]))) == 1


def test_accuracy_needs_classes():
    model = small_networks.answering_bert()
    with pytest.raises(UnsupportedModel, match="span"):
        parse_metric("hiding").measure(model, [ExplainedExample(Example("x", ("is it good", "a film")), {})])

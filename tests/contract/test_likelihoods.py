"""What every registered likelihood promises, asked of all of them, without an
estimator.
"""

import math

import numpy as np
import pytest
import torch
from sklearn.base import clone

from cavity.common.onnx_graph import IR_VERSION, OPSET, Graph, Value
from cavity.errors import BadFile, BadOption
from cavity.likelihoods import (
    LIKELIHOODS,
    Committee,
    Gaussian,
    Latents,
    Likelihood,
    Logistic,
    LogisticPoint,
    Moments,
    Ordinal,
    ProbitPairs,
    RobustBinary,
    RobustMax,
    Softmax,
    Taylor,
)
from registered import CLASSIFIERS, REGISTERED_LIKELIHOODS, make_likelihood

B = 6
# Derivatives at a fixed point of expansion, which are not those of the value; their
# laws are in tests/equivalence.
EXPANDED = {LogisticPoint: "moments", Taylor: "average"}


@pytest.fixture(params=REGISTERED_LIKELIHOODS)
def kind(request):
    return REGISTERED_LIKELIHOODS[request.param]


@pytest.fixture(params=CLASSIFIERS)
def classifier(request):
    return CLASSIFIERS[request.param]


def bound(kind: type[Likelihood], **values: object) -> list[Likelihood]:
    """The likelihood for every number of classes that it is for."""
    template = make_likelihood(kind, **values)
    return [template.bind(C) for C in ((2,) if kind.two_classes else (3, 5))]


def labels(factor: Likelihood) -> torch.Tensor:
    if isinstance(factor, Committee):
        return torch.tensor([[n % 2, 0.5 * n - 1] for n in range(B)]).double()
    if isinstance(factor, Gaussian):
        return torch.linspace(-2, 2, B).double()
    return torch.arange(B) % factor.n_classes


def marginals(factor: Likelihood, seed: int = 0) -> Latents:
    rng = np.random.default_rng(seed)
    S = factor.sites(labels(factor)).shape[1]
    mean, var, residual = (
        rng.normal(size=(B, S)),
        rng.uniform(0.1, 3, (B, S)),
        rng.uniform(0.01, 1, (B, S)),
    )
    return Latents(*map(torch.tensor, (mean, var + residual, residual)))


def answer(
    factor: Likelihood, call: str, f: Latents, exponent: float | None
) -> Moments:
    y = labels(factor)
    if call == "average":
        return factor.average(f, y)
    return factor.moments(
        f, y, None if exponent is None else torch.full((B,), exponent).double()
    )


def calls(kind: type[Likelihood]) -> list[tuple[str, float | None]]:
    """What the class has of `moments` and `average`, with the exponents that it takes."""
    exponents = [None, 0.5] if kind.tempers else [None]
    has = {
        call: getattr(kind, call) is not getattr(Likelihood, call)
        for call in ("moments", "average")
    }
    found = [("moments", e) for e in exponents if has["moments"]] + [
        ("average", None)
    ] * has["average"]
    return [call for call in found if EXPANDED.get(kind) != call[0]]


def every(kind: type[Likelihood], **values: object) -> list[Likelihood]:
    return (
        bound(kind, **values)
        if kind in CLASSIFIERS.values()
        else [make_likelihood(kind, **values)]
    )


# --- the engine ------------------------------------------------------------------------------------------
def test_sites_sit_on_latent_functions(classifier):
    for factor in bound(classifier):
        at = factor.sites(labels(factor))
        assert at.shape[0] == B and at.dtype == torch.long
        assert at.min() >= 0 and at.max() < factor.n_latent
        assert set(at.flatten().tolist()) == set(range(factor.n_latent))


def test_derivatives_are_differences_of_the_value(kind):
    """In each site's mean, in its variance from w, and in its residual variance."""
    h = 1e-5
    for factor in every(kind, epsilon=0.1, noise=0.4):
        f = marginals(factor)
        for call, exponent in calls(kind):
            value = lambda g, call=call, e=exponent, factor=factor: (
                answer(factor, call, g, e).value
            )
            got = answer(factor, call, f, exponent)
            for s in range(f.mean.shape[1]):
                bump = torch.zeros_like(f.mean)
                bump[:, s] = h
                changes = {
                    "dm": Latents(bump, 0 * bump, 0 * bump),
                    "dv": Latents(0 * bump, bump, 0 * bump),
                    "dr": Latents(0 * bump, bump, bump),
                }
                for name, change in changes.items():
                    up, down = (
                        Latents(*(a + sign * b for a, b in zip(f, change, strict=True)))
                        for sign in (1, -1)
                    )
                    difference = (value(up) - value(down)) / (2 * h)
                    np.testing.assert_allclose(
                        getattr(got, name)[:, s], difference, rtol=1e-5, atol=1e-7
                    )


def test_derivatives_in_its_own_parameters_are_differences_too(kind):
    h = 1e-5
    for factor in every(kind, epsilon=0.1, noise=0.4, learn=True):
        f = marginals(factor)
        for call, exponent in calls(kind):
            own = answer(factor, call, f, exponent).own
            if not factor.parameters:
                assert own is None
                continue
            entries = [
                p.data[k : k + 1] for p in factor.parameters for k in range(len(p))
            ]
            for k, entry in enumerate(entries):
                values = []
                for step in (h, -2 * h):
                    entry += step
                    values.append(answer(factor, call, f, exponent).value)
                entry += h
                np.testing.assert_allclose(
                    own[:, k], (values[0] - values[1]) / (2 * h), rtol=1e-5, atol=1e-7
                )


def test_the_average_of_the_logarithm_is_at_most_the_logarithm_of_the_average(kind):
    if not kind.bounds or {call for call, _ in calls(kind)} != {"moments", "average"}:
        return
    for factor in every(kind):
        f = marginals(factor)
        assert (
            answer(factor, "average", f, None).value
            <= answer(factor, "moments", f, None).value
        ).all()


def test_what_it_does_not_have_is_an_error_that_names_what_to_use(kind):
    for factor in every(kind):
        f, y = marginals(factor), labels(factor)
        if kind.moments is Likelihood.moments:
            with pytest.raises(BadOption, match=kind.__name__):
                factor.moments(f, y, None)
        if kind.average is Likelihood.average:
            with pytest.raises(BadOption, match=f"{kind.__name__}"):
                factor.average(f, y)
        if kind.third is Likelihood.third:
            with pytest.raises(BadOption, match="third derivative"):
                factor.third(f.mean, y)


# --- prediction ------------------------------------------------------------------------------------------
def new_rows(factor: Likelihood) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(1)
    shape = (20, factor.n_latent)
    return torch.tensor(2 * rng.normal(size=shape)), torch.tensor(
        rng.uniform(0.05, 4, shape)
    )


def test_probabilities_sum_to_one_and_follow_a_relabelling(classifier):
    for factor in bound(classifier, epsilon=0.1):
        mean, var = new_rows(factor)
        P = factor.log_probability(mean, var).exp()
        assert P.shape == (20, factor.n_classes)
        torch.testing.assert_close(
            P.sum(1), torch.ones(20).double(), rtol=0, atol=1e-12
        )
        if classifier.two_classes or classifier is Ordinal:
            torch.testing.assert_close(
                factor.log_probability(-mean, var).exp(), P.flip(1), rtol=0, atol=1e-10
            )
        else:
            order = torch.randperm(
                factor.n_classes, generator=torch.Generator().manual_seed(0)
            )
            turned = factor.log_probability(mean[:, order], var[:, order]).exp()
            torch.testing.assert_close(turned, P[:, order], rtol=0, atol=1e-10)


def test_the_entropy_is_the_sum_of_its_parts(classifier):
    for factor in bound(classifier, epsilon=0.1):
        mean, var = new_rows(factor)
        noise = torch.full((factor.n_latent,), 0.3).double()
        if isinstance(factor, Softmax | Logistic):
            with pytest.raises(BadOption, match="noisy"):
                factor.uncertainty(mean, var, noise)
            noise = 0 * noise
        total, aleatoric, epistemic = factor.uncertainty(mean, var, noise)
        log_p = factor.log_probability(mean, var + noise)
        np.testing.assert_allclose(
            total, -(log_p.exp() * log_p).sum(1), rtol=0, atol=1e-6
        )
        close = (
            1e-9 if factor.n_latent == 1 else 0.01
        )  # three and more classes go by a quasi-random rule
        np.testing.assert_allclose(aleatoric + epistemic, total, rtol=0, atol=close)
        assert (aleatoric >= 0).all() and (epistemic >= 0).all()


def run_graph(factor: Likelihood, mean: torch.Tensor, var: torch.Tensor) -> np.ndarray:
    """Log-probabilities as onnxruntime computes them."""
    onnxruntime = pytest.importorskip("onnxruntime")
    graph = Graph()
    result = factor.log_probability(Value(graph, "mean"), Value(graph, "var"))
    helper, double = graph.onnx.helper, graph.onnx.TensorProto.DOUBLE
    inputs = [
        helper.make_tensor_value_info(x, double, ["n", factor.n_latent])
        for x in ("mean", "var")
    ]
    output = helper.make_tensor_value_info(result.name, double, ["n", factor.n_classes])
    model = helper.make_model(
        helper.make_graph(graph.nodes, "test", inputs, [output], graph.constants),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(None, {"mean": mean.numpy(), "var": var.numpy()})[0]


def assert_same_everywhere(factor: Likelihood) -> None:
    mean, var = new_rows(factor)
    log_p = factor.log_probability(mean, var)
    in_numpy = factor.log_probability(mean.numpy(), var.numpy())
    assert isinstance(in_numpy, np.ndarray)
    np.testing.assert_allclose(in_numpy, log_p, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(
        run_graph(factor, mean, var), log_p, rtol=1e-7, atol=1e-8
    )


def test_one_method_is_the_probabilities_of_torch_numpy_and_onnx(classifier):
    for factor in bound(classifier, epsilon=0.1):
        assert_same_everywhere(factor)


@pytest.mark.parametrize(
    "factor",
    [
        RobustMax(20, 0.01),
        RobustBinary(0.0),
        Logistic("probit"),
        LogisticPoint("mode"),
    ],
    ids=repr,
)
def test_options_and_many_classes_too(factor):
    assert_same_everywhere(factor)


# --- arguments -------------------------------------------------------------------------------------------
def test_arguments_go_in_and_out_by_name(kind):
    template = make_likelihood(kind, epsilon=0.25, noise=0.4, learn=True)
    other = clone(template)
    assert other is not template and other.get_params() == template.get_params()
    assert repr(eval(repr(template), dict(REGISTERED_LIKELIHOODS))) == repr(template)
    assert LIKELIHOODS.holds(template) and LIKELIHOODS[kind.__name__] is kind
    with pytest.raises(BadOption, match="'wrong'"):
        template.set_params(wrong=1)


def test_a_bound_likelihood_is_a_copy(classifier):
    template = make_likelihood(classifier, epsilon=0.25, learn=True)
    before = template.get_params()
    for C in (2,) if classifier.two_classes else (3, 7):
        factor = template.bind(C)
        assert (
            factor is not template
            and factor.n_classes == C
            and factor.n_latent == (1 if C == 2 or classifier is Ordinal else C)
        )
        for parameter in factor.parameters:
            parameter.data += 1.0
    assert template.get_params() == before and template.epsilon in (
        None,
        pytest.approx(0.25),
    )


def test_two_classes_have_one_latent_function(classifier):
    factor = make_likelihood(classifier, epsilon=0.25, learn=True).bind(2)
    assert factor.two_classes or classifier is Ordinal
    assert factor.n_latent == 1 and factor.n_classes == 2
    assert factor.epsilon in (None, pytest.approx(0.25))


def test_the_wrong_number_of_classes_is_an_error():
    with pytest.raises(BadOption, match="two classes"):
        Logistic().bind(3)
    for n_classes in (2, 3):
        for kind in (ProbitPairs, RobustMax, Softmax):
            with pytest.raises(BadOption, match="4 classes"):
                kind(4).bind(n_classes)
    with pytest.raises(BadOption, match="number of classes"):
        ProbitPairs().sites(torch.arange(3))
    with pytest.raises(BadOption, match=r"Gaussian.*regression"):
        Gaussian(1.0).bind(3)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_share_that_is_not_one_is_refused_before_a_fit(classes):
    for epsilon in (-0.1, 1.0, math.nan, "0.1", True):
        with pytest.raises(BadOption, match="share"):
            RobustMax(epsilon=epsilon).bind(classes)
    with pytest.raises(BadOption, match="learnt"):
        RobustMax(epsilon=0.0, learn=True).bind(classes)
    assert RobustMax(epsilon=0).bind(classes).epsilon == 0


# --- model files -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("learn", [False, True])
def test_what_was_learnt_survives_a_round_trip(kind, learn):
    for factor in every(kind, epsilon=0.25, noise=0.4, learn=learn):
        for parameter in factor.parameters:
            parameter.data += 0.3
        blank = (
            clone(factor)
            if isinstance(factor, Gaussian)
            else clone(factor).bind(factor.n_classes)
        )
        blank.load_state(factor.state())
        assert blank.epsilon == factor.epsilon and len(blank.parameters) == len(
            factor.parameters
        )
        assert all(
            torch.equal(a, b)
            for a, b in zip(blank.parameters, factor.parameters, strict=True)
        )
        f = marginals(factor)
        for call, exponent in calls(kind):
            got, want = (answer(x, call, f, exponent) for x in (blank, factor))
            assert torch.equal(got.value, want.value)


def test_damaged_values_are_refused(kind):
    for factor in every(kind, epsilon=0.25, noise=0.4, learn=True):
        state = factor.state()
        with pytest.raises(BadFile, match=kind.__name__):
            factor.load_state({**state, "unknown": torch.zeros(1)})
        for name, value in state.items():
            for damaged in (
                value.reshape(1, -1, 1),
                value.long(),
                torch.zeros(9).double(),
            ):
                with pytest.raises(BadFile, match=f"factor.{name} has shape"):
                    factor.load_state({**state, name: damaged})


def test_learnt_log_odds_are_asked_for():
    with pytest.raises(BadFile, match="RobustMax"):
        RobustMax(3, learn=True).load_state({})
    with pytest.raises(BadFile, match="float64"):
        RobustMax(3, learn=True).load_state(
            {"log_odds": torch.zeros(1).float()}, torch.float64
        )


# --- a likelihood of one's own ---------------------------------------------------------------------------
class Sharp(Likelihood):
    """p(y | f) = Φ(± slope · f): the defaults give all the rest."""

    two_classes = True
    n_classes = 2
    tempers = False

    def __init__(self, slope: float = 2.0) -> None:
        self.slope = slope
        self.log_slope = torch.nn.Parameter(
            torch.tensor([slope], dtype=torch.float64).log()
        )
        self.parameters = self.log_parameters = (self.log_slope,)

    def moments(self, f, y, exponent):
        sign = (2 * y - 1)[:, None].to(f.mean.dtype)
        scale = (f.var + (-2 * self.log_slope.detach()).exp()).rsqrt()
        alpha = sign * f.mean * scale
        beta = torch.exp(-0.5 * alpha**2 - torch.special.log_ndtr(alpha)) / math.sqrt(
            2 * math.pi
        )
        dv = -0.5 * beta * alpha * scale**2
        own = -2 * dv * (-2 * self.log_slope.detach()).exp()
        return Moments(
            torch.special.log_ndtr(alpha)[:, 0], sign * beta * scale, dv, dv, own
        )


def test_the_defaults_are_enough_for_a_likelihood_of_one_s_own():
    factor = Sharp(3.0).bind(2)
    mean, var = new_rows(factor)
    P = factor.log_probability(mean, var).exp()
    alpha = (mean / (var + 1 / 9).sqrt())[:, 0]
    torch.testing.assert_close(P[:, 1], torch.special.ndtr(alpha), rtol=1e-12, atol=0)
    in_numpy = factor.log_probability(mean.numpy(), var.numpy())
    np.testing.assert_allclose(np.exp(in_numpy), P, rtol=1e-12)
    assert (
        factor.sites(torch.tensor([0, 1])).tolist() == [[0], [0]]
        and factor.epsilon is None
    )
    factor.log_slope.data += 1.0
    other = Sharp()
    other.load_state(factor.state())
    assert torch.equal(other.log_slope, factor.log_slope) and clone(factor).slope == 3.0
    with pytest.raises(BadOption, match="uncertainty"):
        factor.uncertainty(mean, var, torch.zeros(1))
    with pytest.raises(BadOption, match=r"Sharp.*log_probability"):
        factor.log_probability(Value(Graph(), "mean"), Value(Graph(), "var"))


def test_one_latent_function_per_class_is_not_enough_for_two_classes():
    class Many(Likelihood):
        pass

    assert Many().bind(3).sites(torch.tensor([2])).tolist() == [[0, 1, 2]]
    with pytest.raises(BadOption, match=r"override bind\(n_classes\)"):
        Many().bind(2)

"""Entropy of a label, split into noise and uncertainty about f: laws of the integrals,
compared with Monte Carlo.
"""

import math

import numpy as np
import pytest
from scipy.special import xlogy

from cavity.engine.likelihoods.quadrature import information as module
from cavity.engine.likelihoods.quadrature.information import Latent, uncertainty
from cavity.engine.likelihoods.quadrature.noisy_argmax import Largest, Softened
from cavity.engine.likelihoods.quadrature.probabilities import log_largest, log_softmax
from reference.information import monte_carlo
from support import slow

LATTICE = (
    0.004  # nats; allowance for 1021 lattice points on top of the Monte Carlo error
)


def latents(n: int, C: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return 1.5 * rng.normal(size=(n, C)), rng.uniform(0.02, 1.5, (n, C))


def split(mean, var, noise, kind="largest", epsilon=0.0):
    if kind == "largest":
        log_p, choice = log_largest(mean, var + noise), Largest(noise)
    else:
        log_p, choice = log_softmax(mean, var), Softened(noise)
    return uncertainty(Latent(mean, var, log_p, epsilon), choice)


@pytest.mark.parametrize(
    "kind, epsilon, noise, C",
    [
        ("largest", 0.0, 0.1, 3),
        ("largest", 0.2, 0.5, 3),
        ("largest", 0.0, "unequal", 10),
        ("softmax", 0.0, 0.0, 10),
        ("softmax", 0.0, 0.0, 3),
    ],
)
def test_all_three_agree_with_monte_carlo(kind, epsilon, noise, C) -> None:
    mean, var = latents(10 if C == 3 else 5, C, seed=C)
    s = np.linspace(0.02, 0.6, C) if noise == "unequal" else np.full((C,), noise)
    got = split(mean, var, s, kind, epsilon)
    for value, (expected, error) in zip(
        got, monte_carlo(mean, var, s, kind, epsilon, 1000), strict=True
    ):
        difference = value - expected
        assert (np.abs(difference) < 4.5 * error + LATTICE).all()
        assert (
            abs(difference.mean())
            < 4 * np.sqrt((error**2).sum()) / len(error) + LATTICE / 2
        )


def test_a_very_small_noise_counts_as_a_small_one() -> None:
    mean, var = latents(3, 3)
    narrow, wide = np.array([1e-6, 0.3, 0.1]), np.array([2e-3, 0.3, 0.1])
    assert 201 >= Largest(narrow).terms > Largest(wide).terms
    for a, b in zip(split(mean, var, narrow), split(mean, var, wide), strict=True):
        np.testing.assert_allclose(a, b, atol=0.01)


@pytest.mark.parametrize("kind", ["largest", "softmax"])
@pytest.mark.parametrize("C", [3, 7])
def test_the_parts_add_up_to_the_whole(kind, C) -> None:
    mean, var = latents(20, C)
    total, aleatoric, epistemic = split(
        mean, var, np.full((C,), 0.1 * (kind == "largest")), kind
    )
    assert (epistemic >= 0).all() and (aleatoric >= 0).all()
    np.testing.assert_allclose(aleatoric + epistemic, total, atol=0.01)


def test_where_only_two_can_win_the_sum_is_exact() -> None:
    mean, var = latents(30, 3)
    mean[:, 2] -= 60
    total, aleatoric, epistemic = split(mean, var, np.full((3,), 0.1))
    np.testing.assert_allclose(aleatoric + epistemic, total, atol=1e-9)
    assert aleatoric.max() > 0.1 and epistemic.max() > 0.1


def test_a_class_that_cannot_win_changes_nothing() -> None:
    mean, var = latents(20, 3)
    more = np.hstack([mean, np.full((20, 1), -80.0)]), np.hstack([var, var[:, :1]])
    three, four = (
        split(*f, np.full((f[0].shape[1],), 0.1)) for f in ((mean, var), more)
    )
    for a, b in zip(three, four, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


def test_known_latent_values_leave_no_epistemic_part() -> None:
    mean, _ = latents(20, 4)
    total, aleatoric, epistemic = split(mean, np.zeros((20, 4)), np.full((4,), 0.3))
    np.testing.assert_allclose(epistemic, 0, atol=1e-5)
    np.testing.assert_allclose(aleatoric, total, atol=1e-4)


@pytest.mark.parametrize("epsilon", [0.0, 0.3])
def test_without_noise_only_random_labels_are_aleatoric(epsilon) -> None:
    mean, var = latents(20, 3)
    total, aleatoric, epistemic = split(mean, var, np.zeros(3), epsilon=epsilon)
    sure = np.array([1 - epsilon + epsilon / 3, epsilon / 3, epsilon / 3])
    expected = -sum(p * math.log(p) for p in sure if p > 0)
    np.testing.assert_allclose(aleatoric, expected, atol=1e-12)
    np.testing.assert_allclose(aleatoric + epistemic, total, atol=1e-12)


def test_hundreds_of_contenders_go_in_pieces(monkeypatch) -> None:
    C = 240
    mean, var = 0.1 * np.sin(np.arange(C))[None], np.full((1, C), 0.5)
    sizes, among = [], Largest.among
    monkeypatch.setattr(
        Largest, "among", lambda self, f, c: sizes.append(f.size) or among(self, f, c)
    )
    total, aleatoric, epistemic = split(mean, var, np.full((C,), 0.1))
    assert len(sizes) > 1
    assert max(sizes) * Largest(np.ones(2)).terms * 4 <= module.BYTES
    assert aleatoric + epistemic == pytest.approx(total, rel=0.02)


@pytest.mark.parametrize("kind", ["largest", "softmax"])
@pytest.mark.parametrize("C", [130, slow(400)])
def test_the_parts_are_finite_for_any_number_of_contenders(kind, C) -> None:
    """A product of C distribution functions must neither overflow nor vanish in single
    precision.
    """
    mean, var = 0.1 * np.sin(np.arange(C))[None], np.full((1, C), 0.5)
    choice = (
        Largest(np.full((C,), 10.0)) if kind == "largest" else Softened(np.zeros(C))
    )
    log_p = log_largest(mean, var + choice.noise)
    total, aleatoric, epistemic = uncertainty(Latent(mean, var, log_p, 0.0), choice)
    assert np.isfinite(aleatoric).all() and np.isfinite(epistemic).all()
    assert aleatoric + epistemic == pytest.approx(total, rel=0.05)


@pytest.mark.parametrize("noise", [1e-36, 1e-12, 1e12, 1e36])
def test_the_probabilities_of_given_latent_values_do_not_depend_on_the_unit(
    noise,
) -> None:
    f = np.random.default_rng(0).normal(size=(1, 5, 20)) * np.logspace(-1, 2, 20)
    chosen = np.arange(5)[None]
    got = Largest(np.full((5,), noise)).among(noise**0.5 * f, chosen)
    np.testing.assert_allclose(got, Largest(np.ones(5)).among(f, chosen), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.05, 0.3])
def test_the_parts_of_120_contenders_are_right_to_a_hundredth(noise) -> None:
    C = 120
    mean, var = 0.3 * np.cos(np.arange(C))[None], np.full((1, C), 1.5)
    s = np.full((C,), noise)
    got = split(mean, var, s)
    choice, log_p = Largest(s), log_largest(mean, var + s)
    rng = np.random.default_rng(1)
    entropies = []
    for _ in range(20):
        f = mean[..., None] + np.sqrt(var)[..., None] * rng.normal(size=(1, C, 2000))
        p = choice.among(f, np.arange(C)[None])[0]
        entropies.append(-xlogy(p, p).sum(0))
    expected = np.concatenate(entropies)
    error = 4 * expected.std() / len(expected) ** 0.5
    assert abs(got.aleatoric - expected.mean()) < 0.01 + error
    assert abs(got.epistemic - (got.total - expected.mean())) < 0.01 + error
    assert got.total == pytest.approx(-float((np.exp(log_p) * log_p).sum()))

"""The trapezoidal rule for the largest of C normals against panels that are many times finer."""

import pytest
import torch
from scipy import special

from cavity.likelihoods.normal_tails import log_normal_pdf
from cavity.likelihoods.quadrature import argmax, cdf_table, trapezoid
from cavity.likelihoods.quadrature.grid import bumps


def draw(C, spread, decades, n=40, seed=0):
    generator = torch.Generator().manual_seed(seed + C)
    mean = spread * torch.randn(n, C, dtype=torch.float64, generator=generator)
    return mean, 10 ** (decades * (torch.rand(n, C, dtype=torch.float64, generator=generator) - 0.5))


def by_fine_panels(mean, sd):
    edges = bumps(mean, sd)
    steps = torch.linspace(0, 1, 5, dtype=torch.float64)[:-1]
    fine = (edges[:, :-1, None] + edges.diff(dim=1)[..., None] * steps).flatten(1)
    return argmax._integrate(mean, sd, torch.cat([fine, edges[:, -1:]], 1))


@pytest.mark.parametrize("C", [2, 3, 10, 16, 17, 40])
@pytest.mark.parametrize(("spread", "decades"), [(0.3, 0.5), (1.0, 0.0), (3.0, 0.5), (3.0, 1.0), (8.0, 0.3)])
def test_resolved_rows_are_accurate_in_both_scales(C, spread, decades):
    """Also those of a crowd, whose steps grow on the right, and whose span ends where the product of all classes has fallen."""
    crowd = C > trapezoid.CROWD
    mean, sd = draw(C, spread, decades, n=240 // C if crowd else 40)
    log_p, left = trapezoid.log_probabilities(mean, sd)
    exact = by_fine_panels(mean, sd)
    assert left.double().mean() < (0.5 if crowd else 0.3)
    torch.testing.assert_close(log_p[~left].exp(), exact[~left].exp(), rtol=0, atol=1e-11)
    seen = ~left[:, None] & (exact > -300)
    torch.testing.assert_close(log_p[seen], exact[seen], rtol=0, atol=1e-8 if crowd else 1e-9)


@pytest.mark.parametrize("C", [10, 30, 100])
@pytest.mark.parametrize("leader", [2.0, 5.0, 8.0])
def test_a_crowd_below_the_leader(C, leader):
    """Many equal classes make the integrand sharper than any of them."""
    mean, sd = torch.zeros(1, C, dtype=torch.float64), torch.ones(1, C, dtype=torch.float64)
    mean[0, 0] = leader
    log_p, left = trapezoid.log_probabilities(mean, sd)
    exact = by_fine_panels(mean, sd)
    assert not left.any()
    torch.testing.assert_close(log_p, exact, rtol=0, atol=1e-9 if C <= 16 else 1e-8)


@pytest.mark.parametrize("leader", [0.0, 3.0, 6.0])
@pytest.mark.parametrize("C", [100, 300, 1000])
def test_the_span_of_hundreds_of_classes_is_scanned(C, leader):
    """Against a long sum in logarithms over a range that surely holds the mass; before, 1,000 equal classes were left."""
    mean, sd = draw(C, 0.3, 0.3, n=2)
    mean[:, 0] += leader
    log_p, left = trapezoid.log_probabilities(mean, sd)
    span = trapezoid.find_span(mean, sd)
    low, high = (mean - 9 * sd).amax(1), (mean + 12 * sd).amax(1)
    assert not left.any() and float(span.panels.max()) < 200
    assert (span.low < span.high).all() and (span.high <= high + 3).all()
    f = torch.lerp(low[:, None], high[:, None], torch.linspace(0, 1, 2001, dtype=torch.float64))
    z = (f[..., None] - mean[:, None]) / sd[:, None]
    log_cdf = torch.special.log_ndtr(z)
    log_g = log_normal_pdf(z) - sd[:, None].log() + log_cdf.sum(-1, keepdim=True) - log_cdf
    exact = log_g.logsumexp(1) + ((high - low) / 2000).log()[:, None]
    torch.testing.assert_close(log_p, exact, rtol=0, atol=1e-9)


def test_rows_that_the_rule_cannot_resolve_are_left():
    """Widths that differ a thousandfold, a probability below the range of float64, and widths of zero."""
    mean = torch.tensor([[0.0, 0.1, 0.2], [0.0, 60.0, 0.0], [0.0, 1.0, 2.0], [0.0, 0.5, 1.0]]).double()
    sd = torch.tensor([[1.0, 1e-3, 1e-3], [1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]).double()
    _, left = trapezoid.log_probabilities(mean, sd)
    assert left.tolist() == [True, True, True, False]


@pytest.mark.parametrize("C", [2, 5, 30])
def test_the_span_holds_the_mass_of_every_class(C):
    """Integrating far beyond it with more nodes changes nothing."""
    mean, sd = draw(C, 4.0, 0.6)
    span = trapezoid.find_span(mean, sd)
    more = 0.2 * (span.high - span.low)
    nodes = 6 * int(span.panels.max())
    wider = span._replace(low=span.low - more, high=span.high + more)
    inside, beyond = (
        trapezoid.integrate(mean, sd, *trapezoid.place_nodes(s, nodes, crowd=False), trapezoid.by_erfcx)[0]
        for s in (span, wider)
    )
    torch.testing.assert_close(inside.log(), beyond.log(), rtol=0, atol=1e-10)


def test_the_table_of_log_cdf_agrees_with_scipy():
    """Inside the table, at its ends and beyond; cells of zero beyond HIGH."""
    z = torch.cat([torch.linspace(-37, 9, 200_001).double(), torch.tensor([9.5, 40.0, 1e300]).double()])
    expected = torch.from_numpy(special.log_ndtr(z.numpy()))

    def log_cdf(z):
        return -cdf_table.Workspace(len(z)).minus_log_cdf(cdf_table.CELLS * z)

    torch.testing.assert_close(log_cdf(z), expected, rtol=3e-15, atol=1e-13)
    below = torch.tensor([-37.5, -1e300]).double()
    assert (log_cdf(below) == log_cdf(torch.tensor([-37.0]).double())).all()
    assert log_cdf(torch.tensor([torch.nan, 1.0]).double()).isnan().tolist() == [True, False]


@pytest.mark.parametrize(("C", "spread", "decades"), [(3, 8.0, 1.0), (10, 3.0, 0.5), (60, 1.0, 0.3)])
def test_sums_from_the_table_agree_with_those_from_erfcx(C, spread, decades):
    """Also where widths differ so much that nodes are hundreds of standard deviations away."""
    mean, sd = draw(C, spread, decades)
    sd[::5, 0] *= 0.02
    f, weight = trapezoid.place_nodes(trapezoid.find_span(mean, sd), 301, crowd=False)
    by_table = cdf_table.make_evaluator(f.numel() * C)
    (p, change), (expected, expected_change) = (
        trapezoid.integrate(mean, sd, f, weight, evaluate) for evaluate in (by_table, trapezoid.by_erfcx)
    )
    assert ((f[:, None] - mean[..., None]) / sd[..., None]).abs().amax() > 37
    seen = expected > 1e-280
    assert seen.double().mean() > 0.5
    torch.testing.assert_close(p[seen].log(), expected[seen].log(), rtol=0, atol=1e-11)
    torch.testing.assert_close(change[seen], expected_change[seen], rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("C", [2, 10, 40, 200])
def test_rows_in_numpy_equal_rows_in_torch(C):
    mean, sd = draw(C, 3.0, 0.6)
    sd[-1] = 0
    log_p, left = trapezoid.log_probabilities(mean, sd)
    found, unresolved = trapezoid.log_probabilities(mean.numpy(), sd.numpy())
    assert unresolved.tolist() == left.tolist() and unresolved[-1]
    torch.testing.assert_close(torch.from_numpy(found)[~left], log_p[~left], rtol=1e-12, atol=2e-13)

"""What every registered kernel promises, sums and products included."""

import operator
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.base import clone

import cavity
from cavity.common.column_statistics import Columns
from cavity.common.namespaces import NUMPY
from cavity.common.onnx_graph import IR_VERSION, OPSET, Graph, Value
from cavity.common.torch_namespace import TORCH
from cavity.engine.kernels.base import formula_of
from cavity.engine.kernels.formulas import SHAPES, PairFormula
from cavity.errors import BadOption
from cavity.kernels import KERNELS, RBF, Constant, Kernel, Linear, Stationary
from reference import kernels as written_out
from registered import REGISTERED_KERNELS, assert_same_elsewhere, make_kernel
from support import toy

C, M, N, D = 2, 4, 5, 3
COLUMNS = Columns(np.array([0.4, -2.0, 1.0]), np.array([1.5, 0.2, 4.0]), 1.7)
LENGTHSCALE = COLUMNS.spread * np.array([[0.9, 1.4, 2.0], [1.1, 0.8, 0.6]])
VARIANCE = np.array([1.3, 0.4])
ALPHA = np.array([0.7, 2.5])


def example(kind: type[Kernel]) -> Kernel:
    return make_kernel(kind, lengthscale=LENGTHSCALE, variance=VARIANCE, alpha=ALPHA)


EXAMPLES = {name: partial(example, kind) for name, kind in REGISTERED_KERNELS.items()}
ROUGH = {
    "Matern12",
    "Matern32",
    "Product",
}  # a square root of rounding errors where points coincide


def bound(name: str, classes: int = C) -> Kernel:
    kernel = EXAMPLES[name]()
    if classes == 1:
        kernel = first_class(kernel)
    kernel.bind(classes, COLUMNS)
    return kernel


def first_class(kernel: Kernel) -> Kernel:
    """The kernel with the first class's values alone."""
    for part in kernel.modules():
        for name in ("lengthscale", "variance", "alpha"):
            value = getattr(part, name, None)
            if isinstance(value, np.ndarray):
                setattr(part, name, value[:1])
    return kernel


def points(classes: int = C, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Z [C M D] and X [N D] in the columns' units."""
    rng = np.random.default_rng(seed)
    Z, X = rng.normal(size=(classes, M, D)), rng.normal(size=(N, D))
    return (torch.tensor(COLUMNS.center + COLUMNS.spread * A) for A in (Z, X))


@pytest.fixture(params=EXAMPLES)
def name(request):
    return request.param


def test_full_is_symmetric_and_positive_semidefinite(name):
    Z, _ = points()
    K = bound(name).full(Z).detach()
    assert K.shape == (C, M, M)
    torch.testing.assert_close(K, K.mT, rtol=0, atol=1e-14)
    assert torch.linalg.eigvalsh(K).min() > -1e-12


def test_cross_at_the_same_points_is_full(name):
    Z, _ = points()
    kernel = bound(name)
    for c in range(C):
        K, B = kernel.full(Z)[c], kernel.cross(Z, Z[c])[c]
        torch.testing.assert_close(B, K, rtol=0, atol=1e-7 if name in ROUGH else 1e-13)


def test_diag_is_the_diagonal(name):
    _, X = points()
    kernel = bound(name)
    same = X.expand(C, -1, -1)
    torch.testing.assert_close(
        kernel.diag(X), kernel.full(same).diagonal(dim1=-2, dim2=-1).clone()
    )
    assert kernel.diag(X).shape == (C, N)


def test_shared_parameters_are_the_first_class_s(name):
    """Bound for one class, the leading axis is 1 or broadcasts to Z's; values are those
    of class 0.
    """
    Z, X = points()
    one, each = bound(name, 1), bound(name)
    torch.testing.assert_close(one.full(Z[:1]), each.full(Z)[:1])
    torch.testing.assert_close(one.cross(Z[:1], X), each.cross(Z, X)[:1])
    torch.testing.assert_close(one.diag(X), each.diag(X)[:1])
    shared = one.cross(Z, X)
    assert shared.shape in {(C, M, N), (1, M, N)}  # 1: no class differs from another
    torch.testing.assert_close(shared[:1], each.cross(Z, X)[:1])


def test_shared_inducing_points_are_equal_ones(name):
    Z, X = points()
    kernel = bound(name)
    copies = Z[:1].expand(C, -1, -1).clone()
    torch.testing.assert_close(kernel.full(Z[:1]), kernel.full(copies))
    torch.testing.assert_close(kernel.cross(Z[:1], X), kernel.cross(copies, X))


@pytest.mark.parametrize("classes", [1, C])
@pytest.mark.parametrize("sets", [1, C])
def test_gradients_of_full_cross_and_diag(name, classes, sets):
    """In every parameter, in Z and (cross, diag) in X: central differences of each
    entry.
    """
    kernel = bound(name, classes)
    Z, X = points(sets)
    parameters = tuple(kernel.parameters())

    def values(Z, X, *_):
        return kernel.full(Z), kernel.cross(Z, X), kernel.diag(X)

    inputs = (Z.requires_grad_(), X.requires_grad_(), *parameters)
    assert torch.autograd.gradcheck(values, inputs, eps=1e-6, atol=1e-6, rtol=1e-5)


def test_gradients_are_finite_where_points_coincide(name):
    Z, X = points()
    X = torch.cat([X, Z[0, :2]])
    Z = Z.clone()
    Z[:, 1] = Z[:, 0]
    Z.requires_grad_()
    kernel = bound(name)
    total = kernel.full(Z).sum() + kernel.cross(Z, X).sum() + kernel.diag(X).sum()
    for gradient in torch.autograd.grad(
        total, (Z, *kernel.parameters()), allow_unused=True
    ):
        assert gradient is None or gradient.isfinite().all()


def test_settle_writes_back_what_was_given(name):
    kernel = bound(name)
    before = {k: v for k, v in kernel.get_params().items() if isinstance(v, np.ndarray)}
    Z, X = points()
    K = kernel.cross(Z, X).detach()
    kernel.settle(C)
    after = kernel.get_params()
    for key, value in before.items():
        np.testing.assert_allclose(after[key], value, rtol=1e-14)
    kernel.bind(C, COLUMNS)
    torch.testing.assert_close(kernel.cross(Z, X).detach(), K)


def test_parameters_in_and_out_by_name(name):
    kernel = EXAMPLES[name]()
    params = kernel.get_params()
    keys = [key for key in params if key.rsplit("__")[-1] == "variance"]
    assert keys
    for key in keys:
        kernel.set_params(**{key: 9.0})
    assert all(kernel.get_params()[key] == 9.0 for key in keys)
    with pytest.raises(BadOption, match="'wrong'"):
        kernel.set_params(wrong=1)


def test_a_clone_has_the_same_parameters_and_representation(name):
    kernel = EXAMPLES[name]()
    other = clone(kernel)
    assert (
        other is not kernel
        and repr(other) == repr(kernel)
        and type(kernel).__name__ in KERNELS
    )
    assert other.get_params().keys() == kernel.get_params().keys()
    assert KERNELS.holds(kernel) and KERNELS[type(kernel).__name__] is type(kernel)


# --- draws of the prior ---------------------------------------------------------------
class UnitVectors(np.random.RandomState):
    """Draws the unit vectors, so that Σ f fᵀ over all draws is the covariance."""

    def standard_normal(self, size):
        return np.broadcast_to(np.eye(*size[1:]), size)


@pytest.mark.parametrize("classes", [1, C])
def test_draws_have_the_covariance_of_the_kernel(name, classes):
    """Exactly, over all directions; a copy that is not bound yet draws the same."""
    kernel = bound(name, classes)
    _, X = points()
    f = kernel.sample(X.numpy(), N, UnitVectors())
    assert f.shape == ((N, N) if classes == 1 else (C, N, N))
    K = kernel.full(X.expand(classes, -1, -1)).detach().numpy()
    found = f.reshape(classes, N, N)
    atol = 1e-7 if name in ROUGH else 1e-13
    np.testing.assert_allclose(found.swapaxes(1, 2) @ found, K, rtol=0, atol=atol)


def test_draws_of_a_kernel_that_no_fit_has_bound():
    rows = np.linspace(0, 3, 6)[:, None]
    k = written_out.rbf(rows, rows, 0.7, 1.5)
    f = RBF(0.7, 1.5).sample(rows, 6, UnitVectors())
    np.testing.assert_allclose(f.T @ f, k, rtol=0, atol=1e-13)
    both = (RBF([[0.7], [2.0]], 1.5) + Constant(0.3)).sample(rows, 6, UnitVectors())
    np.testing.assert_allclose(both[0].T @ both[0], k + 0.3, rtol=0, atol=1e-13)
    draws = RBF(0.7, 1.5).sample(rows, 40_000, random_state=0)
    assert np.array_equal(draws, RBF(0.7, 1.5).sample(rows, 40_000, random_state=0))
    # standard error of a covariance: at most 1.5 √(2/n)
    np.testing.assert_allclose(draws.T @ draws / len(draws), k, rtol=0, atol=0.05)
    np.testing.assert_allclose(draws.mean(0), 0, atol=0.03)
    first, second = RBF([[0.7], [2.0]]).sample(rows, 40_000, random_state=0)
    assert np.abs(first.T @ second / len(first)).max() < 0.03  # classes are independent
    fading = Linear(fades=True)
    f = fading.sample(np.r_[rows, [[90.0]]], 7, UnitVectors())
    assert (f**2).sum(0)[-1] > 1  # far away it is noise, with a variance
    with pytest.raises(cavity.BadInput, match="X\\[:, None\\]"):
        RBF().sample(rows[:, 0], 1)


def test_a_fitted_kernel_draws_with_its_learnt_values():
    X, y = toy(40, 3, D)
    clf = cavity.GPClassifier("ep", n_inducing=6, max_epochs=3, random_state=0)
    kernel = clf.fit(X, y).kernel_
    f = kernel.sample(X[:N], N, UnitVectors())
    for c in range(3):
        k = written_out.rbf(X[:N], X[:N], kernel.lengthscale[c], kernel.variance[c])
        np.testing.assert_allclose(f[c].T @ f[c], k, rtol=0, atol=1e-12)


# --- one formula in torch, NumPy and ONNX ----------------------------------------------------------------
def run_graph(formula, points, X: np.ndarray) -> list[np.ndarray]:
    """k(Z, X) and k(x, x) of a formula, by onnxruntime."""
    onnxruntime = pytest.importorskip("onnxruntime")
    graph = Graph()
    helper, double = graph.onnx.helper, graph.onnx.TensorProto.DOUBLE
    rows = Value(graph, "X")
    found = [formula.cross(points, rows), formula.diag(rows)]
    inputs, *outputs = (
        helper.make_tensor_value_info(name, double, None)
        for name in ("X", *(v.name for v in found))
    )
    made = helper.make_model(
        helper.make_graph(graph.nodes, "kernel", [inputs], outputs, graph.constants),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    return onnxruntime.InferenceSession(made.SerializeToString()).run(None, {"X": X})


def assert_one_formula(kernel: Kernel) -> None:
    """`cross` and `diag`, the formula in torch, in NumPy and as a graph agree, also far
    from the centre and for one row.
    """
    Z, X = points()
    X = torch.cat(
        [X, torch.tensor([[30.0], [1e6], [1e200]], dtype=torch.float64) * X[:1]]
    )
    in_torch, in_numpy = formula_of(kernel, TORCH), formula_of(kernel, NUMPY)
    Z_of, points_of = in_torch.prepare(Z), in_numpy.prepare(Z.numpy())
    for rows in (X, X[:1], X[-1:]):
        expected = [
            np.broadcast_to(k.detach(), (C, *k.shape[1:]))
            for k in (kernel.cross(Z, rows), kernel.diag(rows))
        ]
        same = in_torch.cross(Z_of, rows).detach(), in_torch.diag(rows).detach()
        arrays = in_numpy.cross(points_of, rows.numpy()), in_numpy.diag(rows.numpy())
        for got in (same, arrays, run_graph(in_numpy, points_of, rows.numpy())):
            for found, value in zip(got, expected, strict=True):
                np.testing.assert_allclose(found, value, rtol=1e-9, atol=1e-10)


def test_torch_numpy_and_onnx_compute_one_formula(name):
    assert_one_formula(bound(name))


class Cauchy(Stationary):
    """A new kernel: one method."""

    @staticmethod
    def shape(xp, d2):
        return -xp.log1p(d2)


class Tempered(Stationary):
    """A new kernel with a hyper-parameter of its own."""

    own = ("power",)

    def __init__(self, lengthscale=None, variance=1.0, power=0.5):
        super().__init__(lengthscale, variance)
        self.power = power

    @staticmethod
    def shape(xp, d2, power):
        return -power * xp.sqrt(d2)


@pytest.mark.parametrize(
    "new", [Cauchy(LENGTHSCALE, VARIANCE), Tempered(LENGTHSCALE, VARIANCE, ALPHA)]
)
def test_a_new_kernel_is_one_method_in_torch_numpy_and_onnx(new):
    for kernel in (clone(new), clone(new) * RBF() + Constant(0.3)):
        kernel.bind(C, COLUMNS)
        assert_one_formula(kernel)
        kernel.settle(C)
    new.bind(C, COLUMNS)
    learnt = {name for name, _ in new.named_parameters()}
    assert learnt == {f"log_{name}" for name in ("lengthscale", "variance", *new.own)}


class Squared(Kernel):
    """A new kernel that is not stationary: one formula."""

    def __init__(self, base):
        super().__init__()
        self.base = base

    def bind(self, classes, columns):
        self.base.bind(classes, columns)

    def formula(self, xp):
        inner = self.base.formula(xp)
        return PairFormula(operator.mul, inner, inner)


def test_all_calls_of_a_kernel_follow_from_its_formula():
    kernel = Squared(Linear(LENGTHSCALE, VARIANCE))
    kernel.bind(C, COLUMNS)
    assert_one_formula(kernel)
    Z, X = points()
    for call in (
        lambda k: k.full(Z),
        lambda k: k.cross(Z, X),
        lambda k: k.diag(X),
    ):
        torch.testing.assert_close(call(kernel), call(kernel.base).square())


def test_the_library_s_shapes_are_those_that_are_read_without_torch():
    library = {
        k.__name__: k.shape
        for k in REGISTERED_KERNELS.values()
        if issubclass(k, Stationary)
    }
    assert library == SHAPES


# --- from end to end -------------------------------------------------------------------------------------
@pytest.mark.parametrize("classes", [2, 3])
def test_fit_predict_save_load_and_onnx(name, classes, tmp_path):
    X, y = toy(60, classes, D)
    kernel = make_kernel(REGISTERED_KERNELS[name])
    clf = cavity.GPClassifier(
        kernel=kernel, calibration=None, n_inducing=6, max_epochs=3, random_state=0
    ).fit(X, y)
    P = clf.predict_proba(X)
    assert (
        P.shape == (60, classes)
        and np.isfinite(P).all()
        and type(clf.kernel_) is type(kernel)
    )
    assert_same_elsewhere(clf, X, tmp_path)


# --- values ----------------------------------------------------------------------------------------------
STATIONARY = {
    "RBF": written_out.rbf,
    "Matern12": written_out.matern12,
    "Matern32": written_out.matern32,
    "Matern52": written_out.matern52,
}


@pytest.mark.parametrize("kind", STATIONARY)
def test_values_against_the_formulas(kind):
    Z, X = points()
    kernel = bound(kind)
    for c in range(C):
        k = lambda A, B, c=c: STATIONARY[kind](A, B, LENGTHSCALE[c], VARIANCE[c])
        np.testing.assert_allclose(
            kernel.full(Z)[c].detach(), k(Z[c].numpy(), Z[c].numpy()), atol=1e-13
        )
        np.testing.assert_allclose(
            kernel.cross(Z, X)[c].detach(), k(Z[c].numpy(), X.numpy()), atol=1e-13
        )
        np.testing.assert_allclose(kernel.diag(X)[c].detach(), VARIANCE[c])


def test_rational_quadratic_against_the_formula():
    Z, X = (A.numpy() for A in points())
    got = (
        bound("RationalQuadratic")
        .cross(torch.tensor(Z), torch.tensor(X))
        .detach()
        .numpy()
    )
    for c in range(C):
        k = written_out.rational_quadratic(
            Z[c], X, LENGTHSCALE[c], VARIANCE[c], ALPHA[c]
        )
        np.testing.assert_allclose(got[c], k, atol=1e-13)


def test_linear_is_linear_around_the_centre():
    Z, X = (A.numpy() - COLUMNS.center for A in points())
    kernel = bound("Linear")
    got = kernel.cross(*points()).detach().numpy()
    for c in range(C):
        scale = VARIANCE[c] / LENGTHSCALE[c] ** 2
        np.testing.assert_allclose(
            got[c], written_out.linear(Z[c], X, scale), atol=1e-13
        )


def test_sums_and_products_are_sums_and_products():
    Z, X = points()
    a, b = bound("RBF"), bound("Linear")
    for call in (lambda k: k.full(Z), lambda k: k.cross(Z, X), lambda k: k.diag(X)):
        torch.testing.assert_close(call(a + b), call(a) + call(b))
        torch.testing.assert_close(call(a * b), call(a) * call(b))


def test_the_unset_lengthscale_is_the_median_distance_in_each_column_s_spread():
    kernel = RBF()
    kernel.bind(C, COLUMNS)
    kernel.settle(C)
    np.testing.assert_allclose(
        kernel.lengthscale, np.tile(COLUMNS.spread * COLUMNS.distance, (C, 1))
    )


def test_units_do_not_matter_to_the_last_bit():
    """A column times 1024, its statistics with it: not one bit of the kernel changes."""
    Z, X = points()
    scale = np.array([1024.0, 1.0, 2.0**-30])
    other = RBF(LENGTHSCALE * scale, VARIANCE)
    other.bind(
        C, Columns(COLUMNS.center * scale, COLUMNS.spread * scale, COLUMNS.distance)
    )
    stretched = other.cross(Z * torch.tensor(scale), X * torch.tensor(scale))
    assert torch.equal(stretched, bound("RBF").cross(Z, X))


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
def test_parameters_must_be_positive(value):
    with pytest.raises(BadOption, match=r"lengthscale.*positive"):
        RBF(value).bind(C, COLUMNS)


def test_parameters_must_fit_classes_and_columns():
    with pytest.raises(BadOption, match=r"lengthscale.*shape"):
        RBF(np.ones((5, D))).bind(C, COLUMNS)
    with pytest.raises(BadOption, match=r"variance.*3 .*2"):
        RBF(1.0, np.ones(3)).bind(C, COLUMNS)
    with pytest.raises(BadOption, match=r"3 columns.*2"):
        bound("RBF").cross(torch.zeros(C, M, 2), torch.zeros(4, 2))


def test_single_precision_is_close(name):
    Z, X = points()
    kernel = bound(name)
    exact = kernel.cross(Z, X).detach()
    rounded = kernel.float().cross(Z.float(), X.float()).detach()
    assert rounded.dtype == torch.float32
    torch.testing.assert_close(rounded.double(), exact, rtol=2e-5, atol=1e-5)


EXTREMES = np.array([0.0, 1e8, 1e30, 1e76, 1e155, 1e200, 1.7e308])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_every_finite_row_has_finite_values(name, dtype):
    """A cell such as 1e155 has a square that overflows; the kernel must not.

    A variance bounds every covariance.
    """
    kernel = bound(name).to(dtype)
    Z, _ = points()
    cells = np.concatenate([EXTREMES, -EXTREMES])
    rows = np.concatenate(
        [np.eye(D)[[i]] * cells[:, None] for i in range(D)]
        + [np.outer(cells, [1.0, -1.0, 1e-9])]
    )
    X = torch.tensor(COLUMNS.center + rows).to(dtype)
    cross, diag = kernel.cross(Z.to(dtype), X).detach(), kernel.diag(X).detach()
    assert cross.isfinite().all() and diag.isfinite().all()
    own = kernel.diag(Z[0].to(dtype))[:, :, None].detach()
    assert (cross[0].square() <= 1.001 * own[0] * diag[0][None]).all()


def test_a_linear_function_keeps_its_direction_far_away():
    kernel = bound("Linear")
    Z, _ = points()
    direction = torch.tensor([[1.0, -2.0, 0.5]]).double()
    near, far = (
        kernel.cross(Z, kernel.center + scale * direction).detach()
        for scale in (1e20, 1e200)
    )
    np.testing.assert_allclose(
        far / far.abs().max(), near / near.abs().max(), rtol=1e-9
    )

"""A damaged or forged model file is refused in words: nothing is run, nothing huge is
made, no other error escapes.
"""

import json
import os
import resource
import struct
import time

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from safetensors.torch import load as parse
from safetensors.torch import save as serialise

import cavity
from cavity import BadFile
from cavity.common import tensor_files
from saved.make_models import FOLDER
from support import without_warnings


def sealed(tensors, text):
    """A file with the digest of its contents, so that only what it holds is wrong."""
    return serialise(
        tensors, {"cavity": text, "sha256": tensor_files.digest(tensors, text)}
    )


class Sample:
    """A sound file, taken apart."""

    def __init__(self, content):
        self.content = content
        self.length = struct.unpack("<Q", self.content[:8])[0]
        self.header = json.loads(self.content[8 : 8 + self.length])
        self.meta = json.loads(self.header["__metadata__"]["cavity"])
        self.tensors = parse(self.content)
        self.places = [p for p in places(self.meta) if p]
        self.of_header = [
            p
            for p in places(
                {k: v for k, v in self.header.items() if k != "__metadata__"}
            )
            if p
        ]

    def container(self, header):
        text = json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text + self.content[8 + self.length :]

    def file(self, meta=None, tensors=None):
        """A sound container of other contents."""
        return sealed(
            self.tensors if tensors is None else tensors,
            json.dumps(self.meta if meta is None else meta),
        )

    def changed(self, *path, to):
        """The meta data with one place changed, or without it."""
        return self.file(replaced(self.meta, path, to, to is KeyError))

    def with_tensor(self, name, change):
        tensors = dict(self.tensors)
        new = change(tensors.pop(name))
        return self.file(
            tensors=tensors | ({} if new is None else {name: new.contiguous()})
        )


def places(value, path=()):
    yield path
    items = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, inner in items:
        yield from places(inner, (*path, key))


def replaced(value, path, new, drop):
    copy = json.loads(json.dumps(value))
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    if drop:
        del inner[path[-1]]
    else:
        inner[path[-1]] = new
    return copy


CLASSIFIER, REGRESSOR = (
    Sample((FOLDER / f"format-{tensor_files.FORMAT}{name}.cavity").read_bytes())
    for name in ("", "-regressor")
)
CONTENT, HEADER, META, TENSORS = (
    getattr(CLASSIFIER, name) for name in ("content", "header", "meta", "tensors")
)
container, file, changed, with_tensor = (
    getattr(CLASSIFIER, name)
    for name in ("container", "file", "changed", "with_tensor")
)


def another_digest(sample):
    """The file with the digest of other contents."""
    header = replaced(sample.header, ("__metadata__", "sha256"), "0" * 64, False)
    return sample.container(header)


def load(content, tmp_path):
    path = tmp_path / "model.cavity"
    path.write_bytes(content)
    return cavity.load(path)


def nan(t):
    t = t.clone()
    t.view(-1)[0] = float("nan")
    return t


def solver(tol):
    """The method of the regressor's file, with another tolerance."""
    return {"method": "ConjugateGradients", "arguments": {"tol": tol}}


def deep(levels):
    packed = {"kernel": "RBF", "number": 0, "arguments": {}}
    for i in range(levels):
        packed = {
            "kernel": "Sum",
            "number": i + 1,
            "arguments": {"k1": packed, "k2": {"same": 0}},
        }
    return packed


CASES = {
    "empty": (b"", "truncated"),
    "no header": (b"cavity!", "truncated"),
    "half of it": (CONTENT[: len(CONTENT) // 2], "truncated"),
    "a header of 2⁶⁰ bytes": (struct.pack("<Q", 1 << 60) + CONTENT[8:], "truncated"),
    "a tensor of 2⁵⁰ numbers": (
        container(HEADER | {"mean": {"dtype": "F64", "shape": [1 << 25, 1 << 25], "data_offsets": [0, 8 << 50]}}), "truncated"),
    "a tensor of no rows and 2⁴⁰ columns": (with_tensor("mean", lambda t: t.new_empty(0, 1 << 40)), "shape"),
    "a pickle": (b"\x80\x04\x95\x1f\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x8c\x06system\x93\x8c\x04true\x85R.", "truncated"),
    "another digest": (another_digest(CLASSIFIER), "is damaged: its contents do not "
                                                   "match its SHA-256 digest"),
    "no digest": (
        container(replaced(HEADER, ("__metadata__", "sha256"), None, True)), "do not match its SHA-256 digest"),
    "a tensor of an unknown name": (file(tensors=TENSORS | {"weights": torch.zeros(9)}), "'weights' is not known"),
    "a parameter that no kernel has the size of": (
        file(tensors=TENSORS | {"prior.kernel.hook": torch.zeros(1_000_000)}), "'prior.kernel.hook' is not known to this kernel"),
    "an argument that no model has the size of": (
        file(tensors=TENSORS | {"arguments.hook": torch.zeros(1_000_000)}), "larger than a model of 3 latent functions"),
    "no words of ours": (serialise(TENSORS), "not a cavity model"),
    "not JSON": (serialise(TENSORS, {"cavity": "{"}), "truncated"),
    "JSON of a thousand levels": (serialise(TENSORS, {"cavity": "[" * 100_000}), "truncated"),
    "a number of 10⁵ digits": (serialise(TENSORS, {"cavity": "9" * 100_000}), "truncated"),
    "of the future": (file(META | {"format": tensor_files.FORMAT + 1}), "update cavity"),
    "a checkpoint": (file(META | {"kind": "checkpoint"}), "not a cavity model but a "
                                                          "checkpoint"),
    "a sparse spectrum of 0.3": (changed("prior", "spectrum", to=True), "cavity<0.4"),
    "frequencies of a kernel without a spectrum": (
        changed("prior", "frequencies", to=True),
        "is not stationary",
    ),
    "an unknown kernel": (changed("arguments", "kernel", "kernel", to="os.system"), "kernel 'os.system' is unknown"),
    "a kernel of someone's": (changed("arguments", "kernel", to={"foreign": "Evil"}), "which a file does not store"),
    "a kernel with strange arguments": (
        changed("arguments", "kernel", "arguments", to={"net": 1}), "is not known to this kernel"),
    "kernels 300 levels deep": (changed("arguments", "kernel", to=deep(300)), "."),
    "a negative lengthscale": (
        changed("arguments", "kernel", to={"kernel": "RBF", "number": 0, "arguments": {"lengthscale": -1.0}}), "."),
    "an unknown argument": (changed("arguments", "nonsense", to=1), "'nonsense' is not an argument"),
    "a value of an unknown kind": (changed("arguments", "noise", to={"call": "exit"}), "'call' is unknown"),
    "an unknown likelihood": (changed("likelihood", "likelihood", to="__import__"), "likelihood '__import__' is unknown"),
    "a likelihood for two classes": (
        changed("likelihood", to={"likelihood": "BinaryProbit", "arguments": {}}), "does not fit 3 classes"),
    "a likelihood with strange arguments": (
        changed("likelihood", "arguments", to={"code": 1}), "'code' is not an argument "
                                                            "of RobustMax"),
    "a method with strange arguments": (
        changed("arguments", "method", "arguments", to={"code": 1}), "'code' is not an argument of REP"),
    "an unknown method": (changed("arguments", "method", "method", to="os.system"), "method 'os.system' is unknown"),
    "a method with a wrong option": (changed("arguments", "method", "arguments", "sites", to="none"), "sites='none'"),
    "another likelihood": (changed("likelihood", to={"likelihood": "ProbitPairs", "arguments": {}}), "epsilon"),
    "one class": (changed("classes", "values", to=["a"]), "fewer than two"),
    "a class twice": (changed("classes", "values", to=["a", "b", "b"]), "not in order"),
    "more classes": (changed("classes", "values", to=["a", "b", "c", "d"]), "3 sets of parameters for 4 latent functions"),
    "labels of a strange type": (changed("classes", "type", to="M8[s]"), "unknown type"),
    "names of fewer columns": (changed("names", to=["a"]), "names is not a list of 5 "
                                                           "values"),
    "no history": (changed("history", to=KeyError), "the file lacks history"),
    "a history of texts": (changed("history", to=[{"epoch": "1"}]), "history"),
    "an evidence in words": (changed("scalars", "log_marginal_likelihood_", to="high"), "is not a number"),
    "too many sets of parameters": (changed("prior", "kernels", to=10**9), "sets of parameters"),
    "a damaged preparation": (changed("preparation", "columns", to=[{"kind": "pickle", "name": "x"}]), "preparation"),
    "a scale of zero": (changed("preparation", "columns", 0, "scale", to=0.0), "preparation"),
    "NaN in the mean": (with_tensor("mean", nan), "'mean' holds NaN"),
    "NaN in the inducing points": (with_tensor("prior.inducing", nan), "'prior.inducing' holds NaN"),
    "no mean": (with_tensor("mean", lambda t: None), "the file lacks the tensor 'mean'"),
    "a mean in single precision": (with_tensor("mean", torch.Tensor.float), "shape"),
    "a mean of whole numbers": (with_tensor("mean", torch.Tensor.long), "."),
    "a scalar for a mean": (with_tensor("mean", lambda t: t[0, 0]), "."),
    "a factor with a zero": (with_tensor("lower", torch.zeros_like), "not a Cholesky factor"),
    "lengthscales of other columns": (with_tensor("prior.kernel.k2.log_lengthscale", lambda t: t[:, :1]), "shape"),
    "a classifier that calls itself a regressor": (file(META | {"kind": "regressor"}), "a classifier has classes"),
    "a regressor that calls itself a classifier": (REGRESSOR.changed("kind", to="model"), "a regressor has units"),
    "a regressor of an unknown method": (REGRESSOR.changed("arguments", "method", to="eval"), "method='eval'"),
    "a tolerance of zero": (REGRESSOR.changed("arguments", "method", to=solver(0.0)), "tol=0.0 must be"),
    "units of zero": (REGRESSOR.changed("units", 1, to=0.0), "units: 0.0 is not a "
                                                             "finite number"),
    "three units": (REGRESSOR.changed("units", to=[0.0, 1.0, 2.0]), "units is not a list of 2 values"),
    "no noise": (REGRESSOR.with_tensor("factor.log_noise", lambda t: None), r"Gaussian has the values \['log_noise'\]"),
    "fewer rows": (REGRESSOR.with_tensor("rows.X", lambda t: t[:-1]), "rows.X has shape"),
    "no rows": (REGRESSOR.with_tensor("rows.X", lambda t: None), "the file lacks the "
                                                                 "tensor 'rows.X'"),
    "a weight of zero": (REGRESSOR.with_tensor("rows.weight", torch.zeros_like), "rows.weight is not positive"),
    "no factor for the rows": (REGRESSOR.with_tensor("rows.lower", torch.zeros_like), "rows.lower is not a Cholesky factor"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_forged_file_is_refused_in_words(name, tmp_path):
    content, words = CASES[name]
    begin, before = (
        time.process_time(),
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    )
    with pytest.raises(BadFile, match=words) as refused:
        load(content, tmp_path)
    assert "model.cavity" in str(refused.value) and len(str(refused.value)) < 1000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # kB
    assert time.process_time() - begin < 5


def test_a_folder_a_missing_file_and_one_that_may_not_be_read(tmp_path):
    with pytest.raises(BadFile, match="is not a file"):
        cavity.load(tmp_path)
    with pytest.raises(BadFile, match="is not a file"):
        cavity.load(tmp_path / "none.cavity")
    with pytest.raises(BadFile, match="cannot be read"):
        cavity.load("a\0b")
    if os.geteuid() != 0:
        (tmp_path / "closed").write_bytes(CONTENT)
        (tmp_path / "closed").chmod(0)
        with pytest.raises(BadFile, match="Permission denied"):
            cavity.load(tmp_path / "closed")


@pytest.mark.parametrize(
    "sample", [CLASSIFIER, REGRESSOR], ids=["classifier", "regressor"]
)
def test_no_flipped_bit_goes_unnoticed(sample, tmp_path):
    """B2: of 300 flipped bits, 284 loaded without a word."""
    path, rng = tmp_path / "model.cavity", np.random.default_rng(0)
    for _ in range(250):
        content = bytearray(sample.content)
        content[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
        path.write_bytes(content)
        with pytest.raises(BadFile, match=r"model\.cavity"):
            cavity.load(path)


def sparse(path, name, shape):
    """A sound file of little size on disk that declares a huge tensor of zeros, most of
    it a hole.
    """
    text = json.dumps(META)
    header, end = (
        dict(HEADER),
        max(t["data_offsets"][1] for n, t in HEADER.items() if n != "__metadata__"),
    )
    size = 8 * int(np.prod(shape))
    header[name] = {"dtype": "F64", "shape": shape, "data_offsets": [end, end + size]}
    header["__metadata__"] = {"cavity": text, "sha256": "0" * 64}
    words = json.dumps(header).encode()
    path.write_bytes(
        struct.pack("<Q", len(words)) + words + CONTENT[8 + CLASSIFIER.length :]
    )
    with path.open("r+b") as file:
        file.truncate(8 + len(words) + end + size)


@pytest.mark.parametrize(
    "name", ["weights", "prior.kernel.hook", "growing.hook", "arguments.hook"]
)
def test_a_sparse_file_does_not_fill_the_memory(tmp_path, name):
    """B9: 80 kB on disk took 11.8 GB to load."""
    path = tmp_path / "model.cavity"
    sparse(path, name, [1 << 17, 1 << 12])
    assert path.stat().st_blocks * 512 < 1 << 20 < 4 << 30 < path.stat().st_size
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(BadFile, match=r"is not known|larger than a model"):
        cavity.load(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kB


# ---------------------------------------------------------------- fuzzing
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.sampled_from([2**63, -1, 10**9, 1e308, float("nan"), float("inf")]),
    st.text(max_size=8), st.sampled_from(["RBF", "Sum", "kernel", "array", "same", "foreign", "left out", "mean", "float64"]),
)  # fmt: skip
JSON = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)


@st.composite
def damaged(draw, sample):
    """Bytes of a model file after an accident or a forgery."""
    kind = draw(st.sampled_from(["cut", "bits", "splice", "meta", "header", "tensor"]))
    if kind == "cut":
        return sample.content[: draw(st.integers(0, len(sample.content) - 1))]
    if kind in ("bits", "splice"):
        content = bytearray(sample.content)
        for _ in range(draw(st.integers(1, 4))):
            place = draw(
                st.one_of(
                    st.integers(0, 8 + sample.length), st.integers(0, len(content) - 1)
                )
            )
            if kind == "bits":
                content[min(place, len(content) - 1)] ^= 1 << draw(st.integers(0, 7))
            else:
                content[place : place + draw(st.integers(0, 40))] = draw(
                    st.binary(max_size=40)
                )
        return bytes(content)
    if kind == "meta":
        meta = sample.meta
        for _ in range(draw(st.integers(1, 2))):
            path = draw(st.sampled_from(sample.places))
            try:
                meta = replaced(meta, path, draw(JSON), draw(st.booleans()))
            except (
                KeyError,
                IndexError,
                TypeError,
            ):  # the place went with the first change
                pass
        return sample.file(meta)
    if kind == "header":
        path = draw(st.sampled_from(sample.of_header))
        return sample.container(
            replaced(sample.header, path, draw(JSON), draw(st.booleans()))
        )
    name = draw(st.sampled_from(sorted(sample.tensors)))
    shape = draw(st.lists(st.integers(0, 5), max_size=4))
    dtype = draw(
        st.sampled_from(
            [torch.float64, torch.float32, torch.float16, torch.int64, torch.uint8]
        )
    )
    value = draw(st.sampled_from([0, 1, -1, 1e30, float("nan"), float("inf")]))
    return sample.file(
        tensors=sample.tensors
        | {name: torch.full(shape, value, dtype=torch.float64).to(dtype)}
    )


def survives(content, path):
    path.write_bytes(content)
    try:
        model = cavity.load(path)
    except BadFile as refused:
        assert str(path.name) in str(refused)
        return
    rows = np.zeros((1, model.n_features_in_))
    with without_warnings():
        model.predict(rows, return_std=True) if hasattr(
            model, "sample_y"
        ) else model.predict_proba(rows)


QUIET = dict(database=None, suppress_health_check=list(HealthCheck))


@settings(**QUIET)
@example(content=CLASSIFIER.content)
@given(content=damaged(CLASSIFIER))
def test_no_other_error_escapes(content, tmp_path_factory):
    survives(content, tmp_path_factory.getbasetemp() / "fuzzed.cavity")


@settings(**QUIET)
@example(content=REGRESSOR.content)
@given(content=damaged(REGRESSOR))
def test_no_other_error_escapes_of_a_regressor(content, tmp_path_factory):
    survives(content, tmp_path_factory.getbasetemp() / "fuzzed.cavity")

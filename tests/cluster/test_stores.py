"""Rows and models in an object store: a server of S3 on this machine, reached through a link that drops connections."""

import multiprocessing
import os
import socket
import struct
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from typer.testing import CliRunner

from cavity import BadFile, BadInput, BadOption, GPClassifier, callbacks, distributed, load
from cavity.cli.app import app
from cavity.options import nest
from pages import read_commands, run_section
from support import toy

moto = pytest.importorskip("moto.server", reason="moto is not installed: make test-cluster runs these tests")


class Link:
    """Forwards connections to a server, and resets every `n`th of them after its first bytes."""

    def __init__(self, server):
        self.server, self.n, self.opened, self.dropped = server, None, 0, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:  # closed
                return
            self.opened += 1
            threading.Thread(target=self.forward, args=(client, self.opened), daemon=True).start()

    def forward(self, client, number):
        if self.n and number % self.n == 0:
            self.dropped += 1
            client.recv(10)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
            return
        server = socket.create_connection(self.server)
        threading.Thread(target=pump, args=(client, server), daemon=True).start()
        pump(server, client)


def pump(source, sink):
    try:
        while data := source.recv(1 << 16):
            sink.sendall(data)
    except OSError:
        pass
    for end in (source, sink):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


@pytest.fixture(scope="module")
def link():
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    link = Link(server.get_host_and_port())
    settings = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL": link.url,
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        yield link
    link.listener.close()
    server.stop()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Partitioned files, and the same rows in the bucket."""
    X, y = toy(200, 3, seed=2)
    table = pa.table({"a": X[:, 0], "b": X[:, 1], "site": np.arange(200) % 2, "label": y})
    folder = tmp_path_factory.mktemp("rows")
    pq.write_to_dataset(table, folder, partition_cols=["site"], row_group_size=30)
    return folder


@pytest.fixture(scope="module")
def bucket(link, folder):
    store, name = fs.FileSystem.from_uri("s3://bucket?allow_bucket_creation=true")
    store.create_dir(name)
    fs.copy_files(str(folder), "bucket/rows", destination_filesystem=store)
    return "s3://bucket"


@pytest.fixture(autouse=True)
def healthy(link):
    link.n = None


def fit(rows):
    model = GPClassifier("sep", n_inducing=6, batch_size=50, max_epochs=2, random_state=0)
    return model.fit(rows, target="label")


@pytest.fixture(scope="module")
def alone(folder):
    return fit(folder)


def test_rows_of_a_bucket_give_the_model_of_the_same_files_on_disk(bucket, folder, alone):
    model = fit(f"{bucket}/rows")
    assert list(model.feature_names_in_) == ["a", "b", "site"]
    np.testing.assert_array_equal(model.predict_proba(f"{bucket}/rows"), alone.predict_proba(folder))


def test_dropped_connections_are_retried(link, bucket, folder, alone):
    link.n = 12
    model = fit(f"{bucket}/rows")
    model.save(f"{bucket}/models/dropped.cavity")
    np.testing.assert_array_equal(
        load(f"{bucket}/models/dropped.cavity").predict_proba(folder), alone.predict_proba(folder)
    )
    assert link.dropped > 2


def test_a_bucket_or_a_key_that_is_not_there_is_named(bucket, folder, alone):
    for error, word, work in (
        (BadInput, "no-such-bucket", lambda: fit("s3://no-such-bucket/rows")),
        (BadInput, "s3://bucket/row'", lambda: fit(f"{bucket}/row")),
        (BadFile, "no-such-bucket", lambda: alone.save("s3://no-such-bucket/clf.cavity")),
        (BadFile, "none.cavity", lambda: load(f"{bucket}/none.cavity")),
        (
            BadOption,
            "no-such-bucket",
            lambda: make(checkpoint="s3://no-such-bucket/a").fit(folder, target="label"),
        ),
    ):
        with pytest.raises(error, match=word):
            work()


class Stop(callbacks.Callback):
    """Ends the fit after a number of epochs, as a kill would."""

    def __init__(self, epochs):
        self.epochs = epochs

    def epoch(self, run, row):
        if row["epoch"] >= self.epochs:
            raise Killed


class Killed(Exception):
    pass


def make(batch_size=50, **more):
    return GPClassifier(
        "ep", **nest(n_inducing=6, batch_size=batch_size, max_epochs=4, random_state=0, **more)
    )


def fit_as_rank(rank, port, folder, path, killed):
    """One of two ranks, which ends without a word in the second epoch if `killed`."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    distributed.join("gloo")
    more = {"callbacks": [Stop(2)]} if killed else {"resume": True}
    try:
        model = make(None, checkpoint=path, checkpoint_every=0, **more).fit(folder, target="label")
    except Killed:
        os._exit(3)
    if rank == 0:
        model.save(f"{path}.cavity")
    distributed.leave()


def run_ranks(*args):
    context = multiprocessing.get_context("spawn")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    ranks = [context.Process(target=fit_as_rank, args=(rank, port, *args)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    return [rank.exitcode for rank in ranks]


def test_two_ranks_resume_from_their_checkpoints_in_the_bucket(bucket, folder):
    path = f"{bucket}/runs/two.ckpt"
    assert run_ranks(str(folder), path, True) == [3, 3]
    store, name = fs.FileSystem.from_uri(f"{bucket}/runs")
    stored = {info.base_name for info in store.get_file_info(fs.FileSelector(name))}
    assert {"two.ckpt.1-of-2", "two.ckpt.2-of-2"} <= stored
    assert not any(found.endswith(".next") for found in stored)
    assert run_ranks(str(folder), path, False) == [0, 0]
    whole = make(None).fit(folder, target="label")
    found = load(f"{path}.cavity")
    np.testing.assert_allclose(found.predict_proba(folder), whole.predict_proba(folder), rtol=1e-8, atol=1e-8)


def run_command(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_a_store_that_went_away_is_named(bucket, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(BadInput, match="connect"):
        fit(f"{bucket}/rows")


def test_the_page_runs(bucket, folder, alone):
    names = run_section("clusters.md", "Object stores")
    plain = GPClassifier("sep", n_inducing=10, max_epochs=3, random_state=0).fit(folder, target="label")
    np.testing.assert_allclose(names["p"], plain.predict_proba(folder), atol=1e-8)
    for line in read_commands("clusters.md", "Object stores"):
        more = ("--method", "sep", "--max-epochs", "2") if " fit " in line else ()
        done = run_command(*line.split()[1:], *more)
        assert done.exit_code == 0, done.output

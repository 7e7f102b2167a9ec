"""Rows in an object store: a server of S3 on this machine, reached through a link that
drops connections.
"""

import socket
import struct
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from typer.testing import CliRunner

from cavity import BadInput, GPClassifier
from cavity.cli.app import app
from pages import read_commands, run_section
from support import toy

moto = pytest.importorskip(
    "moto.server", reason="moto is not installed: make test-cluster runs these tests"
)


class Link:
    """Forwards connections to a server, and resets every `n`th of them after its first
    bytes.
    """

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
            threading.Thread(
                target=self.forward, args=(client, self.opened), daemon=True
            ).start()

    def forward(self, client, number):
        if self.n and number % self.n == 0:
            self.dropped += 1
            client.recv(10)
            client.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
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
    table = pa.table(
        {"a": X[:, 0], "b": X[:, 1], "site": np.arange(200) % 2, "label": y}
    )
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
    model = GPClassifier(
        "sep", n_inducing=6, batch_size=50, max_epochs=2, random_state=0
    )
    return model.fit(rows, target="label")


@pytest.fixture(scope="module")
def alone(folder):
    return fit(folder)


def test_rows_of_a_bucket_give_the_model_of_the_same_files_on_disk(
    bucket, folder, alone
):
    model = fit(f"{bucket}/rows")
    assert list(model.feature_names_in_) == ["a", "b", "site"]
    np.testing.assert_array_equal(
        model.predict_proba(f"{bucket}/rows"), alone.predict_proba(folder)
    )


def test_dropped_connections_are_retried(link, bucket, folder, alone):
    link.n = 12
    model = fit(f"{bucket}/rows")
    np.testing.assert_array_equal(
        model.predict_proba(f"{bucket}/rows"), alone.predict_proba(folder)
    )
    assert link.dropped > 2


def test_a_bucket_or_a_key_that_is_not_there_is_named(bucket):
    for word, path in (
        ("no-such-bucket", "s3://no-such-bucket/rows"),
        ("s3://bucket/row'", f"{bucket}/row"),
    ):
        with pytest.raises(BadInput, match=word):
            fit(path)


def run_command(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_a_store_that_went_away_is_named(bucket, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(BadInput, match="connect"):
        fit(f"{bucket}/rows")


def test_the_page_runs(bucket, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = run_section("clusters.md", "Object stores")
    plain = GPClassifier("sep", n_inducing=10, max_epochs=3, random_state=0).fit(
        folder, target="label"
    )
    np.testing.assert_allclose(names["p"], plain.predict_proba(folder), atol=1e-8)
    for line in read_commands("clusters.md", "Object stores"):
        more = ("--method", "sep", "--max-epochs", "2") if " fit " in line else ()
        done = run_command(*line.split()[1:], *more)
        assert done.exit_code == 0, done.output

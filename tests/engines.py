"""Stand-ins of Ray and Spark that keep their protocol: functions and arguments travel
as pickles, ranks are processes, and results come back through storage or as a pickle.
"""

import os
import pickle
import shutil
import sys
from collections import namedtuple
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace

from torch import distributed as dist

from chaos.children import Child
from distributed.ranks import find_port

ScalingConfig = namedtuple("ScalingConfig", "num_workers use_gpu", defaults=[1, False])
RunConfig = namedtuple("RunConfig", "storage_path")
Field = namedtuple("Field", "name kind")
StructType = namedtuple("StructType", "fields")


def install(contents, setitem):
    """Make modules with these names, and the packages that they are in."""
    for path, names in contents.items():
        parts = path.split(".")
        for i in range(1, len(parts) + 1):
            name = ".".join(parts[:i])
            if name not in contents or i == len(parts):
                setitem(sys.modules, name, ModuleType(name))
        vars(sys.modules[path]).update(names)


def run_children(world, work, *arguments):
    """Return what the ranks return; raise what one of them raises."""
    port = find_port()
    ranks = [Child(work, rank, world, port, *arguments) for rank in range(world)]
    ends = [rank.wait() for rank in ranks]
    for end in ends:
        if end.kind != "value":
            raise RuntimeError(end.value)
    return [end.value for end in ends]


def describe_rank(rank, world, port):
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


class Checkpoint:
    """A folder that is a copy as soon as it was reported."""

    def __init__(self, folder):
        self.folder = folder

    @classmethod
    def from_directory(cls, folder):
        return cls(folder)

    @contextmanager
    def as_directory(self):
        yield str(self.folder)


class TorchTrainer:
    """Joins its workers itself."""

    def __init__(
        self, loop, *, train_loop_config=None, scaling_config=None, run_config=None
    ):
        self.payload = pickle.dumps((loop, train_loop_config))
        self.scaling, self.run = scaling_config, run_config

    def fit(self):
        storage = Path(self.run.storage_path) / "checkpoint"
        run_children(self.scaling.num_workers, run_ray_rank, self.payload, storage)
        return SimpleNamespace(checkpoint=Checkpoint(storage))


def run_ray_rank(rank, world, port, payload, storage):
    describe_rank(rank, world, port)

    def report(metrics, *, checkpoint=None):
        if checkpoint is not None:
            shutil.copytree(checkpoint.folder, storage)
        dist.barrier()  # every worker must report

    context = SimpleNamespace(get_world_rank=lambda: rank)
    install_ray(dict.__setitem__, report=report, get_context=lambda: context)
    dist.init_process_group("gloo")
    loop, config = pickle.loads(payload)
    loop(config)
    dist.destroy_process_group()


def install_ray(setitem, **names):
    names = {"Checkpoint": Checkpoint, "ScalingConfig": ScalingConfig} | names
    contents = {"ray.train": names, "ray.train.torch": {"TorchTrainer": TorchTrainer}}
    install(contents, setitem)


class TorchDistributor:
    """Describes the ranks as torchrun does; returns what rank 0 returns."""

    def __init__(self, num_processes=1, local_mode=True, use_gpu=True):
        self.world = num_processes
        assert not local_mode and not use_gpu

    def run(self, train_object, *args):
        payload = pickle.dumps((train_object, args))
        return pickle.loads(run_children(self.world, run_spark_rank, payload)[0])


def run_spark_rank(rank, world, port, payload):
    describe_rank(rank, world, port)
    work, arguments = pickle.loads(payload)
    found = work(*arguments)
    assert not dist.is_initialized()
    return pickle.dumps(found)


def install_spark(setitem):
    contents = {
        "pyspark.ml.torch.distributor": {"TorchDistributor": TorchDistributor},
        "pyspark.sql.types": {"StructType": StructType},
    }
    install(contents, setitem)


def find_schema(frame):
    return StructType([Field(name, frame[name].dtype.kind) for name in frame])


class DataFrame:
    """Rows of Spark, in partitions."""

    sparkSession = SimpleNamespace(
        createDataFrame=lambda frame: SimpleNamespace(schema=find_schema(frame))
    )

    def __init__(self, *parts):
        self.parts = parts
        self.columns = list(parts[0].columns)
        self.schema = find_schema(parts[0])

    def mapInPandas(self, function, schema):
        """Apply a function to each partition; what it yields must have the schema."""
        function = pickle.loads(pickle.dumps(function))
        found = []
        for part in self.parts:
            found += function(iter([part]))
        for frame in found:
            assert find_schema(frame) == schema
        return DataFrame(*found)


class Dataset:
    """Rows of Ray, in blocks."""

    def __init__(self, *blocks):
        self.blocks = blocks

    def map_batches(self, fn, *, batch_format="default", batch_size=None):
        assert batch_format == "pandas"
        fn = pickle.loads(pickle.dumps(fn))
        return Dataset(*(fn(block) for block in self.blocks))

"""What `partial_fit` adds to, in a model file: sums, counts and the optimiser's memory; no rows."""

from __future__ import annotations

import copy
from typing import Any

import torch

from cavity.common.column_statistics import Columns
from cavity.errors import BadFile
from cavity.fitting import build
from cavity.fitting.results import Growing
from cavity.inference import Engine, State, Tied, empty_sites, name_parameters
from cavity.inference.posterior import Sums
from cavity.prediction.model import FittedModel
from cavity.saving.checking import Arrays, Meta

Tensors = dict[str, torch.Tensor]

SCALARS = ("damping", "rate", "jitter", "clock")


def describe_growing(kept: Growing | None) -> Meta | None:
    """Return the part that is not a tensor; None if no rows can be added."""
    if kept is None:
        return None
    sites = kept.engine.sites
    assert isinstance(sites, Tied)
    return {
        "sites": {name: getattr(sites, name) for name in ("weighted", "unit", "tempers")},
        "optimiser": len(kept.state.optimiser),
        "width": kept.state.sites.tau.shape[1],
        "exact": kept.engine.exact,
        "pooled": bool(kept.engine.hyper_prior.pools),
        "distance": kept.columns.distance,
        "lightest": kept.lightest,
        "heaviest": kept.heaviest,
    }


def growing_tensors(kept: Growing | None) -> Tensors:
    if kept is None:
        return {}
    engine, state = kept.engine, kept.state
    assert isinstance(engine.sites, Tied)
    found = {
        "theta": state.theta,
        "P": state.sums.P,
        "h": state.sums.h,
        "counts": engine.sites.counts,
        "total": engine.total,
        "prior.mean": engine.hyper_prior.mean[engine.hyper_prior.precision > 0],  # the others have no prior
        "center": torch.tensor(kept.columns.center),
        "spread": torch.tensor(kept.columns.spread),
        "epoch": state.epoch,
        **{name: getattr(state, name) for name in SCALARS},
        **{f"optimiser.{i}": t for i, t in enumerate(state.optimiser)},
    }
    return {f"growing.{name}": t.detach().clone() for name, t in found.items()}


def restore_growing(arrays: Arrays, about: Any, model: FittedModel, history: list[Meta]) -> Growing:
    """Make the model that can take more rows, on copies of the fitted model's modules."""
    prior, factor = copy.deepcopy((model.prior, model.likelihood))
    parameters = name_parameters(prior, factor)
    found = {
        name.removeprefix("growing."): torch.from_numpy(a.copy())
        for name, a in arrays.items()
        if name.startswith("growing.")
    }
    hyper_prior = build.make_hyper_prior(prior, parameters, pooled=bool(about.get("pooled")))
    held = hyper_prior.precision > 0
    if held.shape != found["theta"].shape or int(held.sum()) != len(found["prior.mean"]):
        raise BadFile("growing.theta does not fit the parameters.")
    engine = Engine(
        prior=prior,
        parameters=parameters,
        factor=factor,
        sites=Tied(found["counts"], **about["sites"], grows=True),
        hyper_prior=hyper_prior._replace(mean=hyper_prior.mean.masked_scatter(held, found["prior.mean"])),
        total=found["total"],
        exact=about["exact"],
    )
    state = _state(found, about, prior.noise.dtype)
    center, spread = (found[name].numpy().copy() for name in ("center", "spread"))
    columns = Columns(center, spread, about["distance"])
    return Growing(engine, state, columns, about["lightest"], about["heaviest"], list(history))


def _state(found: Tensors, about: Meta, dtype: torch.dtype) -> State:
    memory = tuple(found[f"optimiser.{i}"] for i in range(about["optimiser"]))
    return State(
        theta=found["theta"],
        sites=empty_sites(0, about["width"], dtype, torch.device("cpu")),
        sums=Sums(found["P"], found["h"]),
        optimiser=memory,
        generator=torch.empty(0, dtype=torch.uint8),
        epoch=found["epoch"],
        position=torch.zeros((), dtype=torch.int64),
        **{name: found[name] for name in SCALARS},
    )

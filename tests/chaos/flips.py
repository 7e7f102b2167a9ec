"""Files whose bytes change on the disk: flipped bits, lost sectors, cut ends."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .children import Item, count_series
from .counting import SURVIVED, Outcome, Tally, refused, silent
from .fits import digest, fit, fit_small, write_rows


def damage(content: bytes, rng: np.random.Generator) -> bytes:
    """Flip one bit; in some runs more bits, or overwrite a sector with zeros, or cut
    the end.
    """
    changed, how = bytearray(content), rng.random()
    if how < 0.9:
        for _ in range(1 if how < 0.8 else int(rng.integers(2, 20))):
            changed[rng.integers(len(changed))] ^= 1 << int(rng.integers(8))
    elif how < 0.95:
        start = int(rng.integers(len(changed)))
        changed[start : start + 512] = bytes(len(changed[start : start + 512]))
    else:
        del changed[int(rng.integers(len(changed))) :]
    return bytes(changed)


def make_model_flips(folder: Path, seed: int) -> Item:
    """Return runs that load a damaged model file: a classifier, or a regressor with its
    training rows.
    """
    from cavity import BadFile, GPRegressor, load

    from .fits import make_rows

    X, y = make_rows()
    models = [
        fit_small(),
        GPRegressor("cg", n_inducing=5, max_epochs=3, random_state=0, device="cpu").fit(
            X, y
        ),
    ]
    contents = []
    for i, model in enumerate(models):
        model.save(folder / f"sound-{i}.cavity")
        contents.append((folder / f"sound-{i}.cavity").read_bytes())

    def answers(model):
        at = make_rows(10, seed=5)[0]
        return (
            digest(model)
            if model is None or hasattr(model, "classes_")
            else model.predict(at, return_std=True)
        )

    wanted = [repr(answers(load(folder / f"sound-{i}.cavity"))) for i in range(2)]

    def item(i: int) -> Outcome:
        rng, which, path = (
            np.random.default_rng([seed, i]),
            i % 2,
            folder / "damaged.cavity",
        )
        content = damage(contents[which], rng)
        path.write_bytes(content)
        try:
            found = repr(answers(load(path)))
        except BadFile as error:
            return refused(error)
        same = content == contents[which] or found == wanted[which]
        return SURVIVED if same else silent(f"item {i}: other predictions")

    return item


def make_checkpoint_flips(folder: Path, seed: int) -> Item:
    """Return runs that resume from a damaged checkpoint."""
    from cavity import BadFile

    rows, names = write_rows(folder), ("ep", "sep")
    whole = {
        name: fit(name, rows, folder / f"{name}.ckpt", max_epochs=2) for name in names
    }
    contents = {name: (folder / f"{name}.ckpt").read_bytes() for name in names}

    def item(i: int) -> Outcome:
        rng, name, path = (
            np.random.default_rng([seed, i]),
            names[i % 2],
            folder / "damaged.ckpt",
        )
        path.write_bytes(damage(contents[name], rng))
        try:
            found = fit(name, rows, path, max_epochs=2)
        except BadFile as error:
            return refused(error)
        return (
            SURVIVED
            if found == whole[name]
            else silent(f"item {i}: resumed to another model")
        )

    return item


def count_model_flips(n: int, rng: np.random.Generator, folder: Path) -> Tally:
    """Load model files with flipped bits: refused, or the same predictions."""
    return count_series(make_model_flips, n, folder, int(rng.integers(1 << 31)))


def count_checkpoint_flips(n: int, rng: np.random.Generator, folder: Path) -> Tally:
    """Resume from checkpoints with flipped bits: refused, or the same model."""
    return count_series(make_checkpoint_flips, n, folder, int(rng.integers(1 << 31)))

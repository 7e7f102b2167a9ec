"""Interrupts of a fit by the command line: the model is saved, or nothing is."""

import contextlib
import os
import pkgutil
import signal
import subprocess
import sys
import time

import pytest
import typer

import cavity
from cavity.cli import fitting
from cavity.engine.training.loop import Run
from cli.running import QUICK, SINGLE, TRAIN, run


@pytest.mark.slow  # the signals below are sent in this process
@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_saves_the_model_as_it_stands_and_ends_with_its_code(
    birds, tmp_path, number, code
):
    """B7: SIGTERM lost the fit."""
    (tmp_path / "c.toml").write_text(
        "checkpoint_every = 0\ntol = 0\nmax_epochs = 1000000\n"
    )
    arguments = [
        "fit",
        birds / "penguins.csv",
        *TRAIN,
        "--n-inducing",
        "5",
        "--config",
        tmp_path / "c.toml",
    ]
    arguments += ["--checkpoint", tmp_path / "run.ckpt", "--out", tmp_path / "m.cavity"]
    pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(
        [sys.executable, "-m", "cavity", *map(str, arguments)], **pipes
    ) as process:
        try:
            until = time.monotonic() + 120
            while not (tmp_path / "run.ckpt").exists() and time.monotonic() < until:
                time.sleep(0.05)
            process.send_signal(number)
            begun = time.monotonic()
            message = process.communicate(timeout=120)[1]
            assert time.monotonic() - begun < 10
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
    assert process.returncode == code, message
    assert (
        "interrupted" in message
        and "saved the model after" in message
        and "Traceback" not in message
    )
    clf = cavity.load(tmp_path / "m.cavity")
    assert clf.n_epochs_ >= 1 and clf.notes_["interrupted"]


@pytest.mark.parametrize(
    "where",
    [
        "cavity.common.files.os.fsync",
        "cavity.fitting.results.extract_model",
        "cavity.fitting.verdict.estimate_quality",
    ],
)
def test_a_signal_after_training_does_not_lose_the_model(
    birds, tmp_path, monkeypatch, where
):
    """Found by make chaos: SIGTERM while the result was made or saved ended the command
    without a model.
    """
    owner, name = where.rsplit(".", 1)
    work, calls = pkgutil.resolve_name(owner).__dict__[name], []

    def interrupted(*args, **named):
        calls.append(1)
        if len(calls) == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return work(*args, **named)

    monkeypatch.setattr(where, interrupted)
    done = run(
        "fit",
        birds / "penguins.csv",
        "--target",
        "species",
        "--out",
        tmp_path / "m",
        *SINGLE,
    )
    assert done.exit_code == 143 and "saved the model after" in done.stderr and calls
    assert cavity.load(tmp_path / "m").n_epochs_ >= 1


def test_a_signal_at_any_line_after_training_does_not_lose_the_model(
    birds, tmp_path, monkeypatch
):
    """Found by make chaos: SIGTERM between the end of training and saving lost about
    one fit of 50.
    """
    fit, fitted, lines, at = fitting._fit, {}, [], None

    def train(model, *args):
        found = {} if fitted else fit(model, *args)
        fitted.update(fitted or vars(model))
        vars(model).update(fitted)  # train once
        sys._getframe(1).f_trace = trace
        sys.settrace(trace)
        return found

    def trace(frame, event, arg):
        if frame.f_code is not fitting._train.__code__:
            return None
        if event == "line" and frame.f_lineno not in lines:
            lines.append(frame.f_lineno)
            if len(lines) - 1 == at:
                os.kill(os.getpid(), signal.SIGTERM)
        return trace

    monkeypatch.setattr(fitting, "_fit", train)
    arguments = ["fit", birds / "penguins.csv", "--target", "species", *SINGLE]

    def fit_with_signal(name):
        lines.clear()
        before = sys.gettrace()
        done = run(*arguments, "--out", tmp_path / name)
        sys.settrace(before)
        return done

    assert fit_with_signal("quiet.cavity").exit_code == 0 and len(lines) > 10
    for at in range(len(lines)):
        done = fit_with_signal(f"{at}.cavity")
        assert (tmp_path / f"{at}.cavity").exists(), (
            f"lost at line {lines[at]}: {done.stderr}"
        )
        assert done.exit_code == 143 and "saved the model after" in done.stderr


def test_an_interrupt_says_at_once_what_happens_and_saves_the_model(
    birds, tmp_path, monkeypatch
):
    """It said nothing until the model was saved, minutes later under load."""
    record, seen = Run.record, []

    def interrupted(run, outcome):
        record(run, outcome)
        if not seen:
            with monkeypatch.context() as patch:
                patch.setattr(
                    typer, "echo", lambda text, err=False: seen.append((text, err))
                )
                os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Run, "record", interrupted)
    done = run(
        "fit",
        birds / "penguins.csv",
        "--target",
        "species",
        "--out",
        tmp_path / "m",
        *QUICK,
    )
    [(text, to_stderr)] = seen
    assert str(tmp_path / "m") in text and to_stderr
    assert done.exit_code == 130 and "saved the model after 1 epochs" in done.stderr
    clf = cavity.load(tmp_path / "m")
    assert clf.calibration_ == "leave-one-out" and clf.notes_["interrupted"]


def test_an_interrupt_before_training_saves_nothing_and_does_not_promise_to(
    birds, tmp_path, monkeypatch
):
    """It said that the model so far is being saved, before it knew whether there is
    one.
    """

    def interrupt(*args, **kwargs):
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(cavity.GPClassifier, "fit", interrupt)
    done = run(
        "fit",
        birds / "penguins.csv",
        "--target",
        "species",
        "--out",
        tmp_path / "m",
        *QUICK,
    )
    assert (
        done.exit_code == 130
        and "before a first model existed" in done.stderr
        and "stopping: if a model exists so far" in done.stderr
        and not (tmp_path / "m").exists()
    )
    monkeypatch.setattr(fitting, "open_table", interrupt)
    done = run(
        "fit",
        birds / "penguins.csv",
        "--target",
        "species",
        "--out",
        tmp_path / "m",
        *QUICK,
    )
    assert done.exit_code == 130 and "interrupted" in done.stderr

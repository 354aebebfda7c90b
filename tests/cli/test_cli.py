"""Parsing, help, exit status, errors in one line and streams, for all commands; summary and gradcheck."""

import os
import re
import subprocess
import sys
from dataclasses import fields

import pytest

from tinyvit import functional as F
from tinyvit.cli import COMMANDS
from tinyvit.gradcheck import operation_cases
from tinyvit.training import AugmentConfig, OptimConfig, TrainConfig


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("trian", "unknown command 'trian'; did you mean train"),
        ("export run", r"missing --out: The folder .* --format: \{.*\} The library.*\. \(options: "),
        ("--epochs 3", "unknown command '--epochs'"),
        ("train", "preset"),
        ("train digit", "unknown preset 'digit'; did you mean digits"),
        ("train mnist", "unknown preset 'mnist'; expected one of digits, moving-digits, cifar10-cpu"),
        ("train digits --epoch 3", "--epoch.*did you mean --epochs"),
        ("train digits extra", "extra"),
        ("train digits --epochs", "--epochs"),
        ("train digits --epochs few", "--epochs: expected a whole number, got 'few' "),
        ("train digits --threads 1.5", "--threads: expected a whole number, got '1.5' "),
        ("train digits --optim.betas 0 x --optim.lr x", "--optim.lr: expected a number, got 'x' "),
        ("train digits --optim.name " + 300 * "x", f"'{300 * 'x'}'.*adamw"),
        ("train digits --epochs 0", "epochs must be a positive int, got 0"),
        ("train digits --device cpu --cuda-graph True", "--cuda-graph needs a GPU"),
        ("train digits --device cpu --distributed nccl", "--distributed nccl needs a GPU for each rank"),
        ("train digits --kernels quick", "'quick'.*--kernels"),
        ("train digits --model.mlp-ratio 1e300", "needs about a billion GB or more .*: take a smaller model"),
        (f"train digits --model.embed-dim 1{99 * '0'}", "embed_dim must be an int from 1 to 65,536, got 1000"),
        ("train digits --architecture clip", "'clip' can't serve the task 'classification': a CLIP tells images"),
        ("train digits --model.num-classes 20", "has 20 classes, but the data set has 10; take --model.num-classes 10"),
        ("train digits --architecture vivit", r"model reads videos .*, but the data set's are \(1, 8, 8\)"),
        ("train moving-digits --architecture vit", r"model reads images .*, but the data set's are \(1, 8, 16, 16\)"),
        ("train digits --classes", "expected names after --classes, got none"),
        ("train digits --seeds", "seeds must be different ints of at least 0, got none"),
        ("train digits --seed 1 --seeds 2", "expected --seed for one run or --seeds for several, got both"),
        ("train cifar10-cpu --data-dir ~nobody-of-this-name", "nobody-of-this-name doesn't exist; expected test_b"),
        ("evaluate", "missing RUN: The folder of a run"),
        ("summary vit_bas_patch16_224", "unknown run folder or model 'vit_bas_patch16_224'; did you mean vit_base"),
        ("summary vit_tiny", "unknown run folder or model 'vit_tiny'; did you mean vit_tiny_patch16_224\\?"),
        ("summary digit", "unknown run folder or model 'digit'; did you mean digits\\?"),
        ("gradcheck --directions 0", "directions must be at least 1, got 0"),
    ],
)
def test_bad_input_ends_with_one_line_that_names_it(refused, arguments, message):
    line = refused(*arguments.split())
    assert re.search(message, line) and len(line) < 700


@pytest.mark.parametrize("command", ["train digits --out", "inspect RUN --out", "bench --out", "evaluate", "summary",
                                     "notebooks", "data cifar10 --from", "import --out run"])  # fmt: skip
def test_a_file_or_a_link_to_itself_in_place_of_a_folder_is_named(refused, run, tmp_path, command):
    (tmp_path / "file").write_text("precious")
    (tmp_path / "loop").symlink_to("loop")
    for place in ("file", "loop"):
        assert place in refused(*command.replace("RUN", str(run)).split(), place)


@pytest.mark.parametrize(("error", "status", "line"), [
    (KeyboardInterrupt, 130, "tinyvit: interrupted\n"),
    (MemoryError("x"), 2, "tinyvit: error: out of memory; take a smaller model, or fewer images at a time (x)\n"),
    (PermissionError(13, "Permission denied", "x"), 2, "tinyvit: error: x can't be used: Permission denied\n"),
    (ValueError("two\nlines"), 2, "tinyvit: error: two\\nlines\n"),
])  # fmt: skip
def test_an_interrupt_or_an_error_while_running_is_one_line(tinyvit, monkeypatch, error, status, line):
    def fail(rest):
        raise error

    monkeypatch.setattr(os, "_exit", sys.exit)
    monkeypatch.setattr("tinyvit.cli.train.train", fail)
    assert tinyvit("train") == (status, "", line)


def test_a_tilde_with_an_unknown_user_is_a_folder_name_as_in_a_shell(succeeds, tmp_path):
    succeeds("notebooks", "~nobody-of-this-name")
    assert (tmp_path / "~nobody-of-this-name" / "00_tour.ipynb").is_file()


# -- help and version -------------------------------------------------------------------------------------------------


def test_without_a_command_the_commands_are_listed(succeeds):
    out = succeeds()
    assert all(f"  {command} " in out for command in COMMANDS) and succeeds("--help") == out
    assert "[MODEL]" in succeeds("gradcheck", "--help") and "[DIR]" in succeeds("notebooks", "--help")
    assert re.fullmatch(r"tinyvit \d+\.\d+\.\d+\n", succeeds("--version"))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(succeeds, command):
    assert succeeds(command, "--help").startswith(f"usage: tinyvit {command}")


def test_help_names_every_option_of_a_training(succeeds):
    nested = {"model", "objective", "init", "optim", "augment"}
    names = [field.name for field in fields(TrainConfig) if field.name not in nested]
    names += [f"optim.{field.name}" for field in fields(OptimConfig)]
    names += [f"augment.{field.name}" for field in fields(AugmentConfig)]
    out = succeeds("train", "digits", "--help")
    assert all(f"--{name.replace('_', '-')}" in out for name in [*names, "model.patch-size"])
    out = succeeds("finetune", "--help")
    assert all(option in out for option in ("--data ", "--img-size", "--freeze", "--classes", "--optim.layer-decay"))


# -- summary and gradcheck --------------------------------------------------------------------------------------------


def test_a_summary_ends_with_parameters_and_with_activations_that_recomputation_lowers(succeeds):
    def total(*options):
        what, parameters, *_, activations, _ = (
            succeeds("summary", "vit_base_patch16_224", *options).split("\n")[-2].split()
        )
        assert (what, parameters) == ("total", "86,567,656")
        return float(activations.replace(",", ""))

    assert total("--batch-size", "8", "--recompute") < 0.2 * total("--batch-size", "8") < 2 * total()


def test_a_summary_of_a_pattern_lists_the_models_with_parameters_and_multiply_adds(succeeds):
    lines = [line.split() for line in succeeds("summary", "*_digits").splitlines()]
    assert lines[0] == ["hybrid_digits", "182,842", "parameters", "1,281,024", "multiply-adds"]
    assert "patch_embed.proj " in succeeds("summary", "digits")            # the preset's
    assert [line[0] for line in lines[1:]] == ["resnet8_digits"] and "[MODEL]" in succeeds("summary", "--help")


def rows(table):
    """Name and verdict of every line of the table that gradcheck prints."""
    return re.findall(r"^(\S.*?) {2,}\S+ {2,}\S+ .* s  (right|WRONG)$", table, re.MULTILINE)


def test_gradcheck_finds_every_operation_and_the_whole_model_right(succeeds):
    names, verdicts = zip(*rows(succeeds("gradcheck")))
    assert list(names[:-1]) == [case[0] for case in operation_cases()] and names[-1].startswith("ViT")
    assert set(verdicts) == {"right"}


def test_gradcheck_names_an_operation_and_a_model_whose_gradient_is_wrong(tinyvit, monkeypatch):
    softmax, layernorm = F.softmax.backward, F.layernorm_backward

    def wrong(dy, cache, into=None):
        dx, *rest = layernorm(dy, cache, into=into)
        return 1.001 * dx, *rest

    monkeypatch.setattr(F.softmax, "backward", lambda dy, cache: 1.001 * softmax(dy, cache))
    monkeypatch.setattr(F, "layernorm_backward", wrong)
    status, out, err = tinyvit("gradcheck", "--directions", "2")
    assert (status, err) == (1, "") and re.search(r"at entry .*backward gave .*expected", out)
    assert {re.split("[, ]", name)[0] for name, verdict in rows(out) if verdict == "WRONG"} == {"softmax", "ViT"}


# -- streams ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def shell(tmp_path):
    """Runs `tinyvit ARGUMENTS` in a shell; returns exit status, stdout and stderr."""

    def run(arguments, **environment):
        line = f'"{sys.executable}" -m tinyvit {arguments}'
        done = subprocess.run(["sh", "-c", line], cwd=tmp_path, env=os.environ | environment, capture_output=True,
                              text=True, timeout=120)  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    return run


def test_a_terminal_limited_to_ascii_is_not_an_error(shell):
    status, out, err = shell("summary vit_tiny_patch16_224", PYTHONIOENCODING="ascii")
    assert (status, err) == (0, "") and "5,717,416" in out
    wrong = "train digits --epochs few"
    assert shell(wrong, PYTHONIOENCODING="ascii") == shell(wrong)


def test_a_closed_pipe_is_not_an_error(shell):
    assert shell("summary vit_tiny_patch16_224 | true") == (0, "", "")


@pytest.mark.skipif(os.name != "posix", reason="`>&-` takes a shell")
@pytest.mark.parametrize("streams", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_command_with_closed_streams_has_the_status_and_the_output_that_it_has_otherwise(shell, streams):
    for arguments, status, out, err in (("--version", 0, "tinyvit ", ""), ("wrong", 2, "", "tinyvit: error: unknown")):
        found = shell(f"{arguments} {streams}")
        assert found[0] == status
        assert found[1].startswith("" if " >&-" in f" {streams}" else out)
        assert found[2].startswith("" if "2>&-" in streams else err) and "Traceback" not in found[2]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs Linux's /dev/full")
@pytest.mark.parametrize("command", ["--version", "--help", "gradcheck --help"])
def test_an_output_that_cannot_be_written_is_said_in_one_line(shell, command):
    expected = "tinyvit: error: the output can't be written: No space left on device\n"
    assert shell(f"{command} >/dev/full") == (2, "", expected)

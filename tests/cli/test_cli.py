import json
import os
import re
import subprocess
import sys
from dataclasses import fields

import numpy as np
import pytest
from safetensors.numpy import save_file

from tinyvit import functional as F
from tinyvit.cli import COMMANDS
from tinyvit.gradcheck import operation_cases
from tinyvit.training import AugmentConfig, OptimConfig, TrainConfig

PARAMETERS = {
    "vit_tiny_patch16_224": "5,717,416",
    "vit_small_patch16_224": "22,050,664",
    "vit_base_patch16_224": "86,567,656",
    "vit_base_patch32_224": "88,224,232",
    "vit_large_patch16_224": "304,326,632",
    "vit_large_patch32_224": "306,535,400",
    "vit_huge_patch14_224": "632,045,800",
    "resnet18": "11,689,512",
    "resnetv2_50x1_bit": "25,549,352",
    "vit_base_r50_s16_224": "98,659,112",
}


def process(*arguments, **options):
    command = [sys.executable, "-m", "tinyvit", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)


# -- refused input --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("trian", "unknown command 'trian'; expected one of train, finetune, evaluate"),
        ("--epochs 3", "unknown command '--epochs'"),
        ("train", "preset"),
        ("train digit", "unknown preset 'digit'; did you mean digits"),
        ("train mnist", "unknown preset 'mnist'; expected one of digits, moving-digits, cifar10-cpu"),
        ("train digits --epoch 3", "--epoch.*did you mean --epochs"),
        ("train digits extra", "extra"),
        ("train digits --epochs", "--epochs"),
        ("train digits --epochs few", "--epochs.*'few'"),
        ("train digits --optim.name " + 300 * "x", f"'{300 * 'x'}'.*adamw"),
        ("train digits --epochs 0", "epochs must be a positive int, got 0"),
        ("train digits --batch-size 0", "batch-size must be a positive int, got 0"),
        ("train digits --threads 0", "threads must be a positive int or None, got 0"),
        ("train digits --seed -1", "seed must be an int of at least 0, got -1"),
        ("train digits --device cpu --precision float16", "'float16' needs a GPU; on the CPU take float32"),
        ("train digits --precision bfloat17", "'bfloat17'.*--precision.*float64"),
        ("train digits --kernels quick", "'quick'.*--kernels"),
        ("train digits --device tpu", "unknown device 'tpu'; expected one of auto, cpu, cuda, or cuda:0, cuda:1"),
        ("train digits --device cuda:x", "unknown device 'cuda:x'; expected one of auto, cpu, cuda"),
        ("train digits --optim.lr -1", "lr must be a positive finite number, got -1.0"),
        ("train digits --optim.schedule step", "'step'.*cosine"),
        ("train digits --augment.operations 1000000", r"augment\.operations must be an int from 1 to 100, got 1000000"),
        ("train digits --model.depth 1000000000", "depth must be an int from 1 to 1,000, got 1000000000"),
        ("train digits --augment.crop -1", r"augment\.crop must be an int of at least 0, got -1"),
        ("train digits --model.patch-size 3", "image size 8×8 is not a multiple of the patch size 3×3.* 9×9"),
        ("train digits --model.img-size 8 9", "image size 8×9 is not a multiple of the patch size"),
        ("train digits --model.in-chans 3", r"reads images \(3, 8, 8\), but the data set's are \(1, 8, 8\)"),
        ("train digits --model.num-classes 9", "9 classes, but the data set has 10"),
        ("train digits --model.embed-dim 65", "embed_dim 65 is not divisible by num_heads 4"),
        ("train digits --model.embed-dim 6 --model.num-heads 2 --model.positions sincos_2d", "divisible by 4, got 6"),
        ("train digits --model.positions rope --model.num-heads 32", "rope.*divisible by 4, got 2"),
        ("train digits --model.drop-rate 1", r"drop_rate must be a number of at least 0 and below 1, got 1\.0"),
        ("train digits --model.mlp-ratio inf", "mlp_ratio.*inf"),
        ("train digits --model.norm-eps -1", "norm_eps.*-1"),
        ("train digits --data-dir .", "digits are built in; leave out --data-dir"),
        ("train cifar10-cpu --data-dir nowhere", "nowhere doesn't exist"),
        ("train cifar10-cpu --data-dir .", "holds no CIFAR-10; expected test_batch.bin"),
        ("summary", "missing MODEL: The name of a model, or a run folder"),
        ("summary vit_bas_patch16_224", "unknown run folder or model 'vit_bas_patch16_224'; did you mean vit_base"),
        ("summary vit_base_patch16_224 --img-size 225", "image size 225×225 is not a multiple of .* 240×240"),
        ("summary vit_base_patch16_224 --batch-size 0", "batch size of at least 1, got 0"),
        ("summary vit_base_patch16_224 --depth 3", "--depth"),
        ("gradcheck vit_nano", "unknown run folder or model 'vit_nano'"),
        ("gradcheck --directions 0", "directions.*0"),
        ("gradcheck --batch-size 0", "batch.size.*0"),
    ],
)
def test_bad_input_ends_with_one_line_that_names_it(refused, tmp_path, arguments, message):
    assert re.search(message, refused(*arguments.split()))
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("test_batch.bin", "data_batch_1.bin is missing"),
        ("cifar-10-binary.tar.gz", "cifar-10-binary.tar.gz is cut off or no .tar.gz archive"),
        ("data_batch_1", "Python version of CIFAR-10"),
    ],
)
def test_truncated_or_foreign_data_are_refused_and_left_unchanged(refused, tmp_path, name, message):
    (tmp_path / name).write_bytes(b"something else")
    assert message in refused("train", "cifar10-cpu", "--data-dir", ".")
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {name: b"something else"}


def test_a_file_in_the_place_of_the_run_folder_is_named(refused, tmp_path):
    (tmp_path / "file").write_text("precious")
    assert "file is a file; choose a folder with --out" in refused("train", "digits", "--out", "file")
    assert (tmp_path / "file").read_text() == "precious"


def test_a_folder_that_holds_a_run_is_refused_and_the_run_stays(refused, run):
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    assert "already holds a run" in refused("train", "digits", "--out", run, "--epochs", "1")
    assert {file: file.read_bytes() for file in run.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", None),
        ("config.json", b""),
        ("config.json", b"\xff\x00"),
        ("config.json", b'{"architectures": ["ViTForImageClassification"]}'),
        ("model.safetensors", None),
        ("model.safetensors", b""),
        ("model.safetensors", b"PK\x03\x04 something else"),
    ],
)
def test_a_run_with_a_damaged_file_is_refused_by_the_name_of_the_file(refused, damaged, name, content):
    assert name in refused("evaluate", damaged(name, content))


def test_truncated_weights_are_refused(refused, damaged, run):
    content = (run / "model.safetensors").read_bytes()
    path = damaged("model.safetensors", content[: len(content) // 2])
    assert "model.safetensors is damaged" in refused("evaluate", path)


def test_weights_of_another_model_are_refused_with_the_names_that_do_not_fit(refused, damaged):
    path = damaged("model.safetensors", None)
    (path / "model.json").unlink()
    save_file({"encoder.weight": np.zeros(3)}, path / "model.safetensors")
    line = refused("evaluate", path)
    assert "missing: cls_token" in line and "unexpected: encoder.weight" in line


ASCII = os.environ | {"PYTHONIOENCODING": "ascii"}


def test_the_error_line_is_the_same_in_a_terminal_limited_to_ascii(tmp_path):
    arguments = ["train", "digits", "--epochs", "few"]
    assert process(*arguments, cwd=tmp_path, env=ASCII).stderr == process(*arguments, cwd=tmp_path).stderr


def test_a_terminal_limited_to_ascii_is_not_an_error():
    ended = process("summary", "vit_tiny_patch16_224", env=ASCII)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "5,717,416" in ended.stdout


def test_an_invalid_number_of_threads_in_the_environment_is_refused(refused, monkeypatch):
    monkeypatch.setenv("TINYVIT_THREADS", "many")
    assert "got 'many'" in refused("train", "digits", "--epochs", "1")


@pytest.mark.parametrize(("error", "status", "line"), [
    (KeyboardInterrupt, 130, "tinyvit: interrupted\n"),
    (MemoryError("1 TiB"), 2, "tinyvit: error: out of memory; take a smaller model or --batch-size (1 TiB)\n"),
    (PermissionError(13, "Permission denied", "x"), 2, "tinyvit: error: x can't be used: Permission denied\n"),
    (ValueError("two\nlines"), 2, "tinyvit: error: two\\nlines\n"),
])  # fmt: skip
def test_an_interrupt_or_an_error_while_running_is_one_line(tinyvit, monkeypatch, error, status, line):
    def fail(rest):
        raise error

    def exit_at_once(status):
        raise SystemExit(status)

    monkeypatch.setattr(os, "_exit", exit_at_once)

    monkeypatch.setattr("tinyvit.cli.train.train", fail)
    assert tinyvit("train") == (status, "", line)


# -- successful commands --------------------------------------------------------------------------------------------


def test_without_a_command_the_commands_are_listed(tinyvit):
    status, out, err = tinyvit()
    assert (status, err) == (0, "")
    assert all(f"  {command} " in out for command in COMMANDS)
    assert tinyvit("--help") == (status, out, err)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(tinyvit, command):
    status, out, err = tinyvit(command, "--help")
    assert (status, err) == (0, "")
    assert out.startswith(f"usage: tinyvit {command}")


def test_help_names_every_option_of_a_training(tinyvit):
    status, out, err = tinyvit("train", "digits", "--help")
    assert (status, err) == (0, "")
    nested = {"model", "objective", "init", "optim", "augment"}
    names = [field.name for field in fields(TrainConfig) if field.name not in nested]
    names += [f"optim.{field.name}" for field in fields(OptimConfig)]
    names += [f"augment.{field.name}" for field in fields(AugmentConfig)]
    assert all(f"--{name.replace('_', '-')}" in out for name in [*names, "model.patch-size"])


def test_version(tinyvit):
    assert re.fullmatch(r"tinyvit \d+\.\d+\.\d+\n", tinyvit("--version")[1])


def test_evaluate_repeats_the_figures_of_the_runs_summary(tinyvit, run):
    status, out, err = tinyvit("evaluate", run, "--json")
    assert (status, err) == (0, "")
    scores, summary = json.loads(out), json.loads((run / "summary.json").read_text())
    assert scores["test_loss"] == pytest.approx(summary["test_loss"], rel=1e-6)
    for name in ("test_accuracy", "parameters", "dataset"):
        assert scores[name] == summary[name]


@pytest.mark.parametrize("name", PARAMETERS)
def test_summary_adds_up_to_the_known_number_of_parameters(tinyvit, name):
    status, out, err = tinyvit("summary", name)
    assert (status, err) == (0, "")
    assert out.splitlines()[-1].split()[:2] == ["total", PARAMETERS[name]]


def test_summary_shows_the_activations_with_recomputation(tinyvit):
    def megabytes(*options):
        status, out, err = tinyvit("summary", "vit_base_patch16_224", "--batch-size", "8", *options)
        assert (status, err) == (0, "")
        return float(out.splitlines()[-1].split()[-2].replace(",", ""))

    assert megabytes("--recompute") < 0.2 * megabytes()


def rows(table):
    """Name and verdict of every line of the table that gradcheck prints."""
    return re.findall(r"^(\S.*?) {2,}\S+ {2,}\S+ .* s  (right|WRONG)$", table, re.MULTILINE)


def test_gradcheck_finds_every_operation_and_the_whole_model_right(tinyvit):
    status, out, err = tinyvit("gradcheck")
    assert (status, err) == (0, "")
    names, verdicts = zip(*rows(out))
    assert list(names[:-1]) == [case[0] for case in operation_cases()] and names[-1].startswith("ViT")
    assert set(verdicts) == {"right"}


@pytest.mark.parametrize("operation", ["softmax", pytest.param("cross_entropy", marks=pytest.mark.full)])
def test_gradcheck_names_an_operation_whose_gradient_is_wrong(tinyvit, monkeypatch, operation):
    right = getattr(F, operation).backward
    monkeypatch.setattr(getattr(F, operation), "backward", lambda dy, cache: 1.001 * right(dy, cache))
    status, out, err = tinyvit("gradcheck", "--directions", "2")
    wrong = [name for name, verdict in rows(out) if verdict == "WRONG"]
    assert (status, err) == (1, "")
    assert wrong and all(name.split(",")[0] == operation for name in wrong)
    assert re.search(r"at entry .*backward gave .*expected", out)


def test_gradcheck_finds_a_wrong_gradient_inside_the_model(tinyvit, monkeypatch):
    right = F.layernorm_backward

    def wrong(dy, cache, into=None):
        dx, *rest = right(dy, cache, into=into)
        return 1.001 * dx, *rest

    monkeypatch.setattr(F, "layernorm_backward", wrong)
    status, out, _ = tinyvit("gradcheck", "--directions", "2")
    assert status == 1
    assert [name.split()[0] for name, verdict in rows(out) if verdict == "WRONG"] == ["ViT"]


def test_a_closed_pipe_is_not_an_error(tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "tinyvit", "summary", "vit_tiny_patch16_224"]
    ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(
    "command",
    ["train cifar10-cpu --data-dir NOBODY", "data cifar10 --from NOBODY", "import NOBODY --out run"],
)
def test_the_home_of_an_unknown_user_does_not_exist(refused, command):
    nobody = "~nobody-of-this-name"
    message = refused(*command.replace("NOBODY", nobody).split())
    assert f"{nobody} doesn't exist; expected a" in message


def test_a_tilde_with_an_unknown_user_is_a_folder_name_as_in_a_shell(tinyvit, tmp_path):
    status, _, _ = tinyvit("notebooks", "~nobody-of-this-name")
    assert status == 0 and (tmp_path / "~nobody-of-this-name" / "00_tour.ipynb").is_file()

from unittest.mock import Mock

import numpy as np
import pytest

from tinyvit.training.checkpoints import Checkpoints


@pytest.fixture
def checkpoints(tmp_path):
    """Those of steps 1 to 4, each with its own number in it."""
    found = Checkpoints(tmp_path)
    for step in range(1, 5):
        found.save(step, step // 2, {"w": np.full(3, step)}, {"step": step})
    return found


def newest(checkpoints, report=pytest.fail):
    about, tensors = checkpoints.newest(report)
    assert (tensors["w"] == about["step"]).all()
    return about["step"]


def test_the_newest_two_are_kept(checkpoints):
    names = {file.name for file in checkpoints.path.iterdir()}
    kept = ("3-epoch-1", "4-epoch-2")
    assert names == {f"step-0000000{name}.{end}" for name in kept for end in ("json", "safetensors")}
    assert newest(checkpoints) == 4


def test_of_two_after_the_same_step_the_later_epoch_is_newer(checkpoints):
    checkpoints.save(4, 3, {"w": np.full(3, 4)}, {"step": 4, "later": True})
    assert checkpoints.newest(pytest.fail)[0]["later"]


def test_checkpoints_are_ordered_by_number_and_not_by_name(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for step in (99_999_999, 100_000_000):
        checkpoints.save(step, 1, {"w": np.full(3, step)}, {"step": step})
    assert newest(checkpoints) == 100_000_000


@pytest.mark.parametrize("end", ["json", "safetensors"])
@pytest.mark.parametrize("damage", ["cut off", "changed", "missing"])
def test_the_checkpoint_before_a_damaged_newest_is_used_and_the_damage_reported(checkpoints, end, damage):
    file = checkpoints.path / f"step-00000004-epoch-2.{end}"
    content = bytearray(file.read_bytes())
    content[-30] ^= 4
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(content if damage == "changed" else content[:-5])
    told = []
    assert newest(checkpoints, told.append) == 3
    if (end, damage) != ("json", "missing"):  # without a manifest it never was a checkpoint
        assert len(told) == 1 and file.name in told[0] and "the checkpoint before" in told[0]


def test_a_damaged_checkpoint_does_not_replace_an_intact_one(checkpoints):
    (checkpoints.path / "step-00000004-epoch-2.safetensors").write_bytes(b"")
    assert newest(checkpoints, [].append) == 3
    assert (checkpoints.path / "step-00000004-epoch-2.json.damaged").exists()
    for step in (4, 5):
        checkpoints.save(step, 2, {"w": np.full(3, step)}, {"step": step})
    (checkpoints.path / "step-00000005-epoch-2.safetensors").write_bytes(b"")
    assert newest(checkpoints, [].append) == 4


def test_saving_the_same_step_again_keeps_the_existing_checkpoint(checkpoints, monkeypatch):
    monkeypatch.setattr("os.replace", Mock(side_effect=OSError("no space left on device")))
    checkpoints.save(4, 2, {"w": np.full(3, 4)}, {"step": 4})
    assert newest(checkpoints) == 4


def test_what_a_killed_process_left_half_done_is_removed(checkpoints):
    whole = sorted(checkpoints.path.iterdir())
    (checkpoints.path / "step-00000009-epoch-4.safetensors").write_bytes(b"half")
    (checkpoints.path / ".tinyvit-0").mkdir()
    checkpoints.tidy()
    assert sorted(checkpoints.path.iterdir()) == whole


def test_if_all_are_damaged_that_is_an_error_and_nothing_is_removed(checkpoints):
    for file in checkpoints.path.glob("*.safetensors"):
        file.write_bytes(b"")
    before = sorted(checkpoints.path.iterdir())
    told = []
    with pytest.raises(ValueError, match="no checkpoint in .* is whole; .*--init.run .*--init.best"):
        checkpoints.newest(told.append)
    assert len(told) == 2 and sorted(checkpoints.path.iterdir()) == before


def test_an_empty_folder_has_no_newest_checkpoint(tmp_path):
    assert Checkpoints(tmp_path).newest(pytest.fail) is None
    assert Checkpoints(tmp_path / "nowhere").newest(pytest.fail) is None


def test_the_best_is_kept_separately_and_replaces_the_previous_best(checkpoints):
    for step in (2, 3):
        checkpoints.save_best(step, {"w": np.full(3, step)}, {"step": step})
    names = {file.name for file in checkpoints.path.glob("best-*")}
    assert names == {"best-00000003.json", "best-00000003.safetensors"}
    np.testing.assert_array_equal(checkpoints.best()["w"], np.full(3, 3))
    assert newest(checkpoints) == 4


def test_a_missing_or_damaged_best_is_reported_by_name(checkpoints):
    with pytest.raises(ValueError, match="has no best weights: nothing was evaluated yet"):
        checkpoints.best()
    checkpoints.save_best(2, {"w": np.ones(3)}, {})
    (checkpoints.path / "best-00000002.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match=r"best-00000002\.safetensors is damaged"):
        checkpoints.best()

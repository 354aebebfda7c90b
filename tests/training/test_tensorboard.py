import struct

import numpy as np
from tensorboardX.proto.event_pb2 import Event, SessionLog

from tinyvit.training.tensorboard import tensorboard

ROW = {
    "epoch": 2,
    "step": 20,
    "lr": 0.001,
    "train_loss": 1.25,
    "train_accuracy": 0.5,
    "test_loss": 1.5,
    "test_accuracy": 0.375,
    "images_per_second": 850.0,
    "test_knn": None,
}


def events(folder):
    """Every event of a folder's files, in the order of their names, which is the order that TensorBoard reads."""
    for file in sorted(folder.iterdir()):
        records = file.read_bytes()
        while records:  # length, its checksum, event, its checksum
            (length,) = struct.unpack("<Q", records[:8])
            yield Event.FromString(records[12 : 12 + length])
            records = records[16 + length :]


def scalars(folder):
    """(tag, step, value) of all that TensorBoard would show: a session's start hides later steps before it."""
    shown = []
    for event in events(folder):
        if event.session_log.status == SessionLog.START:
            shown = [scalar for scalar in shown if scalar[1] < event.step]
        shown += [(value.tag, event.step, value.simple_value) for value in event.summary.value]
    return shown


def test_a_row_is_shown_as_scalars_at_its_step_without_what_it_lacks(tmp_path):
    with tensorboard(tmp_path) as add:
        add(ROW)
    expected = {
        ("lr", 20, np.float32(0.001)),
        ("loss/train", 20, 1.25),
        ("accuracy/train", 20, 0.5),
        ("loss/test", 20, 1.5),
        ("accuracy/test", 20, 0.375),
        ("images_per_second", 20, 850.0),
    }
    assert set(scalars(tmp_path)) == expected


def test_a_resumed_run_shows_one_curve(tmp_path):
    with tensorboard(tmp_path) as add:
        for step in (10, 20, 30):
            add({"step": step, "lr": 1.0})
    with tensorboard(tmp_path) as add:
        for step in (10, 30, 40):
            add({"step": step, "lr": 2.0})
    assert len(list(tmp_path.iterdir())) == 2
    assert scalars(tmp_path) == [("lr", 10, 2.0), ("lr", 30, 2.0), ("lr", 40, 2.0)]

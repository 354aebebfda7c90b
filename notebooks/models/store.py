"""Store a finished run here, with weights in float16 and without what only a resumed training needs.

    python notebooks/models/store.py RUN NAME
"""

import sys
from dataclasses import replace
from pathlib import Path

from tinyvit.training.config import to_json
from tinyvit.training.run_folder import RunFolder

run, stored = RunFolder(sys.argv[1]), RunFolder(Path(__file__).parent / sys.argv[2])
stored.path.mkdir(exist_ok=True)
for name in ("preprocessing", "metrics"):
    stored.write(getattr(stored, name), getattr(run, name).read_bytes())
stored.write(stored.config, to_json(replace(run.read_config(), out=None, data_dir=None)).encode())
stored.write_json(stored.summary, run.finished() | {"config": stored.digest()})
stored.save_model({name: array.astype("float16") for name, array in run.load_model().items()})

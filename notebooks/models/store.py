"""Store a finished run here, with weights in float16 and without what only a resumed training needs.

    python notebooks/models/store.py RUN NAME
"""

import sys
from dataclasses import replace
from pathlib import Path

from tinyvit.training.config import to_json
from tinyvit.training.run_folder import RunFolder

source, name = sys.argv[1:]
run, stored = RunFolder(source), RunFolder(Path(__file__).parent / name)
config, summary = run.read_config(), run.finished()
if summary is None:
    sys.exit(f"{source} is unfinished or damaged")
stored.path.mkdir(exist_ok=True)
for name in ("preprocessing", "metrics"):
    stored.write(getattr(stored, name), getattr(run, name).read_bytes())
stored.write(stored.config, to_json(replace(config, out=None, data_dir=None)).encode())
stored.write_json(stored.summary, summary | {"config": stored.digest()})
stored.save_model({name: array.astype("float16") for name, array in run.load_model().items()})

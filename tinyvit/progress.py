"""tqdm with a lock for threads only: its own is for processes, too, and starts one to look after it, which keeps the
files open that a command was started with."""

import threading

from tqdm import tqdm

tqdm.set_lock(threading.RLock())

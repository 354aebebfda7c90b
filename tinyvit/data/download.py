"""Downloads by pooch, from several sources in turn; a file with another checksum than published is not kept."""

import sys
import time
from collections import deque
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from urllib.parse import urlsplit

from tinyvit.text import say

ATTEMPTS = 3     # at a file whose download breaks off
PAUSE = 2.0      # seconds before the second attempt; twice as many before the third
TIMEOUT = 30.0   # seconds without a single byte
PATIENCE = 20.0  # seconds after which a source …
SLOWEST = 100e3  # … that sends fewer bytes a second than this is left for the next one


class Remote(NamedTuple):
    """A file that can be downloaded; its checksum as pooch writes it, "sha256:…"."""

    name: str
    address: str
    checksum: str


class Source(NamedTuple):
    """Files that together hold a data set, and the extra (with its module) that reading them takes."""

    files: tuple[Remote, ...]
    extra: str | None = None
    module: str | None = None

    @property
    def host(self):
        return urlsplit(self.files[0].address).netloc


class TooSlowError(Exception):
    """This source is too slow; another may be faster."""


def download(sources, folder, read):
    """Download the files of the first source that works; returns read(folder), and the source.

    folder   where the folder of the files is made; removed after they were read

    Raises ValueError with every source's reason if none works; OSError if the disk is full or can't be written to. A
    source that is too slow is tried last, without a time limit.
    """
    reasons = [f"{s.host}: needs the extra {s.extra} (pip install 'tinyvit[{s.extra}]')" for s in sources if lacking(s)]
    queue = deque((source, SLOWEST) for source in sources if not lacking(source))
    while queue:
        source, slowest = queue.popleft()
        try:
            with TemporaryDirectory(dir=folder) as own:
                for remote in source.files:
                    fetch(remote, own, slowest if queue else 0)
                return read(Path(own)), source
        except TooSlowError as error:
            say(f"{source.host} {error}; trying {queue[0][0].host}")
            queue.append((source, 0))
        except ValueError as error:
            reasons.append(f"{source.host}: {error}")
            if queue:
                say(f"{reasons[-1]}; trying {queue[0][0].host}")
    raise ValueError("; ".join(reasons))


def lacking(source):
    return source.module is not None and find_spec(source.module) is None


def fetch(remote, folder, slowest):
    """Download a file, in several attempts if the connection is bad; ValueError with the reason if it fails."""
    import pooch
    import requests  # which pooch downloads with

    pooch.get_logger().setLevel("WARNING")
    say(f"downloading {remote.name} from {remote.address}")
    for attempt in range(ATTEMPTS):
        progress = Progress(remote.name, slowest)
        downloader = pooch.HTTPDownloader(
            progressbar=progress,
            chunk_size=1 << 16,
            timeout=TIMEOUT,
            headers={"Accept-Encoding": "identity"},  # or some servers send a .tar.gz unpacked, as .tar
        )
        try:
            pooch.retrieve(remote.address, remote.checksum, remote.name, folder, downloader=downloader)
            return
        except requests.RequestException as error:
            reason, final = explained(error)
        except ValueError as error:  # what pooch raises for a wrong checksum
            raise ValueError(f"{remote.name} has another checksum than the published one") from error
        finally:
            progress.close()
        if final or attempt == ATTEMPTS - 1:
            raise ValueError(reason)
        say(f"{urlsplit(remote.address).netloc}: {reason}; trying again")
        time.sleep(PAUSE * 2**attempt)


def explained(error):
    """A network error as a short text, and whether another attempt is useless."""
    import requests
    from urllib3.exceptions import NewConnectionError  # no such host, or no server there

    if isinstance(error, requests.HTTPError):
        status = error.response.status_code
        return f"the server answered {status} {error.response.reason}", status < 500 and status not in (408, 429)
    if isinstance(error, requests.Timeout) or "timed out" in str(error).lower():
        return f"nothing came for {TIMEOUT:g} seconds", False
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the connection broke off", False
    if isinstance(error, requests.ConnectionError):
        reason = getattr(error.args[0], "reason", error.args[0])
        return f"no connection ({type(reason).__name__})", isinstance(reason, NewConnectionError)
    return f"{type(error).__name__}: {error}", True


class Progress:
    """pooch's progress of a download: drawn on stderr if that is a terminal; raises TooSlowError if it crawls."""

    total = None  # set by pooch

    def __init__(self, name, slowest):
        from tinyvit.progress import tqdm

        self.bar = tqdm(
            desc=name, unit="B", unit_scale=True, leave=False, dynamic_ncols=True, disable=not sys.stderr.isatty()
        )
        self.slowest, self.started, self.received = slowest, time.monotonic(), 0

    def update(self, received):
        if self.total and self.bar.total != self.total:
            self.bar.total = self.total
        self.bar.update(received)
        self.received += received
        seconds = time.monotonic() - self.started
        if seconds > PATIENCE and self.received < self.slowest * seconds:
            raise TooSlowError(f"sends only {self.received / seconds / 1e3:.0f} kB a second")

    def reset(self):
        """Called by pooch at the end, with the total again."""
        self.slowest = 0
        self.bar.reset(self.total)

    def close(self):
        self.bar.close()

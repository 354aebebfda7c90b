"""One HTML page that needs no network and no server, that shows a trained model step by step."""

from tinyvit.probe.explorer.choice import choose
from tinyvit.probe.explorer.explorer import LARGEST_PAGE, Explorer, explorer

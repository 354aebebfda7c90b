"""One HTML page that needs no network and no server, in which a person steps through a trained model."""

from tinyvit.probe.explorer.choice import choose
from tinyvit.probe.explorer.explorer import LARGEST_PAGE, Explorer, explorer

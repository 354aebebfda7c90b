"""Which card a rank computes on."""

from tinyvit.backend import library


def card_of(place):
    """The card of the rank number `place` on its machine: "cuda:0" of those that this process sees, and so on.

    Where the launcher shows each rank a card of its own, that is its first one.
    """
    return f"cuda:{place % library('cuda').cuda.runtime.getDeviceCount()}"


def bus(device):
    """The address of a card on its machine, the same in every process."""
    return library(device).cuda.runtime.deviceGetPCIBusId(int(device[5:]))


def check_cards(found, names):
    """Raise ValueError if two ranks compute on the same card, or some on a card and some on the CPU.

    found   (host, device, its address) of every rank
    """
    kinds = [device == "cpu" for _, device, _ in found]
    if any(kinds) != all(kinds):
        cpu, card = kinds.index(True), kinds.index(False)
        raise ValueError(
            f"{names[card]} found a GPU and {names[cpu]} none; give --device cpu, or start ranks where there are cards"
        )
    taken = {}
    for rank, (host, device, address) in enumerate(found):
        if device != "cpu" and (host, address) in taken:
            ranks = sum(where == host for where, *_ in found)
            cards = len({address for where, _, address in found if where == host})
            raise ValueError(
                f"{ranks} ranks on one machine share {cards} card{'s' * (cards > 1)}, and each needs its own; start "
                "as many ranks as there are cards, give --device cpu, or with Slurm --gpus-per-task 1"
            )
        taken[host, address] = rank

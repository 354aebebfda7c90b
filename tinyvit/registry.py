"""Registries of names, whose modules are imported on first use."""

from importlib import import_module

from tinyvit.text import did_you_mean


def look_up(table, name, kind):
    """The entry of this name; ValueError, with the nearest name or all of them, if there is none."""
    if name in table:
        return table[name]
    hint = did_you_mean(name, table)
    hint = "the TinyViT of Wu et al. 2022 is another network, which isn't here" if "tiny_vit" in str(name) else hint
    raise ValueError(f"unknown {kind} {name!r}; {hint}")


class Registry(dict):
    """The objects that modules have registered, by name.

    kind      what has these names, for errors: "architecture"
    modules   name -> module that registers it, for those of the package
    """

    def __init__(self, kind, modules):
        self.kind, self.modules = kind, modules

    def register(self, name, *more):
        """Make a class known by a name, which becomes its attribute `name`: `@register("swin", SwinConfig)`. Its entry
        is the class, or a tuple of it and what else is given."""

        def decorate(cls):
            own = self.modules.get(name)  # which may be imported again after an error
            if (name in self or own) and cls.__module__ != own:
                raise ValueError(f"the {self.kind} {name!r} is registered already")
            self[name] = (cls, *more) if more else cls
            cls.name = name
            return cls

        return decorate

    def find(self, name):
        """The entry of this name, whose module is imported; ValueError, with the nearest name or all, if there is
        none."""
        if name in self.modules:
            import_module(self.modules[name])
        return look_up(dict.fromkeys(self.modules) | self, name, self.kind)

"""Names that users of PyTorch and timm type, and what they are here: asking for one is an error that says it."""

NO_MODE = "model(x) is inference, and model(x, Context(training=True, key=Key(0))) training, with dropout"
TO_DTYPE = 'model.to(dtype="float64") or, on a GPU, model.to(precision="bfloat16") changes the number format'
FREEZE = 'freeze("blocks.*") and unfreeze("blocks.*") take a part, a pattern of names or a list'
TO_DEVICE = 'model.to(device="cuda") or model.to(device="cpu") moves it'
MODULE = {
    **dict.fromkeys(("train", "eval"), NO_MODE),
    **dict.fromkeys(("double", "float", "half", "bfloat16"), TO_DTYPE),
    **dict.fromkeys(("cuda", "cpu"), TO_DEVICE),
    "modules": "named_modules() gives every module of the tree with its path",
    "named_children": "children() gives (name, module) of each",
    "buffers": "named_buffers() gives them with their names",
    **dict.fromkeys(("requires_grad", "requires_grad_"), FREEZE),
    **dict.fromkeys(("register_buffer", "register_parameter", "add_module"), "assign it as an attribute"),
}


class ForeignNames:
    """The base of what has names elsewhere that it doesn't have here: `foreign`, what to do instead by name."""

    foreign = {}  # noqa: RUF012 (only read)

    def __getattr__(self, name):
        if name in self.foreign:
            raise AttributeError(f"{type(self).__name__} has no {name}: {self.foreign[name]}")
        return object.__getattribute__(self, name)  # raises the error that led here

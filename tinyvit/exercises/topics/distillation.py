"""The gradient of a student's loss."""


from tinyvit import functional as F
from tinyvit.exercises.exercise import Exercise


def inputs(random, B, K):
    return 3 * random.standard_normal((B, K)), 3 * random.standard_normal((B, K)), float(random.uniform(1.5, 4))


BACKWARD = Exercise(
    "distillation_backward",
    "The gradient of a student's logits for the loss τ² / (B K) · Σ p log(p / q), summed over samples and classes, "
    "with p = softmax(teacher / τ) and q = softmax(logits / τ). The teacher's logits are constants.",
    {"logits": "(B, K), the student's", "teacher": "(B, K), the teacher's logits", "temperature": "τ"},
    {"dlogits": "(B, K)"},
    right=lambda logits, teacher, temperature: F.distillation_backward(
        1.0, F.distillation(logits, teacher, temperature)[1]
    ),
    shown=(F.distillation, F.distillation_backward),
    inputs=inputs,
    sizes=({"B": 3, "K": 4}, {"B": 1, "K": 5}),
)
EXERCISES = (BACKWARD,)

ALL_LOGITS = "The loss is divided by B K, the number of all logits."
AT_TAU = "Both softmaxes are of logits / τ."

BACKWARD.edit("the sign is turned", "The loss falls where the student comes nearer: q − p, not p − q.",
    ("q - p", "p - q"))
BACKWARD.edit("a factor τ is missing", "τ² stands before the sum, and the logits are divided by τ: τ is left.",
    (" * temperature", ""))
BACKWARD.edit("a factor τ too many", "The logits are divided by τ, and so is their gradient: of τ² only τ is left.",
    (" * temperature", " * temperature**2"))
BACKWARD.edit("divided by the samples only", ALL_LOGITS, ("logits.size", "len(logits)"))
BACKWARD.edit("a sum, not a mean", ALL_LOGITS, (" / logits.size", ""))
BACKWARD.edit("the probabilities of logits that are not divided by τ", AT_TAU, (" / temperature", ""))
BACKWARD.edit("the teacher's probabilities are not at the temperature", AT_TAU, "teacher = teacher * temperature")
BACKWARD.edit("the gradient for the teacher's class alone", "Soft targets are probabilities of all classes.",
    ("p / p.sum(1, keepdims=True)", "np.eye(p.shape[1])[p.argmax(1)]"))

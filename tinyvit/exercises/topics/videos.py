"""Videos cut into tubelets, and the filters of images made into filters of videos."""


from tinyvit import functional as F
from tinyvit.exercises.exercise import Exercise
from tinyvit.models.vivit import inflate_filters


def video_inputs(random, B, C, t, h, w, s, p, q):
    return random.standard_normal((B, C, t * s, h * p, w * q)), (s, p, q)


def tubelet_inputs(random, B, C, t, h, w, s, p, q):
    return random.standard_normal((B, t * h * w, C * s * p * q)), (s, p, q), (t * s, h * p, w * q)


def filter_inputs(random, D, C, P, S):
    return random.standard_normal((D, C, P, P)), S


SIZES = (
    {"B": 2, "C": 3, "t": 2, "h": 3, "w": 4, "s": 2, "p": 3, "q": 2},
    {"B": 1, "C": 1, "t": 3, "h": 2, "w": 2, "s": 1, "p": 2, "q": 3},
)
TUBELET = "(S, P, Q), frames, height and width of a tubelet"
FORWARD = Exercise(
    "tubelets",
    "Videos cut into tubelets: those of the first S frames first, row by row; a tubelet's numbers in the order "
    "channel, frame, row, column.",
    {"videos": "(B, C, T, H, W)", "tubelet": TUBELET},
    {"tubelets": "(B, T/S · H/P · W/Q, C · S · P · Q)"},
    right=lambda videos, tubelet: F.tubelets(videos, tubelet)[0],
    shown=(F.tubelets,),
    inputs=video_inputs,
    sizes=SIZES,
)
BACK = Exercise(
    "from_tubelets",
    "Tubelets put together to videos again: the inverse of tubelets, and so its backward, too.",
    {"tubelets": "(B, N, C · S · P · Q)", "tubelet": TUBELET, "size": "(T, H, W) of the videos"},
    {"videos": "(B, C, T, H, W)"},
    right=lambda tubelets, tubelet, size: F.from_tubelets(tubelets, tubelet, size)[0],
    shown=(F.from_tubelets,),
    inputs=tubelet_inputs,
    sizes=SIZES,
)
INFLATE = Exercise(
    "inflate",
    "The filters of images as filters of tubelets of S frames: the frame in the middle, number S // 2 counted from 0, "
    "has the image's filter, and the others are zero.",
    {"weight": "(D, C, P, P)", "frames": "S"},
    {"inflated": "(D, C, S, P, P)"},
    right=inflate_filters,
    shown=(inflate_filters,),
    inputs=filter_inputs,
    sizes=({"D": 3, "C": 2, "P": 2, "S": 4}, {"D": 2, "C": 1, "P": 3, "S": 3}, {"D": 2, "C": 3, "P": 2, "S": 2}),
)
EXERCISES = FORWARD, BACK, INFLATE

AXES, AXES_BACK = "0, 2, 4, 6, 1, 3, 5, 7", "0, 4, 1, 5, 2, 6, 3, 7"
CHANNEL_FIRST = "A tubelet's numbers begin with the channel: C, S, P, Q."
BY_COLUMN = "the tubelets are counted column by column", "Those of the same frames follow each other row by row."

FORWARD.edit("reshaped without a transpose", "After the reshape to (B, C, t, S, h, P, w, Q) the axes of the grid, t, h "
    "and w, must come in front of the others.", (f".transpose({AXES})", ""))
FORWARD.edit("the channels stand last in a tubelet", CHANNEL_FIRST, (AXES, "0, 2, 4, 6, 3, 5, 7, 1"))
FORWARD.edit("the frames stand before the channels", CHANNEL_FIRST, (AXES, "0, 2, 4, 6, 3, 1, 5, 7"))
FORWARD.edit("the tubelets are counted place by place", "All tubelets of the first S frames come before those of the "
    "next.", (AXES, "0, 4, 6, 2, 1, 3, 5, 7"))
FORWARD.edit(*BY_COLUMN, (AXES, "0, 2, 6, 4, 1, 3, 5, 7"))

BACK.edit("reshaped without a transpose", "The axes (t, h, w, C, S, P, Q) must become (C, t, S, h, P, w, Q) before "
    "they are joined.", (f".transpose({AXES_BACK})", ""))
BACK.edit("frames and channels are exchanged", CHANNEL_FIRST, ("-1, S, P, Q", "S, -1, P, Q"),
    (AXES_BACK, "0, 5, 1, 4, 2, 6, 3, 7"))
BACK.edit("a tubelet's frames lie apart", "The S frames of a tubelet follow one another: (t, S), not (S, t), becomes "
    "T.", (AXES_BACK, "0, 4, 5, 1, 2, 6, 3, 7"))
BACK.edit(*BY_COLUMN, ("H // P, W // Q", "W // Q, H // P"), (AXES_BACK, "0, 4, 1, 5, 3, 6, 2, 7"))

MIDDLE = "The frame in the middle is number S // 2."
INFLATE.edit("every frame has the filter", "Of a still clip that gives S times what the image gives.",
    ("frames // 2] = weight", ":] = weight[:, :, None]"))
INFLATE.edit("the mean over the frames", "That is the other way to inflate; here the frame in the middle has the "
    "filter.", ("frames // 2] = weight", ":] = weight[:, :, None] / frames"))
INFLATE.edit("the first frame has the filter", MIDDLE, ("frames // 2", "0"))
INFLATE.edit("the last frame has the filter", MIDDLE, ("frames // 2", "-1"))
INFLATE.edit("rounded down for an even S", "Counted from 0, S // 2 is the second of the two in the middle.",
    ("frames // 2", "(frames - 1) // 2"))

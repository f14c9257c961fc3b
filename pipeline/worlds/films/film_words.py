"""Phrases of the simulated annotators for events; a phrase that is listed twice is twice as likely.

"run[s]" stands for both forms of a verb, runs and running. {v} is the verb of the actor's gait. {side} and {other} are
the sides of the image.
"""

from __future__ import annotations

GAIT_VERBS: dict[str, tuple[str, ...]] = {
    "walk": ("walk[s]", "walk[s]", "walk[s]", "stroll[s]"),
    "run": ("run[s]", "run[s]", "run[s]", "race[s]"),
    "fly": ("fl[ies]",),
    "drive": ("drive[s]", "drive[s]", "roll[s]"),
    "sail": ("sail[s]", "sail[s]", "float[s]"),
    "roll": ("roll[s]",),
    "float": ("float[s]", "drift[s]", "fl[ies]"),
}
ENTER = (  # a text without {side} and {other} claims no side
    *("{v} in from the {side}", "{v} in from the {side}", "{v} in from the {side}", "come[s] in from the {side}"),
    *("enter[s] from the {side}", "{v} into the picture from the {side}", "appear[s] on the {side}"),
    *("{v} into view", "come[s] into the picture"),
)
CROSS = (
    *("{v} from {side} to {other}", "{v} from {side} to {other}", "{v} from the {side} to the {other}"),
    *("{v} across from {side} to {other}", "{v} through the picture from {side} to {other}"),
    *("{v} across the picture", "{v} past", "{v} past to the {other}"),
)
LEAVE = (
    *("{v} away to the {side}", "{v} off to the {side}", "{v} out to the {side}", "leave[s] to the {side}"),
    *("leave[s] on the {side}", "disappear[s] to the {side}", "{v} away", "leave[s]"),
)
LEAVE_ON = ("{v} on to the {side}", "{v} on to the {side}", "leave[s] on the other side")  # after an "enter" event
RETURN = (
    *("turn[s] back", "turn[s] back to the {side}", "go[es] back to the {side}", "{v} back to the {side}"),
    *("{v} back again", "leave[s] on the same side"),
)
ACT_WORDS: dict[str, tuple[str, ...]] = {  # by act, or by category and act
    "jump": ("jump[s]", "jump[s]", "jump[s] into the air", "leap[s] up"),
    "ball:jump": ("bounce[s]", "bounce[s] once", "bounce[s] up"),
    "bird:jump": ("hop[s]", "hop[s] up"),
    "wave": ("wave[s]", "wave[s]", "wave[s] hello", "wave[s] a hand"),
    "turn": ("turn[s] around", "turn[s] around", "look[s] the other way"),
    "car:turn": ("turn[s] around",),
    "bus:turn": ("turn[s] around",),
    "truck:turn": ("turn[s] around",),
    "boat:turn": ("turn[s] around",),
    "sit": ("sit[s] down", "sit[s] down", "sit[s]"),
    "sleep": ("lie[s] down", "lie[s] down", "go[es] to sleep"),
    "graze": ("graze[s]", "eat[s] grass", "eat[s] some grass", "start[s] grazing"),
    "stop": ("stop[s]", "stop[s] for a moment", "wait[s]"),
    "rise": ("rise[s]", "go[es] up", "climb[s] into the sky"),
    "sink": ("sink[s]", "come[s] down", "go[es] down"),
}
MEET = ("meet", "meet", "come together", "meet in the middle")
PASS = ("pass each other", "pass each other", "go past each other", "cross paths")
FOLLOW = ("follows", "follows", "goes after")
MEETS, PASSES, FOLLOWED = "meets", "passes", "is followed by"
STORIES = {"meet": (*MEET, MEETS), "pass": (*PASS, PASSES, "comes the other way"), "follow": (*FOLLOW, FOLLOWED)}
FILMS = ("a film of", "an animation of", "a clip of", "a video of")
IRREGULAR = {"run": "running", "sit": "sitting", "stop": "stopping", "hop": "hopping", "fl": "flying", "lie": "lying"}
IRREGULAR |= {"race": "racing", "come": "coming", "drive": "driving", "leave": "leaving", "wave": "waving"}
IRREGULAR |= {"graze": "grazing", "bounce": "bouncing", "rise": "rising"}


def conjugate(text: str) -> str:
    """Return the phrase with its verb in the third person singular: run[s] in → runs in."""
    return text.replace("[", "").replace("]", "")


def form_participle(text: str) -> str:
    """Return the phrase with the participle of its verb: run[s] in → running in."""
    stem, remainder = text.split("[", 1)
    return IRREGULAR.get(stem, stem + "ing") + remainder.split("]", 1)[1]

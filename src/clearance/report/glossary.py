"""How to read each number, in which direction it is better, and what it does not mean."""

from collections.abc import Iterable, Mapping

from clearance.report.entry import Entry
from clearance.report.glossary_attacks import ENTRIES as ATTACKS
from clearance.report.glossary_features import ENTRIES as FEATURES
from clearance.report.glossary_likelihood import ENTRIES as LIKELIHOOD
from clearance.report.glossary_paper import ENTRIES as PAPER
from clearance.report.glossary_scale import ENTRIES as SCALE
from clearance.report.glossary_tilting import ENTRIES as TILTING

GLOSSARY: Mapping[tuple[str, str], Entry] = {
    ("accuracy", "error"): Entry(
        "Error with its own last layers",
        "The share of images that the network gets wrong as it was trained, from input to answer.",
        "Lower is better; 0 % is never wrong. Guessing among ten equally common classes is wrong on 90 %. "
        "Much lower on the training images than on the test images means that images were memorised.",
        "It does not say how the network behaves on images from elsewhere, or on altered ones.",
    ),
    ("co_adaptation", "error"): Entry(
        "Error with rebuilt last layers",
        "The last layers are thrown away and made anew from a few images, while the rest of the network "
        "stays "
        "as it is. This is repeated with other images and other random starts, and the errors are averaged.",
        "Lower is better. An error that hardly rises when fewer images are used means that what the network "
        "passes on already keeps the classes apart, for any last layers and not only for those it grew "
        "up with. "
        "“Nearest image, pixel by pixel” uses no network at all: it is what has to be beaten.",
        "The rest of the network has seen every training image of these classes. The number promises "
        "nothing for "
        "new classes, and it is not the error of training a network on so few images.",
    ),
    ("co_adaptation", "gap"): Entry(
        "Gap to its own last layers",
        "The error with rebuilt last layers minus the error with the network's own.",
        "Close to zero is better. With all training images a gap above zero says that the network had tuned "
        "itself to its one set of last layers; below zero, that a fresh set reads the network better.",
        "With few images a gap also contains what few images cost; compare it between methods.",
    ),
    ("co_adaptation", "diverged_heads"): Entry(
        "Rebuilt last layers that gave no answer",
        "How many of the rebuilt last layers broke down while they were trained. They count as guessing.",
        "Zero is right. Anything else makes the error above higher than it needs to be.",
        "It is a matter of how they were trained, not of the network alone.",
    ),
    ("co_adaptation", "unfitted_heads"): Entry(
        "Rebuilt last layers that miss their own images",
        "How many of the rebuilt last layers get some of the very images wrong from which they were made.",
        "Zero is right for few images. With all images some are expected.",
        "It does not say that the network is bad: last layers that are too simple miss images too.",
    ),
    ("training", "diverged_heads"): Entry(
        "Last layers left out while training",
        "FOCA trains against last layers that are made anew in every step; this many broke down and were left out.",
        "Zero is right; a few among thousands do no harm.",
        "It says nothing about the trained network.",
    ),
    ("class_scatter", "within_between"): Entry(
        "Spread within classes over spread between classes",
        "How far the network's features lie from their class average, against how far class averages lie "
        "apart.",
        "Lower is better; 0 would mean that each class is a single point.",
        "It is blind to shape: two classes may lie far apart on average and still touch.",
    ),
    ("class_scatter", "cdnv"): Entry(
        "Class-distance normalised variance",
        "For each pair of classes, their variance over twice the squared distance of their averages; "
        "then averaged.",
        "Lower is better; well below 1 means that pairs of classes are well separated.",
        "An average over pairs can hide one pair that is mixed up.",
    ),
    ("class_scatter", "nc1"): Entry(
        "Within-class variability (NC1)",
        "The within-class scatter, measured in units of the between-class scatter, direction by direction.",
        "Lower is better; it tends to 0 in networks that are trained long after they make no more errors.",
        "A low value on the training images alone says nothing about unseen images: read the test value.",
    ),
    ("training", "seconds"): Entry(
        "Training time",
        "Wall-clock time of the training, without the measuring afterwards. FOCA's includes its last part, in which "
        "the last layers that the network keeps are trained: in a short training that is most of it.",
        "Lower is better. It depends on the machine; the ratio between methods does so less.",
        "It is no bound: none of the methods was tuned for speed.",
    ),
    ("training", "memory"): Entry(
        "Training memory",
        "The most memory that training added to what its process held before: to program and images. Of the graphics "
        "card, where one was used.",
        "Lower is better. A MiB is 1,048,576 bytes.",
        "It also depends on how the system hands memory out: a tenth more or less says nothing.",
    ),
    ("training", "steps"): Entry(
        "Training steps",
        "How many batches changed the network.",
        "Neither direction is better; it says whether methods were given the same.",
        "Equal steps are not equal work: a step of one method may cost several of another.",
    ),
    **PAPER,
    **TILTING,
    **FEATURES,
    **ATTACKS,
    **SCALE,
    **LIKELIHOOD,
}


def title(audit: str, name: str) -> str:
    """What a quantity is called at the head of its row.

    >>> title("training", "steps"), title("other", "some_number")
    ('Training steps', 'Other: some number')
    """
    entry = GLOSSARY.get((audit, name))
    return entry.title if entry else f"{audit}: {name}".replace("_", " ").capitalize()


def entries(quantities: Iterable[tuple[str, str]]) -> list[Entry]:
    """The entries of those quantities that have one, each once.

    >>> len(entries([("training", "steps"), ("training", "steps"), ("other", "number")]))
    1
    """
    return [GLOSSARY[key] for key in dict.fromkeys(quantities) if key in GLOSSARY]

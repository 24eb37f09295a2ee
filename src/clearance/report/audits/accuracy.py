"""The page on how often a network is wrong."""

from markupsafe import Markup

from clearance.records.derived import SummaryRow
from clearance.report.audit_page import AuditPage, Finding, Term, rest_with_ends
from clearance.report.findings import Findings
from clearance.report.numbers import data

NAMED = 10  # images that a sentence names at most
WITH_WEIGHTS = ("hf", "lightning", "timm", "torchvision")  # names of models that say where their weights are


def _accuracy(findings: Findings) -> list[Finding]:
    row = findings.own_error(findings.methods[0])
    if row is None:
        return []
    said = Markup("{} of {} test images are classified correctly").format(
        rest_with_ends(row), data(row.n, "count")
    )
    expected = findings.report.recipe.get("expected_accuracy")
    if expected is not None:
        said += Markup("; expected {}").format(data(expected, "fraction"))
    said += Markup(".") + _further_outputs(findings)
    lead = Finding("Accuracy", "information", said, lead=True)
    without = _not_finite(findings)
    found = [lead, *_another_order(findings)]
    found += _hardly_better(findings, row)
    if without:
        todo = "Look for NaN and infinities in these images, the weights and the layers before you use any number."
        found.append(Finding("Logits", "problem", without, todo))
    return found


def _hardly_better(findings: Findings, error: SummaryRow) -> list[Finding]:
    """That always naming one class would be right about as often, and where the weights come from."""
    row = findings.row("mean", "accuracy", "largest_class", split="test")
    if row is None:
        return []
    said = Markup(
        "{} of the test images are right, and {} are of the largest class: the network is hardly better than always "
        "naming that class."
    ).format(rest_with_ends(error), data(row.value, row.unit))
    place, weights = (findings.report.recipe.get(key, "") for key in ("model", "weights"))
    if weights is None and str(place).partition(":")[0] not in WITH_WEIGHTS:
        said += Markup(" No --weights were given: its weights are those that {} comes with.").format(place)
    todo = (
        "Check that trained weights were loaded, the preprocessing, and the order of the classes, before you use any "
        "number."
    )
    return [Finding("Largest class", "problem", said, todo, alone=True)]


def _another_order(findings: Findings) -> list[Finding]:
    """That the outputs are in another order than the classes, and in which."""
    row = findings.row("mean", "accuracy", "error_in_another_order", split="test")
    if row is None:
        return []
    said = Markup(
        "The outputs are in another order than the classes: matched with them on training images, {} of the test "
        "images are right."
    ).format(rest_with_ends(row))
    code = ""
    todo = "Rename the folders so that their order is that of the outputs, or reorder the outputs; then audit again."
    for record in findings.exhibits("accuracy", "order"):
        if "outputs" in record.exhibit.context:
            todo = (
                "Correct the names of classes that the model keeps (`id2label`, `label_names` or `classes`), by which "
                "its outputs were found; then audit again."
            )
        else:
            code = f"logits = logits[:, {list(record.exhibit.columns['output'])}]"
    return [Finding("Order of the classes", "problem", said, todo, code, alone=True)]


def _not_finite(findings: Findings) -> Markup:
    """How many images have logits that are not finite, and which."""
    found = Markup("")
    for split, images in (("test", "test"), ("train", "training")):
        row = findings.row("mean", "accuracy", "not_finite", method=findings.methods[0], split=split)
        if row is not None:
            found += Markup(
                "{}The logits of {} of {} {} images are NaN or infinite{}; they count as wrong."
            ).format(
                " " if found else "",
                data(row.value, row.unit),
                data(row.n, "count"),
                images,
                _which(findings, split),
            )
    return found


def _which(findings: Findings, split: str) -> Markup:
    """Their number, and their places in the set."""
    for record in findings.exhibits("accuracy", "not_finite"):
        if record.exhibit.context.get("split") == split:
            places = [place for place, there in enumerate(record.exhibit.columns["value"]) if there]
            named = ", ".join(map(str, places[:NAMED])) + (", ..." if len(places) > NAMED else "")
            return Markup(" (<code>{}</code>: index <code>{}</code>)").format(len(places), named)
    return Markup("")


def _further_outputs(findings: Findings) -> Markup:
    """What was taken for granted of a network that has more outputs than there are classes."""
    outputs = findings.report.recipe.get("outputs")
    if outputs is None:
        return Markup("")
    if outputs.get("by") == "name":
        return Markup(
            " It has {} outputs: those of the {} classes were found by their names, and a prediction of any "
            "other counts as wrong."
        ).format(data(outputs["of the model"], "count"), data(outputs["classes"], "count"))
    return Markup(
        " It has {} outputs: the first {} are taken as the classes in the order of their names, and a prediction of"
        " any other output counts as wrong. If the classes are in another order, the numbers on this page are not "
        "valid."
    ).format(data(outputs["of the model"], "count"), data(outputs["classes"], "count"))


PAGE = AuditPage(
    title="Accuracy",
    reading=(
        "Lower is better, and the test images count: a much lower error on the training images shows how much was "
        "memorised."
    ),
    place=10,
    glossary={
        "error": Term(
            "Error with its own last layers",
            "The share of images that the network gets wrong as it was trained, from input to prediction.",
            "Lower is better; 0 % is never wrong. Guessing among ten equally common classes is wrong on 90 %. "
            "Much lower on the training images than on the test images means that images were memorised.",
            "It does not say how the network behaves on images from elsewhere, or on altered ones.",
        ),
        "error_in_another_order": Term(
            "Error with the outputs in another order",
            "The error on test images if outputs are matched with classes as is right most often on training images.",
            "This row is there only where it is clearly lower: the outputs are then in another order than the classes.",
            "A network that confuses two classes nearly always has such an order too.",
        ),
        "largest_class": Term(
            "Share of the largest class",
            "The share of the test images that are of the class with the most of them.",
            "This row is there only where the network is hardly better than always naming that class: it makes "
            "at least nine tenths of the errors of that rule.",
            "Where one class is most of the images, a useful network may be near it: see the recall of each class.",
        ),
        "not_finite": Term(
            "Images without finite logits",
            "The share of images for which the network's outputs are NaN or infinite. They count as wrong.",
            "It should be 0 %; this row is there only where it is not.",
            "It is not a property of the task: the images, the weights or a layer are damaged.",
        ),
    },
    findings=_accuracy,
)

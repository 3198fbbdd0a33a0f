"""Weight bytes of a manifest: plain, quantized, and the share of one accelerator under a parallel layout."""

from __future__ import annotations

from manifests.ledger.formulas import ELEMENT_BYTES, QUANTIZATION, weight_bytes
from manifests.ledger.terms import Book
from manifests.models import ModelFacts, quantization_of_name


def weights(book: Book) -> int | None:
    """Bytes per accelerator; None (and the reason) where parameters or format are not known."""
    facts = book.facts
    if facts is None or facts.parameters is None:
        if facts is not None:
            book.unknown.append("number of parameters: config.json of this architecture does not give it")
        return None
    method, dtype = _method(book, facts), str(book.value("dtype") or "auto")
    name = facts.dtype if dtype == "auto" else dtype
    element = ELEMENT_BYTES.get(name)
    if method is not None:
        total = _quantized(book, facts, method, element or 2.0)
    elif element is None:
        book.unknown.append(f"bytes per weight of dtype `{name}`")
        return None
    else:
        formula = f"P x bits / 8 = {facts.parameters} x {element * 8:g} / 8"
        total = int(book.add("weights", formula, weight_bytes(facts.parameters, element * 8), "bytes"))
    return None if total is None else _share(book, facts, total)


def _method(book: Book, facts: ModelFacts) -> str | None:
    written = book.value("quantization") or book.value("quantize")
    if written:
        return str(written).lower()
    found = facts.quantization or quantization_of_name(book.manifest.model.id)
    return "mxfp4" if found is None and facts.dtype == "mxfp4" else found


def _quantized(book: Book, facts: ModelFacts, method: str, element: float) -> int | None:
    known = QUANTIZATION.get(method) or QUANTIZATION.get(method.replace("compressed-tensors", ""))
    if known is None or facts.parameters is None:
        book.unknown.append(f"bits per weight of quantization `{method}`")
        return None
    bits, overhead, how = known
    plain = facts.embedding_parameters
    quantized = facts.parameters - plain
    codes_formula = f"(P - embeddings) x bits / 8 = {quantized} x {bits:g} / 8"
    codes = book.add("weight codes", codes_formula, weight_bytes(quantized, bits), "bytes")
    scales_formula = f"{quantized} x {overhead:g} / 8 ({how})"
    extra = book.add("scales and zero points", scales_formula, weight_bytes(quantized, overhead), "bytes", True)
    rest_formula = f"V x D x {1 if facts.tied else 2} x {element:g} = {plain} x {element:g}"
    rest = book.add("unquantized embeddings", rest_formula, int(plain * element), "bytes")
    return int(book.add("weights", "codes + scales + unquantized", codes + extra + rest, "bytes", True))


def _share(book: Book, facts: ModelFacts, total: int) -> int:
    layout = book.layout
    ranks = layout.tensor * layout.pipeline
    name = "weights per accelerator"
    spread = layout.experts and layout.expert_ranks > layout.tensor
    if facts.experts and facts.expert_parameters and facts.parameters and spread:
        share = facts.expert_parameters / facts.parameters
        value = total * share / (layout.expert_ranks * layout.pipeline) + total * (1 - share) / ranks
        formula = (
            f"experts / (EP {layout.expert_ranks} x PP {layout.pipeline}) + rest / (TP {layout.tensor} x PP "
            f"{layout.pipeline})"
        )
        return int(book.add(name, formula, int(value), "bytes"))
    if ranks == 1:
        return total
    formula = f"weights / (TP x PP) = {total} / ({layout.tensor} x {layout.pipeline})"
    return int(book.add(name, formula, int(total / ranks), "bytes"))

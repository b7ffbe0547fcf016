"""A scorer as an ONNX graph: from users' vectors to the scores of all items, without a line of hushrec.

Users' vectors are an input, never a part of the file: each device has its own. Numbers are computed in double
precision, so that runtimes that add up in another order still agree to the sixth decimal.
"""

from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushrec.errors import HushrecError, MissingExtraError, how_to_install
from hushrec.evaluation.formula import Clipped, Eased, Formula, Scaled, Sigmoid, Step

_OPSET, _IR_VERSION = 17, 8  # what runtimes since 2022 read
_MOST_BYTES = (1 << 31) - (1 << 20)  # of one file


class _Graph:
    """Nodes and constants, as they are added; every result has a name."""

    def __init__(self, onnx: Any) -> None:
        self._onnx = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, name: str, values: NDArray[Any] | float) -> str:
        """A constant of the graph, in double precision."""
        array = np.asarray(values, np.float64)
        self.constants.append(self._onnx.numpy_helper.from_array(array, name))
        return name

    def axes(self, name: str, axis: int) -> str:
        """A constant that names an axis."""
        self.constants.append(self._onnx.numpy_helper.from_array(np.array([axis], np.int64), name))
        return name

    def add(self, kind: str, inputs: Iterable[str], name: str, **attributes: Any) -> str:
        """A node with one result."""
        self.nodes.append(self._onnx.helper.make_node(kind, list(inputs), [name], **attributes))
        return name


def onnx_bytes(formula: Formula, told: Mapping[str, str]) -> bytes:
    """The file. Inputs: `user_vectors` (users, factors), and `user_offsets` (users) if the model has them.

    Outputs: `scores`, which rank, and `predictions`, both (users, items). `told` is kept with it for people.
    """
    try:
        import onnx
    except ImportError:
        raise MissingExtraError(f"ONNX files need onnx; install it with: {how_to_install('onnx')}") from None

    size = 8 * (formula.item_vectors.size + len(formula.item_vectors))
    if size > _MOST_BYTES:
        raise HushrecError(
            f"an ONNX file takes 2 GB and this model needs {size / 1e9:.1f}; export its vectors instead"
        )
    graph = _Graph(onnx)
    total = _sums(graph, formula)
    floats = onnx.TensorProto.FLOAT
    outputs = []
    for name, steps in (("scores", formula.ranked), ("predictions", formula.predicted)):
        last = _stepped(graph, total, steps, name)
        graph.add("Cast", [last], name, to=floats)
        outputs.append(onnx.helper.make_tensor_value_info(name, floats, ["users", len(formula.item_vectors)]))
    shapes: dict[str, list[Any]] = {"user_vectors": ["users", formula.user_vectors.shape[1]]}
    if formula.user_offsets is not None:
        shapes["user_offsets"] = ["users"]
    inputs = [onnx.helper.make_tensor_value_info(name, floats, shape) for name, shape in shapes.items()]
    made = onnx.helper.make_model(
        onnx.helper.make_graph(graph.nodes, "scorer", inputs, outputs, graph.constants),
        opset_imports=[onnx.helper.make_opsetid("", _OPSET)],
        producer_name="hushrec",
        producer_version=version("hushrec"),
        ir_version=_IR_VERSION,
    )
    onnx.helper.set_model_props(made, dict(told))
    onnx.checker.check_model(made)
    found: bytes = made.SerializeToString()
    return found


def _sums(graph: _Graph, formula: Formula) -> str:
    """The sum of products, layers and offsets, of all items for each user."""
    users = graph.add("Cast", ["user_vectors"], "users", to=11)  # to double
    cut, num_columns = formula.num_products, formula.item_vectors.shape[1]
    items = formula.item_vectors.astype(np.float64)
    parts = []
    if cut:
        weights = 1.0 if formula.product_weights is None else formula.product_weights
        own = users if cut == num_columns else _columns(graph, users, "product", 0, cut)
        graph.constant("item_products", (items[:, :cut] * weights).T)
        parts.append(graph.add("MatMul", [own, "item_products"], "products"))
    if formula.layers:
        own = _columns(graph, users, "dense", cut, formula.user_vectors.shape[1])
        parts.append(_dense(graph, formula, own, items[:, cut:]))
    if formula.user_offsets is not None:
        graph.add("Cast", ["user_offsets"], "own_levels", to=11)
        parts.append(graph.add("Unsqueeze", ["own_levels", graph.axes("last_axis", 1)], "own_column"))
    if formula.item_offsets is not None:
        parts.append(graph.constant("item_offsets", formula.item_offsets[None]))
    total = parts[0]
    for place, part in enumerate(parts[1:]):
        total = graph.add("Add", [total, part], f"sum_{place}")
    return total


def _columns(graph: _Graph, whole: str, name: str, first: int, last: int) -> str:
    begin, end = graph.axes(f"{name}_begin", first), graph.axes(f"{name}_end", last)
    return graph.add("Slice", [whole, begin, end, graph.axes(f"{name}_axis", 1)], f"{name}_of_users")


def _dense(graph: _Graph, formula: Formula, users: str, items: NDArray[np.float64]) -> str:
    """Dense layers over each pair; of the first one, users and items each make their half once."""
    (weight, bias), *others = formula.layers
    half = weight.shape[0] - items.shape[1]
    own = graph.add("MatMul", [users, graph.constant("layer_0_users", weight[:half])], "halves")
    own = graph.add("Unsqueeze", [own, graph.axes("pair_axis", 1)], "halves_of_pairs")
    hidden = graph.add("Add", [own, graph.constant("layer_0_items", items @ weight[half:] + bias)], "hidden_0")
    for number, (weight, bias) in enumerate(others, 1):
        hidden = _bent(graph, formula, hidden, number)
        hidden = graph.add(
            "MatMul", [hidden, graph.constant(f"layer_{number}_weight", weight)], f"mapped_{number}"
        )
        hidden = graph.add("Add", [hidden, graph.constant(f"layer_{number}_bias", bias)], f"hidden_{number}")
    return graph.add("Squeeze", [hidden, graph.axes("output_axis", 2)], "dense")


def _bent(graph: _Graph, formula: Formula, hidden: str, number: int) -> str:
    if formula.bend is None:
        return graph.add("Relu", [hidden], f"bent_{number}")
    square, slope, offset = formula.bend
    steps: tuple[tuple[str, float | str], ...] = (
        ("Mul", square),
        ("Add", slope),
        ("Mul", hidden),
        ("Add", offset),
    )
    value = hidden
    for place, (kind, other) in enumerate(steps):
        name = f"bent_{number}_{place}"
        by = other if isinstance(other, str) else graph.constant(f"{name}_by", other)
        value = graph.add(kind, [value, by], name)
    return value


def _stepped(graph: _Graph, value: str, steps: Iterable[Step], output: str) -> str:
    for place, step in enumerate(steps):
        value = _step(graph, value, step, f"{output}_{place}")
    return value


def _step(graph: _Graph, value: str, step: Step, name: str) -> str:
    match step:
        case Scaled(unit, centre):
            scaled = graph.add("Mul", [value, graph.constant(f"{name}_unit", unit)], f"{name}_scaled")
            return graph.add("Add", [scaled, graph.constant(f"{name}_centre", centre)], name)
        case Clipped(low, high):
            return _clipped(graph, value, low, high, name)
        case Eased(low, high, margin):
            return _eased(graph, value, low, high, margin, name)
        case Sigmoid():
            return graph.add("Sigmoid", [value], name)


def _clipped(graph: _Graph, value: str, low: float, high: float, name: str) -> str:
    ends = [graph.constant(f"{name}_low", low), graph.constant(f"{name}_high", high)]
    return graph.add("Clip", [value, *ends], name)


def _eased(graph: _Graph, value: str, low: float, high: float, margin: float, name: str) -> str:
    """clip(x) + m (exp(-max(low - x, 0) / m) - exp(-max(x - high, 0) / m)), as expm1 has no node."""
    within = _clipped(graph, value, low, high, f"{name}_within")
    beyond = graph.add("Sub", [value, within], f"{name}_beyond")  # below: negative, above: positive, else 0
    sized = graph.add("Div", [beyond, graph.constant(f"{name}_margin", margin)], f"{name}_sized")
    far = graph.add(
        "Exp", [graph.add("Neg", [graph.add("Abs", [sized], f"{name}_abs")], f"{name}_neg")], f"{name}_exp"
    )
    near = graph.add("Sub", [graph.constant(f"{name}_one", 1.0), far], f"{name}_near")
    signed = graph.add("Mul", [graph.add("Sign", [sized], f"{name}_sign"), near], f"{name}_signed")
    eased = graph.add("Mul", [signed, f"{name}_margin"], f"{name}_eased")
    return graph.add("Add", [within, eased], name)

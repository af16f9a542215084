"""Pictures as the 1,280 pooled activations of EfficientNet-Lite0, without torch (extra ``images``).

The net (Apache-2.0, trained on ImageNet) is assembled as an ONNX graph from its weights: a 3 x 3
stem, 16 inverted residual blocks without squeeze-and-excitation, a 1 x 1 head of 1,280 channels,
the mean over the picture. Every batch normalisation is folded, in float64, into the convolution
before it. The input is uint8 pixels, (n, 224, 224, 3), RGB: the central square of 0.875 of the
shorter side, resized (bicubic); the graph itself maps them to ``(x - 127) / 128``. The output is
(n, 1280) float32. `oasis.features.pictures` describes how pictures are decoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from oasis.arrays import Single
from oasis.errors import InputError, MissingExtraError
from oasis.features.pictures import Picture, PictureEmbedder
from oasis.features.weights import Tensor, efficientnet_weights

SIDE = 224
N_FEATURES = 1280
VERSION = 1
"""Increased whenever the features of a picture change; part of the embedder's name."""

_STEM_CHANNELS = 32
# (repeats, stride of the first, output channels, expansion)
_STAGES = (
    (1, 1, 16, 1),
    (2, 2, 24, 6),
    (2, 2, 40, 6),
    (3, 2, 80, 6),
    (3, 1, 112, 6),
    (4, 2, 192, 6),
    (1, 1, 320, 6),
)
_BN_EPSILON = 1e-3
_GRAPH_NAME = f"efficientnet-lite0-{VERSION}"
_OPSET = 13
_IR_VERSION = 8  # of opset 13, so that older versions of onnxruntime can load it


class EfficientNetLite0(PictureEmbedder):
    """Embeds pictures, given as paths, bytes of a file, PIL images or arrays.

    The net is assembled when it is first needed, in half a second. Cost on one core: about 12 ms
    per picture, and 3 to 5 ms to decode and resize a photograph of 500 to 640 pixels.

    Parameters
    ----------
    n_threads : int
        Threads for decoding, and threads of the net; 0 for one per core.

    Examples
    --------
    >>> embedder = EfficientNetLite0()
    >>> embedder.name, embedder.n_features
    ('efficientnet-lite0@1', 1280)
    >>> X, failures = embedder.embed([b"no picture"])
    >>> X.shape, failures
    ((1, 1280), {0: 'the picture cannot be read: it is of no known format'})
    """

    name = f"efficientnet-lite0@{VERSION}"
    n_features = N_FEATURES
    takes = "picture"

    def __init__(self, n_threads: int = 0) -> None:
        if isinstance(n_threads, bool) or not isinstance(n_threads, int) or n_threads < 0:
            raise InputError(f"n_threads must be an int of at least 0, got {n_threads!r}")
        self.n_threads = n_threads
        self._session: Any = None

    def prepare(self, picture: Picture) -> npt.NDArray[np.uint8]:
        """Return the net's input for a decoded picture: (224, 224, 3) uint8."""
        return picture.square(SIDE)

    def embed_prepared(self, prepared: Sequence[Any]) -> tuple[Single, dict[int, str]]:
        """Return the features of prepared pictures, in one run of the net."""
        if not len(prepared):
            return np.zeros((0, N_FEATURES), dtype=np.float32), {}
        if self._session is None:
            self._session = _session(self.n_threads)
        features: Single = self._session.run(None, {"pixels": np.stack(prepared)})[0]
        return features, {}


def _session(n_threads: int) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError("onnxruntime", extra="images", what="reading images") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = n_threads
    # the net's threads wait for each other at every layer; spinning would take the core from the
    # threads that decode the next batch
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    graph = build_graph(efficientnet_weights())
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


@dataclass(frozen=True)
class Layer:
    """One convolution with its normalisation folded in.

    ``weight`` is (out, in / groups, k, k) float32 and ``bias`` (out,) float32. If the input of the
    residual block is added to the output, ``add`` is the number of layers back to it; else None.
    """

    weight: npt.NDArray[np.float32]
    bias: npt.NDArray[np.float32]
    stride: int
    groups: int
    relu6: bool
    add: int | None = None

    @property
    def padding(self) -> tuple[int, int]:
        """Rows (and columns) of zeros before and after: SAME, the smaller half before."""
        total = self.weight.shape[2] - self.stride
        return total // 2, total - total // 2


def layers(weights: Mapping[str, Tensor]) -> Iterator[Layer]:
    """Yield the 49 convolutions of the net in order, from stem to head."""
    yield _layer(weights, "_conv_stem", "_bn0", stride=2)
    channels, block = _STEM_CHANNELS, 0
    for repeats, first_stride, out, expansion in _STAGES:
        for repeat in range(repeats):
            at, stride = f"_blocks.{block}.", 1 if repeat else first_stride
            if expansion > 1:
                yield _layer(weights, f"{at}_expand_conv", f"{at}_bn0")
            yield _layer(
                weights,
                f"{at}_depthwise_conv",
                f"{at}_bn1",
                stride=stride,
                groups=expansion * channels,
            )
            added = stride == 1 and out == channels
            back = (3 if expansion > 1 else 2) if added else None
            yield _layer(weights, f"{at}_project_conv", f"{at}_bn2", relu6=False, add=back)
            channels, block = out, block + 1
    yield _layer(weights, "_conv_head", "_bn1")


def build_graph(weights: Mapping[str, Tensor]) -> bytes:
    """Return the net as a serialized ONNX model; needs ``onnx`` (extra ``images``)."""
    try:
        from onnx import TensorProto, checker, helper, numpy_helper
    except ImportError as error:
        raise MissingExtraError("onnx", extra="images", what="reading images") from error

    nodes, constants = [], []

    def constant(name: str, values: npt.NDArray[np.float32]) -> str:
        constants.append(numpy_helper.from_array(values, name))
        return name

    def node(kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    zero = constant("zero", np.array(0, np.float32))
    six = constant("six", np.array(6, np.float32))
    mean = constant("mean", np.array(127, np.float32))
    scale = constant("scale", np.array(1 / 128, np.float32))
    x = node("Transpose", ["pixels"], "planes", perm=[0, 3, 1, 2])
    x = node("Cast", [x], "levels", to=TensorProto.FLOAT)
    x = node("Mul", [node("Sub", [x, mean], "centred"), scale], "scaled")
    outputs = [x]  # of every layer, the picture itself first
    for number, layer in enumerate(layers(weights)):
        before, after = layer.padding
        weight = constant(f"weight{number}", layer.weight)
        bias = constant(f"bias{number}", layer.bias)
        x = node(
            "Conv",
            [x, weight, bias],
            f"conv{number}",
            kernel_shape=list(layer.weight.shape[2:]),
            strides=[layer.stride] * 2,
            pads=[before, before, after, after],
            group=layer.groups,
        )
        if layer.relu6:
            x = node("Clip", [x, zero, six], f"relu{number}")
        if layer.add is not None:
            x = node("Add", [x, outputs[-layer.add]], f"sum{number}")
        outputs.append(x)
    node("Flatten", [node("GlobalAveragePool", [x], "pooled")], "features")

    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        _GRAPH_NAME,
        [info("pixels", TensorProto.UINT8, ["n", SIDE, SIDE, 3])],
        [info("features", TensorProto.FLOAT, ["n", N_FEATURES])],
        constants,
    )
    model = helper.make_model(
        graph,
        producer_name="oasis",
        ir_version=_IR_VERSION,
        opset_imports=[helper.make_opsetid("", _OPSET)],
    )
    checker.check_model(model)
    return bytes(model.SerializeToString())


def _layer(
    weights: Mapping[str, Tensor],
    convolution: str,
    normalisation: str,
    *,
    stride: int = 1,
    groups: int = 1,
    relu6: bool = True,
    add: int | None = None,
) -> Layer:
    gain, shift, mean, variance = (
        weights[f"{normalisation}.{name}"].astype(np.float64)
        for name in ("weight", "bias", "running_mean", "running_var")
    )
    factor = gain / np.sqrt(variance + _BN_EPSILON)  # (out,)
    kernel = weights[f"{convolution}.weight"] * factor[:, None, None, None]
    bias = shift - mean * factor
    return Layer(kernel.astype(np.float32), bias.astype(np.float32), stride, groups, relu6, add)

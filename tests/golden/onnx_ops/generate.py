#!/usr/bin/env python3
"""Makes *.models: tiny models, one for each operator, opset and variant, with inputs and expected outputs.

A file holds the cases of one operator as ONNX ModelProtos, each preceded by its length (a protobuf varint). The graph's
name is the case's; seeded inputs and ONNX Runtime's outputs are initialisers named "test/input/NAME" and
"test/output/NAME", which no node reads. A case is made for every opset from 9 to 21 at which the operator's definition
changed, and for 9 itself, where the variant exists there.

    python3 -m venv venv && venv/bin/pip install numpy onnx==1.23.2 onnxruntime==1.32.0
    venv/bin/python tests/golden/onnx_ops/generate.py tests/golden/onnx_ops
"""

import pathlib
import sys
import zlib

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

OPSETS = range(9, 22)
FILES = {}


def opsets(op, since, until):
    """The opsets in [since, until] that stand for all definitions of an operator there."""
    changes = {s.since_version for s in onnx.defs.get_all_schemas_with_history() if s.name == op and s.domain == ""}
    return sorted({max(since, v) for v in changes if v <= until and max(since, v) in OPSETS})


class Case:
    """Nodes, inputs and constants of one model under construction."""

    def __init__(self, opset, seed):
        self.opset = opset
        self.random = np.random.default_rng(seed)
        self.nodes, self.inputs, self.constants = [], {}, {}

    def input(self, *shape, name="x", low=-2.0, high=2.0, dtype=np.float32):
        self.inputs[name] = self.random.uniform(low, high, shape).astype(dtype)
        return name

    def const(self, value, dtype=np.float32):
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value, dtype)
        return name

    def weights(self, *shape, low=-1.0, high=1.0):
        return self.const(self.random.uniform(low, high, shape))

    def ints(self, *values):
        return self.const(values, np.int64)

    def node(self, op, inputs, outputs=("y",), **attributes):
        self.nodes.append(helper.make_node(op, list(inputs), list(outputs), **attributes))
        return outputs[0]


def add(op, name, build, since=9, until=21, outputs=("y",)):
    """Adds the case `name` of `op`; `build(case)` fills it in and ends in the outputs."""
    versions = opsets(op, since, until)
    assert versions, (op, name)
    for opset in versions:
        case = Case(opset, zlib.crc32(f"{op} {name}".encode()))
        build(case)
        label = f"{op}.{name}.opset{opset}"
        values = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
                  for n, v in case.inputs.items()]
        graph = helper.make_graph(case.nodes, label, values,
                                  [helper.make_empty_tensor_value_info(n) for n in outputs],
                                  [numpy_helper.from_array(v, n) for n, v in case.constants.items()])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
        options = ort.SessionOptions()
        options.log_severity_level = 3
        # The plain kernels are the reference, not what the optimiser makes of a graph.
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        try:
            session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
            results = session.run(None, case.inputs)
        except Exception as error:
            raise SystemExit(f"{label}: {error}")
        del model.graph.output[:]
        for n, v in zip(outputs, results):
            model.graph.output.append(helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape))
            model.graph.initializer.append(numpy_helper.from_array(v, f"test/output/{n}"))
        for n, v in case.inputs.items():
            model.graph.initializer.append(numpy_helper.from_array(v, f"test/input/{n}"))
        model.producer_name = ""
        FILES.setdefault(op, []).append(model.SerializeToString(deterministic=True))


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def unary_cases():
    def one(op, name="plain", since=9, low=-3.0, high=3.0, **attributes):
        add(op, name, lambda c: c.node(op, [c.input(2, 3, 4, 5, low=low, high=high)], **attributes), since)

    for op in ["Relu", "Sigmoid", "Tanh", "Softplus", "Erf", "Exp", "Abs", "Neg", "Floor", "Ceil"]:
        one(op)
    one("Round", since=11)
    one("HardSwish", since=14, low=-6, high=6)
    one("Mish", since=18)
    one("Log", low=0.1)
    one("Sqrt", low=0.1)
    one("Reciprocal", low=0.2)
    one("LeakyRelu")
    one("LeakyRelu", "alpha", alpha=0.3)
    one("Elu")
    one("Elu", "alpha", alpha=0.7)
    one("HardSigmoid")
    one("HardSigmoid", "slope", alpha=0.3, beta=0.4)
    one("Gelu", since=20)
    one("Gelu", "tanh", since=20, approximate="tanh")
    one("Round", "halves", since=11)
    add("Round", "ties", lambda c: c.node("Round", [c.node("Mul", [c.node("Floor", [c.input(2, 3, 4, 5, low=-9, high=9)], ["f"]), c.const(0.5)], ["h"])]), since=11)
    one("Identity")
    one("Dropout")
    add("Dropout", "ratio", lambda c: c.node("Dropout", [c.input(2, 3), c.const(0.4)]), since=12)
    add("Dropout", "inference", lambda c: c.node("Dropout", [c.input(2, 3), c.const(0.4), c.const(False, np.bool_)]), since=12)

    def clip(low, high):
        def build(c):
            x = c.input(2, 3, 4, 5, low=-9, high=9)
            if c.opset < 11:
                bounds = {k: v for k, v in [("min", low), ("max", high)] if v is not None}
                return c.node("Clip", [x], **bounds)
            bounds = ["" if v is None else c.const(v) for v in (low, high)]
            while bounds and not bounds[-1]:
                bounds.pop()
            return c.node("Clip", [x, *bounds])
        return build

    add("Clip", "relu6", clip(0.0, 6.0))
    add("Clip", "low", clip(-1.5, None))
    add("Clip", "high", clip(None, 2.5))
    add("Clip", "none", clip(None, None))


def binary_cases():
    for op in ["Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "PRelu"]:
        positive = dict(low=0.3, high=2.0) if op in ("Div", "Pow") else {}

        def two(c, a, b, constant, op=op, positive=positive):
            x = c.input(*a, **({"low": 0.3} if op == "Pow" else {}))
            y = c.weights(*b, **positive) if constant else c.input(*b, name="z", **positive)
            c.node(op, [x, y])

        add(op, "same", lambda c: two(c, (2, 3, 4, 5), (2, 3, 4, 5), False))
        add(op, "channel", lambda c: two(c, (2, 3, 4, 5), (3, 1, 1), True))
        add(op, "row", lambda c: two(c, (2, 3, 4, 5), (5,), True))
        add(op, "single", lambda c: two(c, (2, 3, 4, 5), (1,), True))
        if op != "PRelu":
            add(op, "scalar", lambda c: two(c, (2, 3, 4, 5), (), True))
            add(op, "both", lambda c: two(c, (2, 3, 1, 5), (2, 1, 4, 5), False))
            add(op, "grow", lambda c: two(c, (3, 5), (1, 2, 3, 5), True))
            add(op, "first", lambda c, op=op, positive=positive: c.node(op, [c.weights(2, 3, 4, low=0.3, high=2.0), c.input(2, 3, 4, **positive)]))
    for op in ["Min", "Max", "Sum"]:
        add(op, "one", lambda c: c.node(op, [c.input(2, 3)]))
        add(op, "three", lambda c: c.node(op, [c.input(2, 3), c.weights(2, 3), c.input(2, 3, name="z")]))
    add("Pow", "integer_exponent", lambda c: c.node("Pow", [c.input(2, 3), c.ints(2)]), since=12)


def conv_cases():
    def conv(x=(2, 4, 9, 8), k=6, kernel=(3, 3), group=1, bias=False, shape=False, **attributes):
        def build(c):
            names = [c.input(*x), c.weights(k, x[1] // group, *kernel)] + ([c.weights(k)] if bias else [])
            extra = {"kernel_shape": kernel} if shape else {}
            c.node("Conv", names, **({"group": group} if group > 1 else {}), **extra, **attributes)
        return build

    add("Conv", "plain", conv())
    add("Conv", "bias", conv(bias=True, shape=True))
    add("Conv", "pointwise", conv(kernel=(1, 1), bias=True))
    add("Conv", "pads", conv(pads=[1, 1, 1, 1], strides=[2, 2]))
    add("Conv", "asymmetric", conv(pads=[0, 1, 2, 1], strides=[2, 1], kernel=(3, 2)))
    add("Conv", "dilated", conv(pads=[2, 2, 2, 2], dilations=[2, 3], kernel=(3, 2)))
    add("Conv", "group", conv(group=2, bias=True))
    add("Conv", "depthwise", conv(group=4, k=4, pads=[1, 1, 1, 1], bias=True))
    add("Conv", "multiplier", conv(group=4, k=8, pads=[1, 1, 1, 1], strides=[2, 2]))
    for auto in ["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"]:
        add("Conv", f"auto_{auto.lower()}", conv(auto_pad=auto, strides=[2, 3], kernel=(4, 3)))
    add("Conv", "auto_unit", conv(auto_pad="SAME_UPPER", kernel=(2, 4)))

    def transpose(x=(2, 4, 5, 6), k=6, kernel=(3, 3), group=1, bias=False, **attributes):
        def build(c):
            names = [c.input(*x), c.weights(x[1], k // group, *kernel)] + ([c.weights(k)] if bias else [])
            c.node("ConvTranspose", names, **({"group": group} if group > 1 else {}), **attributes)
        return build

    add("ConvTranspose", "plain", transpose())
    add("ConvTranspose", "double", transpose(kernel=(2, 2), strides=[2, 2], bias=True))
    add("ConvTranspose", "pads", transpose(pads=[1, 0, 1, 2], strides=[2, 3]))
    add("ConvTranspose", "output_padding", transpose(pads=[1, 1, 1, 1], strides=[2, 2], output_padding=[1, 1]))
    add("ConvTranspose", "group", transpose(group=2, strides=[2, 2], bias=True))
    add("ConvTranspose", "depthwise", transpose(group=4, k=4, strides=[2, 2]))
    add("ConvTranspose", "dilated", transpose(dilations=[2, 3], kernel=(2, 2)))
    add("ConvTranspose", "output_shape", transpose(strides=[2, 2], output_shape=[10, 12]))
    add("ConvTranspose", "output_shape_upper", transpose(strides=[2, 2], output_shape=[10, 12], auto_pad="SAME_UPPER"))
    for auto in ["SAME_UPPER", "SAME_LOWER", "VALID"]:
        add("ConvTranspose", f"auto_{auto.lower()}", transpose(auto_pad=auto, strides=[2, 3], kernel=(3, 4)))


def matrix_cases():
    def gemm(a=(2, 5), b=(5, 4), c_shape=None, constant=True, c_constant=True, **attributes):
        def build(c):
            names = [c.input(*a), c.weights(*b) if constant else c.input(*b, name="w")]
            if c_shape is not None:
                names.append(c.weights(*c_shape) if c_constant else c.input(*c_shape, name="z"))
            elif c.opset < 11:
                names.append(c.const(0.0))
            c.node("Gemm", names, **attributes)
        return build

    add("Gemm", "plain", gemm(c_shape=(4,)))
    add("Gemm", "no_c", gemm())
    add("Gemm", "trans_b", gemm(b=(4, 5), c_shape=(4,), transB=1))
    add("Gemm", "trans_a", gemm(a=(5, 2), c_shape=(1, 4), transA=1))
    add("Gemm", "scaled", gemm(c_shape=(4,), alpha=0.5, beta=2.0))
    add("Gemm", "c_scalar", gemm(c_shape=(), beta=0.5))
    add("Gemm", "c_column", gemm(c_shape=(2, 1), beta=0.5))
    add("Gemm", "c_full", gemm(c_shape=(2, 4), alpha=2.0))
    add("Gemm", "c_input", gemm(c_shape=(2, 4), c_constant=False, beta=0.5))
    add("Gemm", "b_input", gemm(constant=False, c_shape=(4,), alpha=0.5))
    add("Gemm", "b_input_trans", gemm(b=(4, 5), constant=False, c_shape=(4,), transB=1, beta=3.0))

    def matmul(a, b, constant):
        return lambda c: c.node("MatMul", [c.input(*a), c.weights(*b) if constant else c.input(*b, name="z")])

    for constant in [True, False]:
        kind = "weights" if constant else "inputs"
        for a, b in [((2, 5), (5, 4)), ((2, 3, 5), (5, 4)), ((2, 3, 5), (2, 5, 4)), ((2, 2, 3, 5), (1, 1, 5, 4)),
                     ((2, 2, 3, 5), (2, 2, 5, 4)), ((2, 5), (5,)), ((5,), (5, 4)), ((1, 3, 5), (4, 5, 2)), ((2, 3, 5), (5,))]:
            name = "x".join(["_".join(map(str, s)) for s in (a, b)])
            add("MatMul", f"{kind}_{name}", matmul(a, b, constant))
    add("MatMul", "weights_first", lambda c: c.node("MatMul", [c.weights(3, 5), c.input(2, 5, 4)]))


def pool_cases():
    def pool(op, x=(2, 3, 9, 8), kernel=(3, 3), **attributes):
        return lambda c: c.node(op, [c.input(*x)], kernel_shape=kernel, **attributes)

    for op in ["MaxPool", "AveragePool"]:
        add(op, "plain", pool(op))
        add(op, "stride", pool(op, strides=[2, 2]))
        add(op, "pads", pool(op, strides=[2, 1], pads=[1, 0, 2, 1]))
        add(op, "wide", pool(op, kernel=(2, 5), pads=[0, 2, 1, 2]))
        for auto in ["SAME_UPPER", "SAME_LOWER", "VALID"]:
            add(op, f"auto_{auto.lower()}", pool(op, auto_pad=auto, strides=[2, 3]))
        add(op, "ceil", pool(op, strides=[2, 2], ceil_mode=1), since=10)
        add(op, "ceil_pads", pool(op, strides=[3, 3], pads=[1, 1, 1, 1], ceil_mode=1), since=10)
        # A window that would start behind the picture and its leading padding is dropped.
        add(op, "ceil_behind", pool(op, x=(1, 2, 5, 5), kernel=(1, 1), strides=[3, 3], ceil_mode=1), since=10)
    add("MaxPool", "dilated", pool("MaxPool", dilations=[2, 3], kernel=(3, 2), pads=[1, 1, 1, 1]), since=10)
    add("MaxPool", "storage_order", pool("MaxPool", storage_order=1))
    add("AveragePool", "dilated", pool("AveragePool", dilations=[2, 3], kernel=(3, 2), pads=[1, 1, 1, 1]), since=19)
    add("AveragePool", "include_pad", pool("AveragePool", count_include_pad=1, pads=[1, 1, 1, 1], strides=[2, 2]))
    add("AveragePool", "include_pad_ceil", pool("AveragePool", count_include_pad=1, pads=[1, 1, 1, 1], strides=[3, 3], ceil_mode=1), since=19)
    for op in ["GlobalAveragePool", "GlobalMaxPool"]:
        add(op, "plain", lambda c: c.node(op, [c.input(2, 3, 5, 7)]))


def reduce_cases():
    for op, since in [("ReduceMean", 18), ("ReduceSum", 13), ("ReduceMax", 18), ("ReduceMin", 18)]:
        def reduce(c, axes, op=op, since=since, x=(2, 3, 4, 5), **attributes):
            names = [c.input(*x)]
            if axes is not None and c.opset < since:
                attributes["axes"] = axes
            elif axes is not None:
                names.append(c.ints(*axes))
            c.node(op, names, **attributes)

        add(op, "spatial", lambda c: reduce(c, [2, 3]))
        add(op, "drop", lambda c: reduce(c, [2, 3], keepdims=0))
        add(op, "last", lambda c: reduce(c, [-1], keepdims=1))
        add(op, "channel", lambda c: reduce(c, [1], keepdims=0))
        add(op, "all", lambda c: reduce(c, None, x=(1, 3, 4)))
        add(op, "noop", lambda c: reduce(c, [], noop_with_empty_axes=1), since=since)
    add("ArgMax", "default", lambda c: c.node("ArgMax", [c.input(1, 3, 4)]))
    add("ArgMax", "channel", lambda c: c.node("ArgMax", [c.input(2, 5, 3, 4)], axis=1, keepdims=0))
    add("ArgMax", "last", lambda c: c.node("ArgMax", [c.input(2, 5)], axis=-1))
    for last in [0, 1]:
        add("ArgMax", f"ties{last}", lambda c: c.node("ArgMax", [c.node("Relu", [c.input(2, 7, 3, low=-3, high=-1)], ["r"])], axis=1, select_last_index=last), since=12)


def norm_cases():
    def batch(x, **attributes):
        def build(c):
            n = x[1]
            c.node("BatchNormalization", [c.input(*x), c.weights(n), c.weights(n), c.weights(n), c.weights(n, low=0.2)], **attributes)
        return build

    add("BatchNormalization", "plain", batch((2, 3, 4, 5)))
    add("BatchNormalization", "epsilon", batch((2, 3, 4, 5), epsilon=0.01, momentum=0.5))
    add("BatchNormalization", "flat", batch((2, 6)))
    for op in ["Softmax", "LogSoftmax"]:
        add(op, "default", lambda c: c.node(op, [c.input(2, 3, 4)]))
        for axis in [1, -1, 2]:
            add(op, f"axis{axis}", lambda c: c.node(op, [c.input(2, 3, 4, 5)], axis=axis))
        add(op, "flat", lambda c: c.node(op, [c.input(2, 9)], axis=1))
        add(op, "pixels", lambda c: c.node(op, [c.input(2, 9, 1, 1)], axis=1))

    def layer(x, shape, bias, **attributes):
        return lambda c: c.node("LayerNormalization", [c.input(*x), c.weights(*shape)] + ([c.weights(*shape)] if bias else []), **attributes)

    add("LayerNormalization", "last", layer((2, 3, 8), (8,), True), since=17)
    add("LayerNormalization", "no_bias", layer((2, 3, 8), (8,), False, epsilon=0.01), since=17)
    add("LayerNormalization", "two_axes", layer((2, 3, 4, 5), (4, 5), True, axis=2), since=17)
    add("LayerNormalization", "negative", layer((2, 3, 4, 5), (4, 5), True, axis=-2, stash_type=1), since=17)


def resize_cases():
    def scaled(scales, x=(2, 3, 4, 5), axes=None, **attributes):
        def build(c):
            values = [c.input(*x)]
            if c.opset < 11:
                values.append(c.const(scales))
            else:
                roi = "" if c.opset > 11 else c.const(np.zeros(0))
                values += [roi, c.const(scales)]
            c.node("Resize", values, **({"axes": axes} if axes else {}), **attributes)
        return build

    def sized(sizes, x=(2, 3, 4, 5), **attributes):
        def build(c):
            roi = "" if c.opset > 11 else c.const(np.zeros(0))
            scales = "" if c.opset > 11 else c.const(np.zeros(0))
            c.node("Resize", [c.input(*x), roi, scales, c.ints(*sizes)], **attributes)
        return build

    for mode in ["nearest", "linear"]:
        for name, scales in [("up", [1, 1, 2, 3]), ("down", [1, 1, 0.5, 0.6]), ("odd", [1, 1, 1.7, 2.3])]:
            add("Resize", f"{mode}_{name}", scaled(scales, mode=mode), since=10, until=10)
            x = (2, 3, 7, 8)
            add("Upsample", f"{mode}_{name}", lambda c: c.node("Upsample", [c.input(*x), c.const(scales)], mode=mode), until=9) if name != "down" else None
        for coordinates in ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn", "half_pixel_symmetric"]:
            since = 19 if coordinates == "half_pixel_symmetric" else 11
            until = 12 if coordinates == "tf_half_pixel_for_nn" else 21
            for name, scales in [("up", [1, 1, 2, 3]), ("down", [1, 1, 0.5, 0.55]), ("odd", [1, 1, 1.7, 2.3])]:
                add("Resize", f"{mode}_{coordinates}_{name}", scaled(scales, x=(1, 2, 6, 7), mode=mode, coordinate_transformation_mode=coordinates), since, until)
            add("Resize", f"{mode}_{coordinates}_sizes", sized([1, 2, 9, 5], x=(1, 2, 6, 7), mode=mode, coordinate_transformation_mode=coordinates), since, until)
        add("Resize", f"{mode}_one_pixel", sized([1, 2, 1, 1], x=(1, 2, 6, 7), mode=mode, coordinate_transformation_mode="pytorch_half_pixel"), since=11)
        add("Resize", f"{mode}_axes", scaled([2, 3], axes=[2, 3], mode=mode), since=18)
        add("Resize", f"{mode}_axes_reversed", scaled([2, 3], axes=[-1, 2], mode=mode), since=18)
        for policy in ["not_larger", "not_smaller"]:
            add("Resize", f"{mode}_{policy}", sized([11, 9], x=(1, 2, 6, 7), axes=[2, 3], mode=mode, keep_aspect_ratio_policy=policy), since=18)
    def cropped(starts, ends, size, axes=(0, 1, 2, 3), **attributes):
        def build(c):
            scales = "" if c.opset > 11 else c.const(np.zeros(0))
            values = [c.input(1, 2, 6, 7), c.const(starts + ends), scales, c.ints(*size)]
            extra = {"axes": axes} if len(axes) < 4 else {}
            c.node("Resize", values, coordinate_transformation_mode="tf_crop_and_resize", **extra, **attributes)
        return build

    for mode in ["nearest", "linear"]:
        for name, start, end in [("inside", [0.21, 0.13], [0.83, 0.71]), ("beyond", [-0.37, 0.11], [1.23, 1.61]), ("mirrored", [0.9, 1.3], [0.17, -0.4])]:
            for size in [[9, 5], [1, 4]]:
                case = cropped([0, 0, *start], [1, 1, *end], [1, 2, *size], mode=mode, extrapolation_value=-3.5)
                add("Resize", f"{mode}_crop_{name}_{size[0]}", case, since=11)
        add("Resize", f"{mode}_crop_axes", cropped([0.2, 0.4], [0.7, 1.4], [5, 8], axes=(3, 2), mode=mode), since=18)
    for rounding in ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]:
        for coordinates in ["half_pixel", "asymmetric", "align_corners"]:
            for name, scales in [("up", [1, 1, 2, 2.5]), ("down", [1, 1, 0.5, 0.7])]:
                add("Resize", f"{rounding}_{coordinates}_{name}", scaled(scales, x=(1, 2, 6, 7), mode="nearest", nearest_mode=rounding, coordinate_transformation_mode=coordinates), since=11)


def shape_cases():
    def reshape(x, shape, since=9, **attributes):
        name = "_".join(map(str, shape)).replace("-", "m")
        add("Reshape", name, lambda c: c.node("Reshape", [c.input(*x), c.ints(*shape)], **attributes), since)

    reshape((2, 3, 4), (2, 12))
    reshape((2, 3, 4), (0, -1))
    reshape((2, 3, 4), (0, 0, 2, 2))
    reshape((2, 3, 4), (-1, 4))
    add("Reshape", "allowzero", lambda c: c.node("Reshape", [c.input(2, 3, 4), c.ints(2, -1)], allowzero=1), since=14)
    for axis in [0, 1, 2, 3, -1]:
        x = (1, 3, 4) if axis == 0 else (2, 3, 4)
        if axis >= 0:
            add("Flatten", f"axis{axis}", lambda c: c.node("Flatten", [c.input(*x)], axis=axis))
        else:
            add("Flatten", "negative", lambda c: c.node("Flatten", [c.input(*x)], axis=axis), since=11)
    add("Flatten", "default", lambda c: c.node("Flatten", [c.input(2, 3, 4)]))

    def axes(op, x, values, **attributes):
        def build(c):
            if values is None:
                return c.node(op, [c.input(*x)])
            if c.opset < 13:
                return c.node(op, [c.input(*x)], axes=values)
            return c.node(op, [c.input(*x), c.ints(*values)])
        return build

    add("Squeeze", "spatial", axes("Squeeze", (2, 3, 1, 1), [2, 3]))
    add("Squeeze", "all", axes("Squeeze", (2, 1, 3, 1), None))
    add("Squeeze", "negative", axes("Squeeze", (2, 1, 3, 1), [-1]), since=11)
    add("Unsqueeze", "end", axes("Unsqueeze", (2, 3), [2, 3]))
    add("Unsqueeze", "middle", axes("Unsqueeze", (2, 3), [1]))
    add("Unsqueeze", "negative", axes("Unsqueeze", (2, 3), [-1, 1]), since=11)
    add("Transpose", "nhwc", lambda c: c.node("Transpose", [c.input(2, 3, 4, 5)], perm=[0, 2, 3, 1]))
    add("Transpose", "nchw", lambda c: c.node("Transpose", [c.input(2, 3, 4, 5)], perm=[0, 3, 1, 2]))
    add("Transpose", "default", lambda c: c.node("Transpose", [c.input(1, 3, 1)]))
    add("Transpose", "five", lambda c: c.node("Transpose", [c.input(1, 2, 3, 4, 5)], perm=[0, 2, 1, 4, 3]))
    for axis in [1, 2, 3, -1]:
        shapes = [[2, 3, 4, 5] for _ in range(3)]
        shapes[1][axis] = 2
        since = 11 if axis < 0 else 9
        add("Concat", f"axis{axis}", lambda c: c.node("Concat", [c.input(*s, name=f"x{i}") for i, s in enumerate(shapes)], axis=axis), since)
    add("Concat", "one", lambda c: c.node("Concat", [c.input(2, 3)], axis=1))
    add("Concat", "weights", lambda c: c.node("Concat", [c.input(2, 3), c.weights(2, 2)], axis=1))

    def split(x, axis, sizes, count):
        def build(c):
            names = [c.input(*x)]
            extra = {}
            if sizes and c.opset < 13:
                extra["split"] = sizes
            elif sizes:
                names.append(c.ints(*sizes))
            elif c.opset >= 18:
                extra["num_outputs"] = count
            c.node("Split", names, [f"y{i}" for i in range(count)], axis=axis, **extra)
        return build

    add("Split", "equal", split((2, 6, 4, 4), 1, None, 3), outputs=["y0", "y1", "y2"])
    add("Split", "sizes", split((2, 6, 4, 4), 1, [1, 3, 2], 3), outputs=["y0", "y1", "y2"])
    add("Split", "last", split((2, 3, 4, 6), 3, [2, 4], 2), outputs=["y0", "y1"])
    add("Split", "uneven", split((2, 7, 4, 4), 1, None, 3), since=18, outputs=["y0", "y1", "y2"])
    add("Split", "negative", split((2, 3, 4, 6), -1, [2, 4], 2), since=11, outputs=["y0", "y1"])

    def cut(x, starts, ends, axes=None, steps=None):
        def build(c):
            if c.opset < 10:
                return c.node("Slice", [c.input(*x)], starts=starts, ends=ends, **({"axes": axes} if axes else {}))
            names = [c.input(*x), c.ints(*starts), c.ints(*ends)]
            if axes or steps:
                names.append(c.ints(*axes) if axes else "")
            if steps:
                names.append(c.ints(*steps))
            return c.node("Slice", names)
        return build

    add("Slice", "channel", cut((2, 6, 4, 5), [1], [4], [1]))
    add("Slice", "default_axes", cut((2, 6, 4, 5), [0, 1], [2, 3]))
    add("Slice", "negative", cut((2, 6, 4, 5), [-3, -100], [-1, 100], [1, 3]))
    add("Slice", "open", cut((2, 6, 4, 5), [2], [2**31 - 1], [2]))
    add("Slice", "focus", cut((2, 3, 6, 8), [1, 0], [2**63 - 1, 2**63 - 1], [2, 3], [2, 2]), since=10)
    add("Slice", "backwards", cut((2, 3, 6, 8), [-1, 6], [-2**63, 1], [2, 3], [-1, -2]), since=10)
    add("Slice", "backwards_from_below", cut((2, 3, 6, 8), [-100, 5], [-2**63, 1], [2, 3], [-1, -2]), since=10)
    add("Slice", "huge_step", cut((2, 3, 6, 8), [1], [100], [2], [2**62]), since=10)
    add("Gather", "scalar", lambda c: c.node("Gather", [c.input(2, 3, 4, 5), c.const(1, np.int64)], axis=1))
    add("Gather", "negative", lambda c: c.node("Gather", [c.input(2, 3, 4, 5), c.const(-1, np.int64)], axis=2), since=11)
    add("Gather", "list", lambda c: c.node("Gather", [c.input(2, 7, 4), c.ints(0, 2, 4, 6, 5, 5, 1)], axis=1))
    add("Gather", "matrix", lambda c: c.node("Gather", [c.input(2, 7, 4), c.const([[0, 2], [4, 6]], np.int64)], axis=1))
    add("Gather", "int32", lambda c: c.node("Gather", [c.input(2, 7, 4), c.const([3, 1], np.int32)], axis=-1), since=11)

    def pad(x, pads, value=None, axes=None, mode=None):
        def build(c):
            extra = {"mode": mode} if mode else {}
            if c.opset < 11:
                return c.node("Pad", [c.input(*x)], pads=pads, **extra, **({} if value is None else {"value": value}))
            names = [c.input(*x), c.ints(*pads)]
            if value is not None or axes:
                names.append("" if value is None else c.const(value))
            if axes:
                names.append(c.ints(*axes))
            return c.node("Pad", names, **extra)
        return build

    add("Pad", "zero", pad((2, 3, 4, 5), [0, 0, 1, 2, 0, 0, 3, 0]))
    add("Pad", "value", pad((2, 3, 4, 5), [0, 0, 1, 2, 0, 0, 3, 0], 1.5))
    add("Pad", "channels", pad((2, 3, 4, 5), [0, 1, 0, 0, 0, 2, 0, 0], -1.0))
    add("Pad", "reflect", pad((2, 3, 4, 5), [0, 0, 1, 2, 0, 0, 3, 0], mode="reflect"))
    add("Pad", "edge", pad((2, 3, 4, 5), [0, 0, 1, 2, 0, 0, 3, 0], mode="edge"))
    add("Pad", "cut", pad((2, 3, 4, 5), [0, 0, -1, 2, 0, 0, 3, -2]))
    add("Pad", "nothing", pad((2, 3), [0, 0, 0, 0]))
    add("Pad", "axes", pad((2, 3, 4, 5), [1, 2, 3, 0], 0.5, [2, 3]), since=18)
    add("Pad", "axes_negative", pad((2, 3, 4, 5), [1, 2, 3, 0], None, [-1, 1]), since=18)
    add("DepthToSpace", "default", lambda c: c.node("DepthToSpace", [c.input(2, 8, 3, 4)], blocksize=2))
    for mode in ["DCR", "CRD"]:
        add("DepthToSpace", mode.lower(), lambda c: c.node("DepthToSpace", [c.input(2, 18, 3, 4)], blocksize=3, mode=mode), since=11)
    add("SpaceToDepth", "plain", lambda c: c.node("SpaceToDepth", [c.input(2, 3, 4, 6)], blocksize=2))


def constant_cases():
    """Constants and shape arithmetic; most end in an operator on the input, so that something runs."""
    value = lambda v, t=np.float32: numpy_helper.from_array(np.asarray(v, t))

    def constant(**attribute):
        return lambda c: c.node("Add", [c.input(2, 3), c.node("Constant", [], ["k"], **attribute)])

    add("Constant", "value", constant(value=value([1.0, 2.0, 3.0])))
    add("Constant", "value_float", constant(value_float=2.5), since=12)
    add("Constant", "value_floats", constant(value_floats=[1.0, 2.0, 3.0]), since=12)
    add("Constant", "value_int", lambda c: c.node("Gather", [c.input(2, 3), c.node("Constant", [], ["k"], value_int=1)], axis=1), since=12)
    add("Constant", "value_ints", lambda c: c.node("Reshape", [c.input(2, 6), c.node("Constant", [], ["k"], value_ints=[2, 3, 2])]), since=12)
    add("ConstantOfShape", "default", lambda c: c.node("Add", [c.input(2, 3), c.node("ConstantOfShape", [c.ints(2, 3)], ["k"])]))
    add("ConstantOfShape", "value", lambda c: c.node("Add", [c.input(2, 3), c.node("ConstantOfShape", [c.ints(3)], ["k"], value=value([1.5]))]))

    def view(c):
        """The usual export of x.view(x.size(0), -1)."""
        x = c.input(2, 3, 4)
        c.node("Shape", [x], ["s"])
        c.node("Gather", ["s", c.const(0, np.int64)], ["n"], axis=0)
        c.node("Unsqueeze", ["n", c.ints(0)], ["n1"]) if c.opset >= 13 else c.node("Unsqueeze", ["n"], ["n1"], axes=[0])
        c.node("Concat", ["n1", c.ints(-1)], ["t"], axis=0)
        c.node("Reshape", [x, "t"])

    def upsample(c):
        """Twice the size, computed in floats as exporters do."""
        x = c.input(1, 2, 3, 4)
        c.node("Shape", [x], ["s"])
        c.node("Slice", ["s", c.ints(2), c.ints(4)], ["hw"])
        c.node("Cast", ["hw"], ["f"], to=TensorProto.FLOAT)
        c.node("Mul", ["f", c.const(2.5)], ["g"])
        c.node("Floor", ["g"], ["h"])
        c.node("Cast", ["h"], ["i"], to=TensorProto.INT64)
        c.node("Slice", ["s", c.ints(0), c.ints(2)], ["nc"])
        c.node("Concat", ["nc", "i"], ["size"], axis=0)
        empty = c.const(np.zeros(0))
        c.node("Resize", [x, empty, empty if c.opset < 13 else "", "size"], mode="nearest")

    def expand(c):
        """Expand through Where and Equal, as exporters write -1."""
        c.node("ConstantOfShape", [c.ints(3)], ["ones"], value=value([1], np.int64))
        c.node("Mul", ["ones", c.ints(-1)], ["minus"])
        c.node("Equal", [c.ints(2, -1, 3), "minus"], ["same"])
        c.node("Where", ["same", "ones", c.ints(2, -1, 3)], ["shape"])
        c.node("Expand", [c.weights(1, 4, 1), "shape"], ["e"])
        c.node("Add", [c.input(2, 4, 3), "e"])

    def grid(c):
        """A row of anchors from Range and integer arithmetic."""
        x = c.input(2, 3, 5)
        c.node("Shape", [x], ["s"])
        c.node("Gather", ["s", c.const(2, np.int64)], ["w"])
        c.node("Range", [c.const(0, np.int64), "w", c.const(1, np.int64)], ["r"])
        c.node("Sub", ["r", c.const(2, np.int64)], ["r2"])
        c.node("Div", ["r2", c.const(2, np.int64)], ["r3"])
        c.node("Cast", ["r3"], ["f"], to=TensorProto.FLOAT)
        c.node("Add", [x, "f"])

    add("Shape", "view", view)
    add("Shape", "upsample", upsample, since=11)
    add("Shape", "range", lambda c: c.node("Add", [c.node("Cast", [c.node("Shape", [c.input(2, 3, 4, 5)], ["s"], start=1, end=-1)], ["f"], to=1), c.input(1, 2, name="z")]), since=15)
    add("Where", "expand", expand, since=11)
    add("Expand", "same", lambda c: c.node("Expand", [c.input(2, 3), c.ints(2, 1)]))
    add("Range", "grid", grid, since=11)
    add("Range", "float", lambda c: c.node("Mul", [c.input(2, 4), c.node("Range", [c.const(1.0), c.const(2.9), c.const(0.5)], ["r"])]), since=11)
    add("Equal", "floats", lambda c: c.node("Add", [c.input(2, 2), c.node("Cast", [c.node("Equal", [c.const([1, 2]), c.const([1, 3])], ["e"])], ["f"], to=1)]), since=11)
    for name, to in [("int64", TensorProto.INT64), ("int32", TensorProto.INT32), ("float", TensorProto.FLOAT), ("uint8", TensorProto.UINT8)]:
        low = 0.0 if name == "uint8" else -90.0
        add("Cast", name, lambda c: c.node("Cast", [c.input(2, 3, 4, low=low, high=90.0)], to=to))
    add("Cast", "from_uint8", lambda c: c.node("Cast", [c.input(2, 3, 4, low=0, high=255, dtype=np.uint8)], to=TensorProto.FLOAT))


def quantize_cases():
    for name, dtype, zero in [("uint8", np.uint8, 128), ("int8", np.int8, -3)]:
        add("QuantizeLinear", name, lambda c: c.node("QuantizeLinear", [c.input(2, 3, 4, 5), c.const(0.013), c.const(zero, dtype)]), since=10)
        add("DequantizeLinear", name, lambda c: c.node("DequantizeLinear", [c.node("QuantizeLinear", [c.input(2, 3, 4, 5), c.const(0.013), c.const(zero, dtype)], ["q"]), c.const(0.013), c.const(zero, dtype)]), since=10)
        zeros = np.array([zero, 5, 1], dtype)
        add("QuantizeLinear", f"{name}_axis", lambda c: c.node("QuantizeLinear", [c.input(2, 3, 4, 5), c.const([0.01, 0.02, 0.03]), c.const(zeros, dtype)], axis=1), since=13)
        add("DequantizeLinear", f"{name}_axis", lambda c: c.node("DequantizeLinear", [c.node("QuantizeLinear", [c.input(2, 3, 4, 5), c.const([0.01, 0.02, 0.03]), c.const(zeros, dtype)], ["q"], axis=1), c.const([0.01, 0.02, 0.03]), c.const(zeros, dtype)], axis=1), since=13)
        add("DequantizeLinear", f"{name}_input", lambda c: c.node("DequantizeLinear", [c.input(2, 3, low=0, high=100, dtype=dtype), c.const(0.5)]), since=10)

    def weights(c):
        """Weights stored as integers, a scale for each output channel."""
        w = c.const(c.random.integers(-127, 127, (4, 3, 3, 3)), np.int8)
        c.node("DequantizeLinear", [w, c.const([0.01, 0.02, 0.03, 0.04]), c.const([0, 0, 0, 0], np.int8)], ["w"], axis=0)
        c.node("DequantizeLinear", [c.const([100, -50, 7, 3], np.int32), c.const(0.01)], ["b"])
        c.node("Conv", [c.input(1, 3, 6, 6), "w", "b"], pads=[1, 1, 1, 1])

    add("DequantizeLinear", "weights", weights, since=13)
    add("QuantizeLinear", "no_zero", lambda c: c.node("QuantizeLinear", [c.input(2, 3, low=0.0), c.const(0.01)]), since=10)
    add("QuantizeLinear", "output_dtype", lambda c: c.node("QuantizeLinear", [c.input(2, 3), c.const(0.02)], output_dtype=TensorProto.INT8), since=21)


def main():
    for group in [unary_cases, binary_cases, conv_cases, matrix_cases, pool_cases, reduce_cases, norm_cases, resize_cases,
                  shape_cases, constant_cases, quantize_cases]:
        group()
    folder = pathlib.Path(sys.argv[1])
    for op, models in FILES.items():
        (folder / f"{op.lower()}.models").write_bytes(b"".join(varint(len(m)) + m for m in models))
    total = sum(path.stat().st_size for path in folder.glob("*.models"))
    print(f"{sum(map(len, FILES.values()))} cases, {len(FILES)} operators, {total} bytes")


main()

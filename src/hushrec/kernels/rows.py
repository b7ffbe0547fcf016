# mypy: allow-untyped-defs, allow-untyped-calls
"""Rows of latent factors as values inside compiled kernels: `gradient += error * load(item_factors, i, width)`.

A `Row` lives in SIMD registers. Its width is a type, given by a tuple of that length (`width_of`), so each
number of factors is compiled once and its loops are unrolled. Every operation is plain IEEE arithmetic in one
fixed order (no fused multiply-add, no reordering), so a number does not depend on the machine that computes
it, nor on the cohort or thread it is computed in.
"""

import operator
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.datamodel import models
from numba.extending import overload, register_model

from hushrec.errors import HushrecError, option
from hushrec.kernels.untyped import intrinsic

Width = tuple[np.int8, ...]

_FLOAT, _DOUBLE = ir.FloatType(), ir.DoubleType()
_INT32, _INT64 = ir.IntType(32), ir.IntType(64)

# Adding 1.5 * 2^(52-40) to a double puts its last bit at 2^-40: the sum's bits, less those of the constant,
# are the number in fixed point, rounded to even. Valid for |x| < FIXED_LIMIT.
FRACTION_BITS = 40
_ALIGN = 1.5 * 2.0 ** (52 - FRACTION_BITS)
_ALIGN_BITS = int(np.float64(_ALIGN).view(np.int64))
MOST_FACTORS = 1000  # Numba compiles no longer tuple
FIXED_LIMIT = 2.0 ** (51 - FRACTION_BITS)


@cache
def width_of(num_factors: int) -> Width:
    """The token that tells a kernel how wide its rows are."""
    if num_factors > MOST_FACTORS:
        raise HushrecError(
            f"vectors of {num_factors} numbers are too long to be compiled; "
            f"{option('num_factors')} must be at most {MOST_FACTORS}"
        )
    return (np.int8(0),) * num_factors


class RowType(types.Type):
    """Numba's type of a row of `num_factors` float32."""

    def __init__(self, num_factors: int) -> None:
        self.num_factors = num_factors
        super().__init__(f"Row({num_factors})")


def _lanes(num_factors: int) -> list[int]:
    """Widths of the registers that hold a row, widest first: 20 factors are 8 + 8 + 4."""
    lanes = []
    for width in (8, 4, 2, 1):
        count, num_factors = divmod(num_factors, width)
        lanes += [width] * count
    return lanes


def _struct(num_factors: int) -> ir.LiteralStructType:
    return ir.LiteralStructType([ir.VectorType(_FLOAT, width) for width in _lanes(num_factors)])


@register_model(RowType)
class _RowModel(models.PrimitiveModel):
    def __init__(self, manager: Any, row: RowType) -> None:
        super().__init__(manager, row, _struct(row.num_factors))


def _parts(builder: Any, row: Any) -> list[Any]:
    return [builder.extract_value(row, place) for place in range(len(row.type.elements))]


def _pack(builder: Any, parts: list[Any]) -> Any:
    row = ir.Constant(ir.LiteralStructType([part.type for part in parts]), ir.Undefined)
    for place, part in enumerate(parts):
        row = builder.insert_value(row, part, place)
    return row


def _pointers(context: Any, builder: Any, array_type: Any, array: Any, index: Any, lanes: list[int]) -> list[Any]:
    """Pointers to the registers' worths of one row of a C-ordered array with as many columns as the row."""
    struct = context.make_array(array_type)(context, builder, array)
    start = builder.gep(struct.data, [builder.mul(index, _INT64(sum(lanes)))])
    element = context.get_data_type(array_type.dtype)
    pointers, offset = [], 0
    for width in lanes:
        place = builder.gep(start, [_INT64(offset)])
        pointers.append(builder.bitcast(place, ir.VectorType(element, width).as_pointer()))
        offset += width
    return pointers


@intrinsic
def load(_typing: Any, array: Any, index: Any, width: Any) -> Any:
    """`array[index]` as a row."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        lanes = _lanes(len(width))
        pointers = _pointers(context, builder, signature.args[0], args[0], args[1], lanes)
        return _pack(builder, [builder.load(pointer, align=4) for pointer in pointers])

    return RowType(len(width))(array, types.int64, width), generate


@intrinsic
def store(_typing: Any, array: Any, index: Any, row: Any) -> Any:
    """`array[index] = row`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointers = _pointers(context, builder, signature.args[0], args[0], args[1], _lanes(row.num_factors))
        for pointer, part in zip(pointers, _parts(builder, args[2]), strict=True):
            builder.store(part, pointer, align=4)
        return context.get_dummy_value()

    return types.void(array, types.int64, row), generate


@intrinsic
def zeros(_typing: Any, width: Any) -> Any:
    """The row of zeros."""

    def generate(_context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        parts = [ir.Constant(ir.VectorType(_FLOAT, lane), [0.0] * lane) for lane in _lanes(len(width))]
        return _pack(builder, parts)

    return RowType(len(width))(width), generate


def _elementwise(instruction: str) -> Any:
    @intrinsic
    def operation(_typing: Any, left: Any, right: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            pairs = zip(_parts(builder, args[0]), _parts(builder, args[1]), strict=True)
            return _pack(builder, [getattr(builder, instruction)(one, other) for one, other in pairs])

        return left(left, right), generate

    return operation


_add, _subtract = _elementwise("fadd"), _elementwise("fsub")
multiply = _elementwise("fmul")


def _splat(builder: Any, number: Any, lane: int) -> Any:
    vector = ir.VectorType(number.type, lane)
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), number, _INT32(0))
    zero = ir.Constant(ir.VectorType(_INT32, lane), [0] * lane)
    return builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), zero)


@intrinsic
def _scale(_typing: Any, number: Any, row: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        parts = _parts(builder, args[1])
        return _pack(builder, [builder.fmul(_splat(builder, args[0], part.type.count), part) for part in parts])

    return row(types.float32, row), generate


@overload(operator.add)
def _overload_add(left, right):
    if isinstance(left, RowType) and isinstance(right, RowType):
        return lambda left, right: _add(left, right)
    return None


@overload(operator.sub)
def _overload_subtract(left, right):
    if isinstance(left, RowType) and isinstance(right, RowType):
        return lambda left, right: _subtract(left, right)
    return None


@overload(operator.mul)
def _overload_scale(left, right):
    if isinstance(left, types.Float) and isinstance(right, RowType):
        return lambda left, right: _scale(np.float32(left), right)
    return None


@intrinsic
def dot(_typing: Any, left: Any, right: Any) -> Any:
    """Inner product: equal lanes are added up first, then halves on halves."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        pairs = zip(_parts(builder, args[0]), _parts(builder, args[1]), strict=True)
        products = [builder.fmul(one, other) for one, other in pairs]
        total = products.pop(0)
        while True:
            lane = total.type.count
            while products and products[0].type.count == lane:
                total = builder.fadd(total, products.pop(0))
            if lane == 1:
                return builder.extract_element(total, _INT32(0))
            half = lane // 2
            low, high = (
                ir.Constant(ir.VectorType(_INT32, half), list(range(start, start + half))) for start in (0, half)
            )
            total = builder.fadd(
                builder.shuffle_vector(total, total, low), builder.shuffle_vector(total, total, high)
            )

    return types.float32(left, right), generate


@intrinsic
def magnitude(_typing: Any, left: Any, right: Any) -> Any:
    """The larger of |left| and |right|, number by number; what is not a number counts as largest."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        largest = []
        for one, other in zip(_parts(builder, args[0]), _parts(builder, args[1]), strict=True):
            # Without their sign, floats are ordered like their bits.
            bits = ir.VectorType(_INT32, one.type.count)
            mask = ir.Constant(bits, [0x7FFFFFFF] * one.type.count)
            one, other = (builder.and_(builder.bitcast(part, bits), mask) for part in (one, other))
            chosen = builder.select(builder.icmp_signed(">", one, other), one, other)
            largest.append(builder.bitcast(chosen, ir.VectorType(_FLOAT, bits.count)))
        return _pack(builder, largest)

    return left(left, right), generate


@intrinsic
def add_fixed(_typing: Any, totals: Any, index: Any, row: Any) -> Any:
    """`totals[index] += row` in 64-bit fixed point; exact whatever the order. Needs |row| < FIXED_LIMIT."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        parts = _parts(builder, args[2])
        lanes = [part.type.count for part in parts]
        pointers = _pointers(context, builder, signature.args[0], args[0], args[1], lanes)
        for pointer, part, lane in zip(pointers, parts, lanes, strict=True):
            double = builder.fpext(part, ir.VectorType(_DOUBLE, lane))
            aligned = builder.fadd(double, ir.Constant(double.type, [_ALIGN] * lane))
            bits = builder.bitcast(aligned, ir.VectorType(_INT64, lane))
            fixed = builder.sub(bits, ir.Constant(bits.type, [_ALIGN_BITS] * lane))
            builder.store(builder.add(builder.load(pointer, align=8), fixed), pointer, align=8)
        return context.get_dummy_value()

    return types.void(totals, types.int64, row), generate

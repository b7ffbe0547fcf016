# mypy: allow-untyped-defs, allow-untyped-calls
"""Small matrix products inside compiled kernels, for models that fit into the processor's cache.

Matrices are flat float32 arrays, row after row. Every number is a chain of fused multiply-adds in one fixed order,
so it does not depend on what is computed along with it. Nothing checks that places lie inside arrays: callers do.
"""

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core.cgutils import get_or_insert_function

from hushrec.kernels.rows import RowType, width_of
from hushrec.kernels.untyped import intrinsic

_INT32, _FLOAT = ir.IntType(32), ir.FloatType()
_LANES = 8
_WIDE, _NARROW, _SINGLE = width_of(16), width_of(8), width_of(1)


def _lanes(width: int) -> list[int]:
    return [_LANES] * (width // _LANES) or [width]


def _places(context: Any, builder: Any, array_type: Any, array: Any, place: Any, width: int) -> list[Any]:
    """Pointers to the registers' worths of `width` numbers from `place` on."""
    struct = context.make_array(array_type)(context, builder, array)
    pointers = []
    for offset, lane in enumerate(_lanes(width)):
        start = builder.gep(struct.data, [builder.add(place, ir.Constant(ir.IntType(64), offset * _LANES))])
        pointers.append(builder.bitcast(start, ir.VectorType(_FLOAT, lane).as_pointer()))
    return pointers


def _pack(builder: Any, parts: list[Any]) -> Any:
    row = ir.Constant(ir.LiteralStructType([part.type for part in parts]), ir.Undefined)
    for place, part in enumerate(parts):
        row = builder.insert_value(row, part, place)
    return row


@intrinsic
def load_at(_typing: Any, array: Any, place: Any, width: Any) -> Any:
    """`array[place : place + width]` of a flat array as a row."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointers = _places(context, builder, signature.args[0], args[0], args[1], len(width))
        return _pack(builder, [builder.load(pointer, align=4) for pointer in pointers])

    return RowType(len(width))(array, types.int64, width), generate


@intrinsic
def store_at(_typing: Any, array: Any, place: Any, row: Any) -> Any:
    """`array[place : place + width] = row` of a flat array."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointers = _places(context, builder, signature.args[0], args[0], args[1], row.num_factors)
        for number, pointer in enumerate(pointers):
            builder.store(builder.extract_value(args[2], number), pointer, align=4)
        return context.get_dummy_value()

    return types.void(array, types.int64, row), generate


@intrinsic
def fused(_typing: Any, array: Any, place: Any, row: Any, total: Any) -> Any:
    """`array[place] * row + total`, rounded once."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        struct = context.make_array(signature.args[0])(context, builder, args[0])
        number = builder.load(builder.gep(struct.data, [args[1]]))
        parts = []
        for register in range(len(_lanes(row.num_factors))):
            part, sum_part = (builder.extract_value(value, register) for value in args[2:])
            vector = ir.Constant(part.type, ir.Undefined)
            first = builder.insert_element(vector, number, _INT32(0))
            spread = ir.Constant(ir.VectorType(_INT32, part.type.count), [0] * part.type.count)
            name = f"llvm.fma.v{part.type.count}f32"
            fma = get_or_insert_function(builder.module, ir.FunctionType(part.type, [part.type] * 3), name)
            parts.append(builder.call(fma, [builder.shuffle_vector(first, vector, spread), part, sum_part]))
        return _pack(builder, parts)

    return row(array, types.int64, row, row), generate


@numba.njit(nogil=True, cache=True)
def _add_columns(width, left, row_step, inner_step, right, out, shape, column):
    num_rows, num_inner, num_columns = shape
    row = 0
    while row + 4 <= num_rows:
        target = row * num_columns + column
        one = load_at(out, target, width)
        two = load_at(out, target + num_columns, width)
        three = load_at(out, target + 2 * num_columns, width)
        four = load_at(out, target + 3 * num_columns, width)
        place, source = row * row_step, column
        for _ in range(num_inner):
            vector = load_at(right, source, width)
            one = fused(left, place, vector, one)
            two = fused(left, place + row_step, vector, two)
            three = fused(left, place + 2 * row_step, vector, three)
            four = fused(left, place + 3 * row_step, vector, four)
            place += inner_step
            source += num_columns
        store_at(out, target, one)
        store_at(out, target + num_columns, two)
        store_at(out, target + 2 * num_columns, three)
        store_at(out, target + 3 * num_columns, four)
        row += 4
    while row < num_rows:
        target = row * num_columns + column
        total = load_at(out, target, width)
        for inner in range(num_inner):
            vector = load_at(right, inner * num_columns + column, width)
            total = fused(left, row * row_step + inner * inner_step, vector, total)
        store_at(out, target, total)
        row += 1


@intrinsic
def _keep_apart(_typing: Any) -> Any:
    """Have the function that says this compiled once, not into each of its callers."""

    def generate(context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return types.void(), generate


@numba.njit(nogil=True, cache=True)
def add_product(left, right, out, num_rows, num_inner, num_columns, is_turned):
    """`out` (rows x columns) += `left` `right`; `left` is rows x inner or, turned, inner x rows."""
    _keep_apart()
    row_step = 1 if is_turned else num_inner
    inner_step = num_rows if is_turned else 1
    shape = (num_rows, num_inner, num_columns)
    column = 0
    while column + 16 <= num_columns:
        _add_columns(_WIDE, left, row_step, inner_step, right, out, shape, column)
        column += 16
    while column + 8 <= num_columns:
        _add_columns(_NARROW, left, row_step, inner_step, right, out, shape, column)
        column += 8
    while column < num_columns:
        _add_columns(_SINGLE, left, row_step, inner_step, right, out, shape, column)
        column += 1


@numba.njit(nogil=True, cache=True)
def transpose(matrix, num_rows, num_columns, out):
    """Write a matrix the other way round."""
    for column in range(num_columns):
        for row in range(num_rows):
            out[column * num_rows + row] = matrix[row * num_columns + column]


@numba.njit(nogil=True, cache=True)
def add_rows(matrix, num_rows, num_columns, out):
    """`out` += the sum of the rows of a matrix."""
    for row in range(num_rows):
        for column in range(num_columns):
            out[column] += matrix[row * num_columns + column]


@numba.njit(nogil=True, cache=True, error_model="numpy")
def sigmoid(logit):
    """1 / (1 + exp(-x))."""
    return np.float32(1.0) / (np.float32(1.0) + np.exp(-logit))

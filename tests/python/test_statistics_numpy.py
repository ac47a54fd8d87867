"""Every statistic against NumPy in float64, on every SIMD target by name."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import tensortap as tt
from tensortap import _core

DTYPES = [
    *("float64", "float32", "float16", "complex64", "complex128", "bool"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
]
# Values that break sums, squares, casts and comparisons.
SPECIAL = [0.0, -0.0, 1.0, -1.0, 5e-324, -1e-310, 1e-40, -1e-45, 6e-8, 2.0**-25, 65504.0, 65520.0]
SPECIAL += [1e30, -1e30, 3.4e38, 1e300, -1.7e308, math.nan, math.inf, -math.inf]


@pytest.fixture(params=_core.simd_targets())
def target(request: pytest.FixtureRequest) -> Iterator[str]:
    _core.force_simd_target(request.param)
    yield request.param
    _core.force_simd_target("")


def magnitudes(x: np.ndarray) -> np.ndarray:
    """What the statistics of complex numbers are of; other numbers as float64 (or exact integers)."""
    if x.dtype.kind == "c":
        return np.abs(x.astype(np.complex128))
    return x.astype(np.float64)


def expected(x: np.ndarray) -> dict[str, float]:
    """The table by NumPy, in long double where float64 would round or overflow on the way."""
    v = magnitudes(x).ravel()
    f = v[np.isfinite(v)].astype(np.longdouble)
    a = np.abs(f)
    floating = x.dtype.kind == "f"
    tiny = np.finfo(x.dtype).tiny if floating else 0.0
    counts = {
        "count": v.size,
        "nan_count": np.isnan(v).sum(),
        "positive_inf_count": np.isposinf(v).sum(),
        "negative_inf_count": np.isneginf(v).sum(),
        "inf_count": np.isinf(v).sum(),
        "finite_count": f.size,
        "zero_count": (f == 0).sum(),
        "overflow_count": (a >= 65520).sum(),
        "underflow_count": ((a > 0) & (a <= 2.0**-25)).sum(),
    }
    if floating:
        counts["subnormal_count"] = ((a > 0) & (a < tiny)).sum()
    elif x.dtype.kind != "c":
        counts["subnormal_count"] = 0
    if f.size == 0:
        return {k: float(n) for k, n in counts.items()}
    values = {
        "min": f.min(),
        "max": f.max(),
        "mean": f.mean(),
        "variance": f.var(),
        "std": f.std(),
        "sum": f.sum(),
        "abs_min": a.min(),
        "abs_max": a.max(),
        "abs_mean": a.mean(),
        "abs_variance": a.var(),
        "abs_std": a.std(),
        "l1": a.sum(),
        "l2": np.sqrt((a * a).sum()),
        "rms": np.sqrt((a * a).mean()),
    }
    with np.errstate(over="ignore"):
        return {k: float(n) for k, n in {**counts, **values}.items()}


def assert_agree(x: np.ndarray) -> None:
    found = tt.statistics(x)
    want = expected(x)
    v = np.abs(magnitudes(x).ravel()).astype(np.longdouble)
    v = v[np.isfinite(v)]
    # Cancelling sums are as exact as their largest terms allow; squares beyond float64 overflow there too.
    scale = float(v.max()) if v.size else 0.0
    total = float(min(v.sum(), np.longdouble(1.7e308))) if v.size else 0.0
    slack = {"mean": 1e-15 * scale, "sum": 1e-15 * total}
    slack["variance"] = slack["abs_variance"] = 1e-13 * scale * scale
    slack["std"] = slack["abs_std"] = 1e-6 * scale
    slack["l2"] = slack["rms"] = 1e-160  # squares below the smallest double
    for name, value in want.items():
        got = found[name]
        if name in ("min", "max", "abs_min", "abs_max") or name.endswith("count"):
            exact = value if x.dtype.kind != "c" or name.endswith("count") else pytest.approx(value)
            assert got == exact, (name, got, value)
        elif scale > 1e150 and ("var" in name or "std" in name or name in ("l2", "rms")):
            continue  # their squares have no float64
        elif math.isinf(value):
            assert math.isinf(got), (name, got, value)
        elif math.isinf(got):
            # Within rounding of overflow: sums are kept as means.
            assert abs(value) > 1.797e308, (name, got, value)
        else:
            close = pytest.approx(value, rel=1e-10, abs=slack.get(name, 0.0))
            assert got == close, (name, got, value)
    if not v.size:
        assert all(math.isnan(found[name]) for name in ("min", "max", "mean", "variance"))


def arrays(dtype: str) -> st.SearchStrategy[np.ndarray]:
    kind = np.dtype(dtype).kind
    shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=40)
    if kind in "fc":
        width = {"float16": 16, "float32": 32, "complex64": 32}.get(dtype, 64)
        limit = float(np.finfo(dtype).max)
        numbers = st.floats(width=width) | st.sampled_from(
            [s for s in SPECIAL if not abs(s) > limit or math.isinf(s)]
        ).map(lambda s: float(np.array(s).astype(f"float{width}")))
        elements = numbers if kind == "f" else st.builds(complex, numbers, numbers)
        return hnp.arrays(dtype, shapes, elements=elements)
    return hnp.arrays(dtype, shapes)


@pytest.mark.parametrize("dtype", DTYPES)
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_any_array(target: str, dtype: str, data: st.DataObject) -> None:
    with np.errstate(all="ignore"):
        assert_agree(data.draw(arrays(dtype)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 2, 15, 16, 17, 63, 64, 65, 1000, 4097, 100_000])
def test_sizes_around_vector_lengths(target: str, dtype: str, size: int) -> None:
    rng = np.random.default_rng(size)
    x = rng.standard_normal(size) * 50
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.standard_normal(size)
    if np.dtype(dtype).kind == "u":
        x = np.abs(x)
    assert_agree(x.astype(dtype))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_one_bad_element_anywhere(target: str, dtype: str, value: float) -> None:
    for at in range(0, 300, 7):
        x = np.linspace(-3, 5, 300).astype(dtype)
        x[at] = value
        assert_agree(x)
        mean = tt.statistics(x).numpy_value("mean")
        np.testing.assert_equal(mean, float(x.astype(np.float64).mean()))


def test_alternating_signs_cancel(target: str) -> None:
    x = np.tile(np.array([1e15, -1e15], np.float64), 5000)
    x[0] += 3.0
    s = tt.statistics(x)
    assert s.sum == pytest.approx(3.0, abs=1e-15 * 1e19)
    assert s.max == 1e15 + 3.0


VIEWS = {
    "every second": lambda a: a[:, ::2],
    "reversed": lambda a: a[::-1, ::-1],
    "transposed": lambda a: a.T,
    "column": lambda a: a[:, 3],
    "broadcast": lambda a: np.broadcast_to(a[:1], (50, a.shape[1])),
    "repeated element": lambda a: np.broadcast_to(a[2, 2], (7, 9)),
    "empty slice": lambda a: a[5:5],
    "inner block": lambda a: a[3:11, 5:30],
    "permuted": lambda a: a.reshape(4, 5, -1).transpose(2, 0, 1)[1:],
    "scalar": lambda a: a[1, 1],
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "complex64", "int8", "uint64"])
def test_strided_views(target: str, dtype: str, view: str) -> None:
    base = (np.random.default_rng(1).standard_normal((20, 70)) * 40).astype(
        "int16" if dtype == "uint64" else dtype
    )
    assert_agree(np.asarray(VIEWS[view](np.abs(base).astype(dtype) if dtype == "uint64" else base)))


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int32"])
def test_histogram_is_numpys_on_the_same_edges(target: str, dtype: str) -> None:
    rng = np.random.default_rng(3)
    x = (rng.standard_normal(20_000) * 10.0 ** rng.integers(-3, 3, 20_000)).astype(dtype)
    x[::50] = 0
    s = tt.statistics(x, histogram=True)
    assert s.histogram is not None
    edges, counts = s.histogram
    assert edges.shape == (65,)
    assert counts.shape == (64,)
    assert np.all(np.diff(edges) > 0)
    assert counts.sum() == s.finite_count - s.zero_count
    wide = x.astype(np.float64)
    positive, _ = np.histogram(wide[wide > 0], edges[32:])
    np.testing.assert_array_equal(counts[32:], positive)
    # Negative buckets are closed on the side of larger magnitude: mirror, count, mirror back.
    negative, _ = np.histogram(-wide[wide < 0], -edges[:33][::-1])
    np.testing.assert_array_equal(counts[:32], negative[::-1])


def test_structured_and_foreign_byte_order() -> None:
    records = np.zeros(10, dtype=[("a", "i1"), ("b", "f4")])
    records["b"] = np.arange(10)
    assert tt.statistics(records["b"]).sum == 45.0
    assert tt.statistics(np.arange(10, dtype=">f8")).sum == 45.0


def test_lists_and_interfaces() -> None:
    class Interface:
        def __init__(self, array: np.ndarray) -> None:
            self.__array_interface__ = array.__array_interface__
            self.array = array

    assert tt.statistics([1, 2, 3]).mean == 2.0
    assert tt.statistics(Interface(np.array([1.0, 5.0]))).max == 5.0


def test_what_has_no_statistics_is_refused() -> None:
    with pytest.raises(TypeError, match="no statistics of dtype str"):
        tt.statistics(np.array(["a"]))
    with pytest.raises(ValueError, match="datetime64"):
        tt.statistics(np.array(["2020-01-01"], dtype="datetime64[s]"))


def test_names_and_aliases() -> None:
    s = tt.statistics(np.array([3.0, -4.0]))
    assert s["abs_l2_norm"] == s.l2 == pytest.approx(5.0)
    assert s["l1_norm"] == 7.0
    assert set(s.keys()) == {row["name"] for row in _core.statistic_table()} == set(s.to_dict())
    with pytest.raises(tt.exceptions.NotFoundError, match=r"kurtosis.*abs_mean"):
        s["kurtosis"]
    assert isinstance(s.count, int)
    assert s.dtype == "float64"
    assert s.shape == (2,)


def test_unknown_target_is_refused() -> None:
    with pytest.raises(ValueError, match=_core.simd_targets()[0]):
        _core.force_simd_target("MMX")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((0, 2, (3,), None), "address"),
        ((4096, 2, (-1,), None), "negative"),
        ((4096, 99, (1,), None), "dtype"),
        ((4096, 2, (2, 2), (1,)), "same length"),
        ((4096, 2, (2**40, 2**40), None), "larger than memory"),
        ((4096, 2, ("x",), None), "integers"),
        ((4096, 2, 3, None), "tuple"),
    ],
)
def test_wrong_descriptions_of_memory_are_refused(args: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _core.compute_statistics(*args)

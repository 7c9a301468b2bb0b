"""Deepwave's histories in an engine: gradients are those of Deepwave alone, bit for bit."""

import gc
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
deepwave = pytest.importorskip("deepwave")

import tierflow  # noqa: E402
from tierflow.deepwave import history  # noqa: E402

# PyTorch's own, of what Deepwave's linearised propagators import; and Deepwave's, of a small model.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated"),
    pytest.mark.filterwarnings("ignore:At least six grid cells"),
    pytest.mark.filterwarnings("ignore:.* is non-zero in the outermost cells"),
]

SHAPE = (24, 20)
STEPS = 63


def _constant(value: float, seed: int) -> Any:
    noise = torch.rand(SHAPE, generator=torch.Generator().manual_seed(seed))
    return (value * (1 + 0.05 * noise)).requires_grad_()


def _wavelet(shots: int = 1, dtype: Any = None) -> Any:
    wavelet = deepwave.wavelets.ricker(25, STEPS, 0.001, 0.02)
    return wavelet.repeat(shots, 1, 1).to(dtype or torch.float32).requires_grad_()


SOURCES = torch.tensor([[[6, 5]], [[12, 14]], [[18, 9]]])
RECEIVERS = torch.tensor([[[4, 4], [5, 15]], [[18, 4], [19, 15]], [[2, 2], [8, 8]]])

# The models of each propagator, in the order of its arguments, and the name of what its sources inject and its receivers record.
MODELS: dict[str, tuple[list[float], str, str]] = {
    "scalar": ([1500], "source_amplitudes", "receiver_locations"),
    "scalar_born": ([1500], "source_amplitudes", "sc_receiver_locations"),
    "acoustic": ([1500, 2200], "source_amplitudes_volume_rate", "receiver_locations_p"),
    "acoustic_born": ([1500, 2200], "source_amplitudes_volume_rate", "sc_receiver_locations_p"),
    "acoustic_vti": ([5e9, 4e9, 5e9, 1 / 2200], "source_amplitudes_pressure_rate", "receiver_locations_p"),
    "elastic": ([2e9, 1e9, 1 / 2200], "source_amplitudes_y", "receiver_locations_y"),
    "elastic_born": ([2e9, 1e9, 1 / 2200], "source_amplitudes_y", "sc_receiver_locations_y"),
    "elastic_vti": ([5e9, 2e9, 5e9, 1e9, 1 / 2200], "source_amplitudes_y", "receiver_locations_y"),
    "viscoacoustic": ([1500, 2200, 40], "source_amplitudes_pressure_rate", "receiver_locations_p"),
}
# The scattering models that a linearised propagator needs besides.
SCATTER = {"scalar_born": {"dv": 20}, "acoustic_born": {"dv": 20}, "elastic_born": {"dmu": 1e7}}


def _gradients(name: str, shots: int = 1, dtype: Any = None, backwards: int = 1, **options: Any) -> list[Any]:
    """Returns the recorded data, and the gradients of all models and of the wavelet."""
    constants, sources, receivers = MODELS[name]
    models = [_constant(value, seed) for seed, value in enumerate(constants)]
    scatter = {key: _constant(value, 9) for key, value in SCATTER.get(name, {}).items()}
    wavelet = _wavelet(shots, dtype)
    if dtype is not None:
        models = [model.detach().to(dtype).requires_grad_() for model in models]
        scatter = {key: value.detach().to(dtype).requires_grad_() for key, value in scatter.items()}
    arguments = {
        sources: wavelet,
        sources.replace("amplitudes", "locations"): SOURCES[:shots],
        receivers: RECEIVERS[:shots],
        "pml_width": 4,
        "pml_freq": 25.0,
        **({"q_freq": 25.0} if name == "viscoacoustic" else {}),
        **options,
    }
    out = getattr(deepwave, name)(*models, grid_spacing=5.0, dt=0.001, **scatter, **arguments)
    recorded = getattr(out, receivers.replace("locations", "amplitudes"))
    loss = recorded.square().sum()
    for left in reversed(range(backwards)):
        loss.backward(retain_graph=left > 0)
    return [recorded.detach(), *(tensor.grad for tensor in (*models, *scatter.values(), wavelet))]


def _assert_equal(ours: list[Any], theirs: list[Any]) -> None:
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert (one is None) == (other is None)
        assert one is None or torch.equal(one, other)
    assert any(one is not None and one.abs().max() > 0 for one in ours[1:])


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Lets PyTorch use one thread, which is faster on small grids."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def store() -> Iterator[Callable[..., Any]]:
    """Returns a store whose histories have chunks of a few steps, with caches that hold a part of them."""
    engines = []

    def make(chunk: Any = "16KiB", after_restore: str = "discard", again: bool = False, beside: bool = False) -> Any:
        engine = tierflow.Engine(device="host", device_cache="2MiB", host_cache="16MiB", after_restore=after_restore)
        engines.append(engine)
        return history(engine, chunk=chunk, again=again, beside=beside)

    yield make
    for engine in engines:
        gc.collect()
        assert engine.versions() == [], "histories leave nothing"
        engine.close()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("interval", [1, 3])
def test_gradients_of_all_propagators(store: Any, name: str, interval: int) -> None:
    theirs = _gradients(name, model_gradient_sampling_interval=interval)
    with store():
        ours = _gradients(name, model_gradient_sampling_interval=interval)
    _assert_equal(ours, theirs)


@pytest.mark.parametrize("options", [{"storage_compression": True}, {"accuracy": 8}, {"max_vel": 9000.0}])
@pytest.mark.parametrize("chunk", [1, "7KiB", "100KiB", "100MiB"])
def test_options_and_chunks_of_all_sizes(store: Any, options: dict[str, Any], chunk: Any) -> None:
    theirs = _gradients("scalar", **options)
    with store(chunk=chunk):
        ours = _gradients("scalar", **options)
    _assert_equal(ours, theirs)


@pytest.mark.parametrize("name", ["scalar", "elastic"])
def test_doubles(store: Any, name: str) -> None:
    theirs = _gradients(name, dtype=torch.float64)
    with store(chunk="40KiB"):
        ours = _gradients(name, dtype=torch.float64)
    _assert_equal(ours, theirs)


def test_shots_that_share_a_model(store: Any) -> None:
    theirs = _gradients("elastic", shots=3)
    with store(chunk="40KiB"):
        ours = _gradients("elastic", shots=3)
    # On a processor, a compiled function adds the gradients of one shot after the other: here, chunk by chunk.
    _assert_equal([ours[0], ours[-1]], [theirs[0], theirs[-1]])
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5 * float(other.abs().max()))


def test_other_storage_modes_go_on_as_they_are(store: Any, tmp_path: Any) -> None:
    of = store()
    with of:
        _assert_equal(
            _gradients("scalar", storage_mode="disk", storage_path=str(tmp_path)),
            _gradients("scalar", storage_mode="disk", storage_path=str(tmp_path)),
        )
        assert of.engine.reserve(1).start == 0


def test_the_history_is_in_the_engine(store: Any) -> None:
    of = store(chunk="16KiB")
    with of:
        _gradients("scalar")
    assert of.engine.reserve(1).start > 10


def test_callbacks_see_the_same(store: Any) -> None:
    def seen() -> tuple[list[Any], list[Any]]:
        waves: list[Any] = []
        options = {
            "forward_callback": lambda state: waves.append(state.get_wavefield("wavefield_0").clone()),
            "backward_callback": lambda state: waves.append(state.get_gradient("v").clone()),
            "callback_frequency": 7,
        }
        return _gradients("scalar", **options), waves

    theirs, their_waves = seen()
    with store():
        ours, waves = seen()
    _assert_equal(ours, theirs)
    _assert_equal(waves, their_waves)


def test_a_second_backward_needs_again(store: Any) -> None:
    theirs = _gradients("scalar", backwards=2)
    with store(after_restore="keep", again=True):
        ours = _gradients("scalar", backwards=2)
    _assert_equal(ours, theirs)
    with store(), pytest.raises(RuntimeError, match="again=True"):
        _gradients("scalar", backwards=2)
    with store(again=True), pytest.raises(RuntimeError, match="after_restore='keep'"):
        _gradients("scalar", backwards=2)


def test_several_live_histories(store: Any) -> None:
    def both() -> list[Any]:
        models = [_constant(1500, 1), _constant(1700, 2)]
        outs = [
            deepwave.scalar(
                model,
                5.0,
                0.001,
                pml_freq=25.0,
                source_amplitudes=_wavelet(),
                source_locations=SOURCES[:1],
                receiver_locations=RECEIVERS[:1],
            )[-1]
            for model in models
        ]
        (outs[0] * outs[1]).sum().backward()
        return [model.grad for model in models]

    theirs = both()
    with store():
        ours = both()
    _assert_equal(ours, theirs)


def test_an_exception_in_the_forward_leaves_nothing(store: Any) -> None:
    def failing(state: Any) -> None:
        if state.step >= 30:
            raise ZeroDivisionError

    with store(), pytest.raises(ZeroDivisionError):
        _gradients("scalar", forward_callback=failing, callback_frequency=10)


def test_a_loss_that_is_dropped_leaves_nothing(store: Any) -> None:
    of = store()
    with of:
        out = deepwave.scalar(
            _constant(1500, 1),
            5.0,
            0.001,
            pml_freq=25.0,
            source_amplitudes=_wavelet(),
            source_locations=SOURCES[:1],
            receiver_locations=RECEIVERS[:1],
        )
        assert of.engine.versions()
        del out


def test_a_thread_that_did_not_enter_is_told(store: Any) -> None:
    told: list[Any] = []

    def run() -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            _gradients("scalar")
            told.extend(caught)

    with store():
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    assert any("another thread" in str(warning.message) for warning in told)


def test_numbers_and_hints_of_others_are_left_alone(store: Any) -> None:
    of = store()
    engine = of.engine
    engine.checkpoint(3, bytearray(8))
    engine.hint([3])
    with of:
        _gradients("scalar")
    assert engine.versions() == [3]
    engine.discard(3)


@pytest.mark.parametrize("chunk", [1, "20KiB", "100MiB"])
def test_buffers_beside_the_engine(store: Any, chunk: Any) -> None:
    theirs = _gradients("elastic")
    with store(chunk=chunk, beside=True):
        ours = _gradients("elastic")
    _assert_equal(ours, theirs)
    theirs = _gradients("scalar", backwards=2)
    with store(chunk=chunk, beside=True, again=True, after_restore="keep"):
        ours = _gradients("scalar", backwards=2)
    _assert_equal(ours, theirs)

"""How far TensorFlow has come with its devices in this process, and its settings of them, made as a plan has it.

Neither TensorFlow nor Keras, whose backend is found here too, is ever imported or started: this works with those that
the user has imported. Settings are read whole and written whole.

Sources: TensorFlow 2.16 to 2.21, `eager/context.py`; there is no public way to ask for the stage. Keras 3,
`keras/src/backend/policy.py`: the variable outweighs the file, and the first import decides.
"""

from __future__ import annotations

import functools
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from tfgpu_magic.errors import Refused
from tfgpu_magic.frameworks import cuda
from tfgpu_magic.ground import TENSORFLOW
from tfgpu_magic.ground.message import Line, Message, msg
from tfgpu_magic.ground.units import MIB
from tfgpu_magic.policy import refusal
from tfgpu_magic.policy.plan import FrameworkPlan
from tfgpu_magic.policy.process_state import DEVICES, GROWTH, Stage

if TYPE_CHECKING:
    from tfgpu_magic.ground.report import LogicalGpu

OLDEST = (2, 16)
"""The oldest version that tfgpu_magic was tested with."""

_CONTEXT = "tensorflow.python.eager.context"

since: str | None = None
"""The cell that made TensorFlow use a GPU, as a phrase, if the cells are watched."""

_others: frozenset[str] = frozenset()
"""The GPUs on which something had a CUDA context when TensorFlow was imported, as far as that was noted."""


def current_stage() -> Stage:
    """Return TensorFlow's stage."""
    if tensorflow() is None:
        return Stage.ABSENT
    context = eager_context()
    # A release with other names for these counts as not ready, as long as it makes no CUDA context.
    if getattr(context, "_initialized", False) or getattr(context, "_context_handle", None) is not None:
        return Stage.READY
    # A context that is not TensorFlow's own: of allocators made by its internals, or of another library. It is
    # impossible to find out which, but of those that were there before TensorFlow was.
    if set(cuda.gpus_in_use()) - _others:
        return Stage.POISONED
    return Stage.LISTED if has_list() or cuda.is_initialised() else Stage.IMPORTED


def note_import() -> None:
    """Note that TensorFlow is imported at this moment, so that the CUDA contexts that are there are others'."""
    global _others
    if getattr(getattr(sys.modules.get("tensorflow"), "__spec__", None), "_initializing", False):
        _others = frozenset(cuda.gpus_in_use())


def tensorflow() -> Any | None:
    """Return the TensorFlow module, if this process has imported it completely."""
    module = sys.modules.get("tensorflow")
    return module if hasattr(module, "__version__") else None


def old_version() -> str | None:
    """Return the version of TensorFlow, if it is older than `OLDEST`."""
    version = str(getattr(tensorflow(), "__version__", ""))
    release = tuple(int(number) for number in version.split(".")[:2] if number.isdigit())
    return version if len(release) == len(OLDEST) and release < OLDEST else None


def is_importing() -> bool:
    """Return whether TensorFlow is being imported at this moment, by another thread or by a caller in this one."""
    return "tensorflow" in sys.modules and tensorflow() is None


def eager_context() -> Any | None:
    """Return TensorFlow's context object; it has one before it uses a GPU."""
    return getattr(sys.modules.get(_CONTEXT), "_context", None)


def had_session() -> bool:
    """Return whether a session of TensorFlow 1's was ever made here, which makes allocators by options of its own."""
    counter: Any = getattr(sys.modules.get("tensorflow.python.client.session"), "_python_session_create_counter", None)
    return counter is not None and counter.get_cell().value() > 0


def context_class() -> Any | None:
    """Return the class of that object; TensorFlow has it from its import on."""
    return getattr(sys.modules.get(_CONTEXT), "Context", None)


def has_list() -> bool:
    """Return whether TensorFlow has made its list of devices, which it then keeps."""
    return getattr(eager_context(), "_physical_devices", None) is not None


def is_frozen() -> bool:
    """Return whether the list of GPUs is made, CUDA's or TensorFlow's, so that variables have no effect on it."""
    return cuda.is_initialised() or has_list()


def was_forked() -> bool:
    """Return whether CUDA was running when this process was forked from its parent, so that it cannot be used here."""
    context = eager_context()
    gpus = [device for device in getattr(context, "_physical_devices", None) or () if device.device_type == "GPU"]
    return bool(gpus) and not cuda.is_initialised()


def other_backend() -> str | None:
    """Return Keras' backend if it is another than TensorFlow; None where it is TensorFlow, or not set."""
    config = sys.modules.get("keras.src.backend.config")
    backend = getattr(config, "_BACKEND", None) or os.environ.get("KERAS_BACKEND") or _read_backend()
    return backend if isinstance(backend, str) and backend and backend != "tensorflow" else None


@functools.cache  # it is called every second; the content of the file at the first call counts
def _read_backend() -> object:
    try:
        folder = Path(os.environ.get("KERAS_HOME") or Path("~/.keras").expanduser())
        return json.loads((folder / "keras.json").read_text()).get("backend")
    except (OSError, ValueError, AttributeError, RuntimeError):
        return None


CPU = "CPU"
"""The CPU's key where the keys of GPUs are their UUIDs."""


class DeviceSettings(NamedTuple):
    """The settings of `tf.config`, by the UUIDs of GPUs.

    Attributes:
        parts: MiB of each logical device that a GPU or the CPU is divided into, None without a limit; empty if it is
            not divided.
        growth: whether memory growth is on; None where it was not set.
        visible: the GPUs that TensorFlow is to see, in CUDA's order.
    """

    parts: Mapping[str, tuple[int | None, ...]]
    growth: Mapping[str, bool | None]
    visible: tuple[str, ...]

    @property
    def limits(self) -> dict[str, tuple[int, ...]]:
        """The bytes of the logical devices into which each GPU is divided, by its UUID, and the CPU."""
        return {uuid: tuple((size or 0) * MIB for size in parts) for uuid, parts in self.parts.items()}

    @property
    def grows(self) -> bool:
        """Whether pools grow: by the variable if it is exactly true or false, else by `tf.config` without any part."""
        variable = os.environ.get(GROWTH)
        if variable in ("true", "false"):
            return variable == "true"
        return any(self.growth.values()) and not any(self.parts.values())


_theirs: DeviceSettings | None = None
"""TensorFlow's settings before `configure` first changed any."""


def users_settings() -> tuple[tuple[str, ...] | None, DeviceSettings]:
    """Return the GPUs that TensorFlow sees, and its settings without ours; nothing while it has no list."""
    now = current_settings()
    return (now.visible, _theirs or now) if now.parts else (None, now)


def current_settings() -> DeviceSettings:
    """Return TensorFlow's settings now, ours included; nothing while it has no list."""
    if not has_list() or tensorflow() is None or was_forked():
        return DeviceSettings(parts={}, growth={}, visible=())
    return read_settings()


def why_no_gpu(labels: Iterable[str]) -> Message | None:
    """Return why TensorFlow uses the CPU, though there are these GPUs; None where it has one, or CUDA shows none.

    TensorFlow makes its list of devices for it: call only where it may.
    """
    if _physical():
        return None
    if cuda.visible_gpus():
        return refusal.finds_no_gpu(labels)
    built: Any = tensorflow()
    if built.test.is_built_with_cuda():
        return None
    return msg("TensorFlow is built without CUDA here: it uses the CPU, and no limit is needed.")


def configure(part: FrameworkPlan) -> None:
    """Set in the imported TensorFlow what only its own API can set, whole or not at all.

    Raises:
        Refused: TensorFlow rejected it; its settings are as they were.
    """
    global _theirs
    # Where TensorFlow has made no list yet, nothing was set that would have to be undone.
    if not (part.by_api or has_list()):
        return
    try:
        before = read_settings()
        theirs = _theirs or before
        wanted = _settings(part, theirs)
        try:
            write_settings(wanted)
        except BaseException:
            write_settings(before)
            raise
        _theirs = theirs
    except Refused:
        raise
    except Exception as error:  # TensorFlow's errors have no common root
        raise Refused(msg("{framework} did not take it: {error}", framework=TENSORFLOW, error=error)) from error


def _settings(part: FrameworkPlan, theirs: DeviceSettings) -> DeviceSettings:
    """Return TensorFlow's settings by a plan; where that has none, those before any of ours."""
    planned = {str(device.gpu.uuid): tuple(size // MIB for size in device.limits) for device in part.devices}
    gone = [device.gpu.label for device in part.devices if device.limits and str(device.gpu.uuid) not in theirs.growth]
    if gone and not why_no_gpu(()):
        raise refusal.gone(gone, os.environ.get(DEVICES), part.environment.get(DEVICES))
    parts, growth = dict(theirs.parts), dict(theirs.growth)
    if part.growth is not None:
        for uuid in growth:
            parts[uuid], growth[uuid] = planned.get(uuid, ()), part.growth
    if part.cpus is not None:
        parts[CPU] = (None,) * part.cpus
    seen = tuple(uuid for uuid in theirs.growth if uuid in planned) if part.show else theirs.visible
    return DeviceSettings(parts=parts, growth=growth, visible=seen)


def read_settings() -> DeviceSettings:
    """Return the settings now. TensorFlow makes its list of devices for it if it has none: call only where it may."""
    config, devices = _config(), _physical()
    cpus = dict(zip([CPU], config.list_physical_devices("CPU"), strict=False))
    seen = config.get_visible_devices("GPU")
    return DeviceSettings(
        parts={
            uuid: tuple(part.memory_limit for part in config.get_logical_device_configuration(device) or ())
            for uuid, device in {**cpus, **devices}.items()
        },
        growth={uuid: config.experimental.get_memory_growth(device) for uuid, device in devices.items()},
        visible=tuple(uuid for uuid, device in devices.items() if device in seen),
    )


def write_settings(settings: DeviceSettings) -> None:
    """Make the settings; those that are in force already are left alone.

    Raises:
        Refused: TensorFlow leaves out a GPU that CUDA shows, and then mistakes the numbers of the others.
        RuntimeError, ValueError: TensorFlow rejects one of them; those before it are set.
    """
    config, devices, now = _config(), _physical(), read_settings()
    if devices and tuple(devices) != cuda.visible_gpus():
        raise Refused(
            msg(
                "TensorFlow does not use every GPU that CUDA shows it, and mistakes the numbers of others. Restart, "
                "and hide that GPU with `{line}` before TensorFlow is imported.",
                line=Line("visible"),
            )
        )
    cpus = config.list_physical_devices("CPU")[:1]
    for uuid, parts in settings.parts.items():
        if parts != now.parts.get(uuid):
            for device in cpus if uuid == CPU else [devices[uuid]]:
                _divide(device, parts)
    # A divided device takes no growth setting; the variable gives growth there, and TensorFlow compares nothing.
    if not any(settings.parts.values()):
        for uuid, growth in settings.growth.items():
            if growth != now.growth.get(uuid):
                config.experimental.set_memory_growth(devices[uuid], growth)
    if settings.visible != now.visible:
        config.set_visible_devices([devices[uuid] for uuid in settings.visible], "GPU")


def _physical() -> dict[str, Any]:
    """Return TensorFlow's physical GPUs by their UUIDs: the number in ``/physical_device:GPU:0`` is CUDA's."""
    gpus = _config().list_physical_devices("GPU")
    shown = cuda.visible_gpus()  # after the list, which starts CUDA if it is not running
    return {shown[_number(gpu)]: gpu for gpu in gpus if _number(gpu) < len(shown)}


def logical() -> Mapping[str, tuple[LogicalGpu, ...]]:
    """Return TensorFlow's logical GPUs, by the UUID of the GPU that each is on; 0.7 ms, once.

    There are none before it is ready, nor in a process that was forked since.
    """
    tf = tensorflow()
    if tf is None or current_stage() is not Stage.READY:
        return {}
    return _logical(tf, id(eager_context()), os.getpid())


@functools.lru_cache(maxsize=1)
def _logical(tf: Any, context: int, pid: int) -> Mapping[str, tuple[LogicalGpu, ...]]:  # noqa: ARG001
    """Return what `logical` does, found once for a context in a process: a context never changes them."""
    if was_forked():
        return {}
    from tensorflow.python.client import device_lib

    from tfgpu_magic.ground.report import LogicalGpu  # speed of a first `%tf_gpu` line: no TensorFlow is ready then

    # Never without session_config: TensorFlow would make allocators of its own, and not count them.
    devices = device_lib.list_local_devices(session_config=tf.__internal__.eager_context.get_config())
    uuids = cuda.uuids_by_pci()
    found: dict[str, tuple[LogicalGpu, ...]] = {}
    for device in devices:
        pci = re.search(r"pci bus id: ([0-9a-f:.]+)", device.physical_device_desc)
        if device.device_type == "GPU" and pci is not None and pci[1] in uuids:
            one = LogicalGpu(name=device.name.removeprefix("/device:"), limit=device.memory_limit)
            found[uuids[pci[1]]] = (*found.get(uuids[pci[1]], ()), one)
    return MappingProxyType(found)


def logical_names() -> dict[str | None, tuple[str, ...]]:
    """Return the names of TensorFlow's logical GPUs, by the UUID of the GPU that they are on."""
    return {uuid: tuple(gpu.name for gpu in gpus) for uuid, gpus in logical().items()}


def has_allocated(names: Iterable[str]) -> bool:
    """Return whether TensorFlow has taken memory on each of these logical GPUs, in a microsecond or two each."""
    read = getattr(eager_context(), "get_memory_info", None)
    return read is not None and all(read(name)["peak"] for name in names)


def _config() -> Any:
    tf = tensorflow()
    assert tf is not None  # noqa: S101  # no caller asks before it is imported
    return tf.config


def _divide(device: Any, parts: tuple[int | None, ...]) -> None:
    """Divide a physical device into logical ones, or undo its division."""
    config = _config()
    if parts:
        logical = [config.LogicalDeviceConfiguration(memory_limit=size) for size in parts]
        config.set_logical_device_configuration(device, logical)
        return
    # An empty list is accepted and makes the first op fail, and there is no public way to undo a division.
    context = eager_context()
    if context is not None:
        context._virtual_device_map.pop(device, None)


def _number(gpu: Any) -> int:
    return int(gpu.name.rpartition(":")[2])

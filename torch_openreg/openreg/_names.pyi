"""The public names of ``torch.openreg``, for type checkers."""

# Type checkers do not search. So this line names what may be deleted.
from torch_openreg.simulator._public_names import *  # type: ignore[import-not-found, unused-ignore]  # noqa: F403

from . import amp as amp
from . import execution as execution
from . import fallback as fallback
from . import memory as memory
from . import nvtx as nvtx
from . import profiler as profiler
from . import random as random
from . import streams as streams
from ._reductions import ipc_collect as ipc_collect
from ._tensor_types import BFloat16Storage as BFloat16Storage
from ._tensor_types import BFloat16Tensor as BFloat16Tensor
from ._tensor_types import BoolStorage as BoolStorage
from ._tensor_types import BoolTensor as BoolTensor
from ._tensor_types import ByteStorage as ByteStorage
from ._tensor_types import ByteTensor as ByteTensor
from ._tensor_types import CharStorage as CharStorage
from ._tensor_types import CharTensor as CharTensor
from ._tensor_types import ComplexDoubleStorage as ComplexDoubleStorage
from ._tensor_types import ComplexFloatStorage as ComplexFloatStorage
from ._tensor_types import DoubleStorage as DoubleStorage
from ._tensor_types import DoubleTensor as DoubleTensor
from ._tensor_types import FloatStorage as FloatStorage
from ._tensor_types import FloatTensor as FloatTensor
from ._tensor_types import HalfStorage as HalfStorage
from ._tensor_types import HalfTensor as HalfTensor
from ._tensor_types import IntStorage as IntStorage
from ._tensor_types import IntTensor as IntTensor
from ._tensor_types import LongStorage as LongStorage
from ._tensor_types import LongTensor as LongTensor
from ._tensor_types import ShortStorage as ShortStorage
from ._tensor_types import ShortTensor as ShortTensor
from .amp import get_amp_supported_dtype as get_amp_supported_dtype
from .execution import execution_mode as execution_mode
from .execution import get_execution_mode as get_execution_mode
from .execution import get_sync_debug_mode as get_sync_debug_mode
from .execution import record_launch_sites as record_launch_sites
from .execution import set_sync_debug_mode as set_sync_debug_mode
from .memory import MemPool as MemPool
from .memory import caching_allocator_alloc as caching_allocator_alloc
from .memory import caching_allocator_delete as caching_allocator_delete
from .memory import device_memory_used as device_memory_used
from .memory import empty_cache as empty_cache
from .memory import get_allocator_backend as get_allocator_backend
from .memory import get_per_process_memory_fraction as get_per_process_memory_fraction
from .memory import host_memory_stats as host_memory_stats
from .memory import host_memory_stats_as_nested_dict as host_memory_stats_as_nested_dict
from .memory import list_gpu_processes as list_gpu_processes
from .memory import max_memory_allocated as max_memory_allocated
from .memory import max_memory_reserved as max_memory_reserved
from .memory import mem_get_info as mem_get_info
from .memory import memory_allocated as memory_allocated
from .memory import memory_reserved as memory_reserved
from .memory import memory_snapshot as memory_snapshot
from .memory import memory_stats as memory_stats
from .memory import memory_stats_as_nested_dict as memory_stats_as_nested_dict
from .memory import memory_summary as memory_summary
from .memory import reset_accumulated_host_memory_stats as reset_accumulated_host_memory_stats
from .memory import reset_accumulated_memory_stats as reset_accumulated_memory_stats
from .memory import reset_peak_host_memory_stats as reset_peak_host_memory_stats
from .memory import reset_peak_memory_stats as reset_peak_memory_stats
from .memory import set_per_process_memory_fraction as set_per_process_memory_fraction
from .memory import use_mem_pool as use_mem_pool
from .random import get_rng_state as get_rng_state
from .random import get_rng_state_all as get_rng_state_all
from .random import initial_seed as initial_seed
from .random import manual_seed as manual_seed
from .random import manual_seed_all as manual_seed_all
from .random import seed as seed
from .random import seed_all as seed_all
from .random import set_rng_state as set_rng_state
from .random import set_rng_state_all as set_rng_state_all
from .streams import Event as Event
from .streams import Stream as Stream
from .streams import StreamContext as StreamContext
from .streams import current_stream as current_stream
from .streams import default_stream as default_stream
from .streams import set_stream as set_stream
from .streams import stream as stream

SUBMODULES: dict[str, tuple[str, ...]]
HOMES: dict[str, str]

"""A strict stand-in for a Tenstorrent device: the part of ttnn that emitted modules use, on torch.

Names, keywords and defaults are the library's. What it accepts, it is never kinder than the library, and it also
refuses the argument errors that the library lets pass in silence. Numbers model storage types, not the matrix unit.
"""

from . import experimental, transformer
from .configs import (
    DRAM_MEMORY_CONFIG,
    L1_MEMORY_CONFIG,
    BufferType,
    ChunkGdnFusedProgramConfig,
    ChunkGdnMonoProgramConfig,
    ChunkGdnPhasedProgramConfig,
    CoreCoord,
    CoreGrid,
    GeluVariant,
    MathFidelity,
    MatmulMultiCoreReuseMultiCast1DProgramConfig,
    MatmulMultiCoreReuseMultiCastProgramConfig,
    MatmulMultiCoreReuseProgramConfig,
    MemoryConfig,
    MinimalMatmulConfig,
    QkvCausalConv1dSiluProgramConfig,
    SDPAProgramConfig,
    TensorMemoryLayout,
    UnaryOpType,
    WormholeComputeKernelConfig,
)
from .device import Arch, Device, close_device, open_device, synchronize_device
from .dtypes import DataType, Layout
from .errors import EmulatorError
from .operations.data_movement import reshape, slice, to_layout, transpose, unsqueeze_to_4D
from .operations.elementwise import add, mul, subtract
from .operations.embedding import embedding
from .operations.experts import RoutedExpertActivation
from .operations.joining import concat, copy, repeat_interleave
from .operations.matmul import linear
from .operations.matmul_batched import matmul
from .operations.normalization import rms_norm
from .operations.reduction import argmax, gather, max, sum, topk
from .operations.sampling import manual_seed, sampling
from .operations.scanning import cumsum, permute
from .operations.scatter import scatter
from .operations.softmax import softmax
from .operations.unary import ceil, exp, gelu, log, softcap, softplus, tanh, typecast
from .storage import Shape
from .tensor import StorageType, Tensor
from .trace import begin_trace_capture, end_trace_capture, execute_trace, release_trace, trace_bytes
from .transfers import (
    allocate_tensor_on_device,
    copy_device_to_host_tensor,
    copy_host_to_device_tensor,
    deallocate,
    empty,
    from_device,
    from_torch,
    to_device,
    to_torch,
    zeros,
)

bfloat16 = DataType.BFLOAT16
bfloat8_b = DataType.BFLOAT8_B
bfloat4_b = DataType.BFLOAT4_B
float32 = DataType.FLOAT32
uint32 = DataType.UINT32
int32 = DataType.INT32
uint16 = DataType.UINT16
TILE_LAYOUT = Layout.TILE
ROW_MAJOR_LAYOUT = Layout.ROW_MAJOR
TILE_SIZE = 32

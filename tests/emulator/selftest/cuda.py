"""The few calls of NVRTC and the driver that the test makes, through ctypes: the same that the program makes."""

import ctypes
import os
import struct

LIBRARIES = os.environ["EMULATOR"]
nvrtc = ctypes.CDLL(os.path.join(LIBRARIES, "libnvrtc.so.13"))
driver = ctypes.CDLL(os.path.join(LIBRARIES, "libcuda.so.1"))


class CudaError(Exception):
    def __init__(self, call, code):
        super().__init__(f"{call}: {code}")
        self.code = code


def cu(name, *arguments):
    code = getattr(driver, name)(*arguments)
    if code != 0:
        raise CudaError(name, code)


def compile_source(text, defines=(), headers=(), arch="sm_80", name="test.cu"):
    """Returns result code, object and log."""
    program = ctypes.c_void_p()
    names = (ctypes.c_char_p * len(headers))(*[n.encode() for n, _ in headers])
    texts = (ctypes.c_char_p * len(headers))(*[t.encode() for _, t in headers])
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), name.encode(), len(headers), texts, names) == 0
    options = [f"--gpu-architecture={arch}", "--std=c++17", "-default-device", *[f"-D{d}" for d in defines]]
    code = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*[o.encode() for o in options]))
    size = ctypes.c_size_t()
    assert nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size)) == 0
    log = ctypes.create_string_buffer(size.value)
    assert nvrtc.nvrtcGetProgramLog(program, log) == 0
    image = b""
    if code == 0:
        assert nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)) == 0
        buffer = ctypes.create_string_buffer(size.value)
        assert nvrtc.nvrtcGetCUBIN(program, buffer) == 0
        image = buffer.raw
    assert nvrtc.nvrtcDestroyProgram(ctypes.byref(program)) == 0
    return code, image, log.value.decode()


def start():
    cu("cuInit", 0)
    device, context = ctypes.c_int(), ctypes.c_void_p()
    cu("cuDeviceGet", ctypes.byref(device), 0)
    cu("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    cu("cuCtxSetCurrent", context)


class Module:
    def __init__(self, image):
        self.handle = ctypes.c_void_p()
        self.image = image
        cu("cuModuleLoadData", ctypes.byref(self.handle), image)

    def function(self, name):
        function = ctypes.c_void_p()
        cu("cuModuleGetFunction", ctypes.byref(function), self.handle, name.encode())
        return function


class Array:
    """Device memory with the values of a struct format: 'f', 'I', 'H', 'B'."""

    def __init__(self, format, values=None, count=None):
        self.format, self.count = format, len(values) if values is not None else count
        self.bytes = struct.calcsize(format) * self.count
        self.at = ctypes.c_uint64()
        cu("cuMemAlloc_v2", ctypes.byref(self.at), ctypes.c_size_t(self.bytes))
        if values is not None:
            cu("cuMemcpyHtoD_v2", self.at, struct.pack(f"{self.count}{format}", *values), ctypes.c_size_t(self.bytes))

    def get(self):
        buffer = ctypes.create_string_buffer(self.bytes)
        cu("cuMemcpyDtoH_v2", buffer, self.at, ctypes.c_size_t(self.bytes))
        return list(struct.unpack(f"{self.count}{self.format}", buffer.raw))

    def free(self):
        cu("cuMemFree_v2", self.at)


def launch(function, grid, block, arguments, shared=0, stream=None):
    grid, block = [(*extent, 1, 1)[:3] for extent in (grid, block)]
    values = [a.at if isinstance(a, Array) else a for a in arguments]
    pointers = (ctypes.c_void_p * len(values))(*[ctypes.cast(ctypes.byref(v), ctypes.c_void_p) for v in values])
    cu("cuLaunchKernel", function, *grid, *block, shared, stream, pointers, None)

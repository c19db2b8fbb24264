"""Calls the library as a C program does. The first argument says which of the functions below runs."""

import ctypes as c
import os
import subprocess
import sys
import threading

cuda = c.CDLL("libcuda.so.1")
Pointer, Size = c.c_uint64, c.c_size_t


class Handle(c.Structure):
    _fields_ = [("bytes", c.c_ubyte * 64)]


class Location(c.Structure):
    _fields_ = [("type", c.c_uint), ("id", c.c_int)]


class Prop(c.Structure):
    _fields_ = [("type", c.c_uint), ("handle_types", c.c_uint), ("location", Location),
                ("win32", c.c_void_p), ("compression", c.c_ubyte), ("rdma", c.c_ubyte),
                ("usage", c.c_ushort), ("reserved", c.c_ubyte * 4)]


class Access(c.Structure):
    _fields_ = [("location", Location), ("flags", c.c_uint)]


def equal(found, expected):
    assert found == expected, f"{found!r} is not {expected!r}"


def call(name, *arguments, code=0):
    found = getattr(cuda, name)(*arguments)
    assert found == code, f"{name} returned {found}, not {code}"


def make(kind, name, *arguments):
    """What a call writes to its first argument."""
    result = kind()
    call(name, c.byref(result), *arguments)
    return result


def start(device=0):
    call("cuInit", 0)
    context = make(c.c_void_p, "cuDevicePrimaryCtxRetain", device)
    call("cuCtxPushCurrent_v2", context)


def end(device=0):
    call("cuCtxPopCurrent_v2", None)
    call("cuDevicePrimaryCtxRelease_v2", device)


def read(address, size):
    room = c.create_string_buffer(size)
    call("cuMemcpyDtoH_v2", room, address, Size(size))
    return room.raw


def symbols(*names):
    for name in names:
        assert getattr(cuda, name), name
    function, status = c.c_void_p(), c.c_uint(9)
    call("cuGetProcAddress_v2", b"cuMemAlloc", c.byref(function), 12000, c.c_uint64(0), c.byref(status))
    equal(function.value, c.cast(cuda.cuMemAlloc_v2, c.c_void_p).value)
    equal(status.value, 0)
    call("cuGetProcAddress_v2", b"cuNothing", c.byref(function), 12000, c.c_uint64(0), c.byref(status), code=500)
    equal((function.value, status.value), (None, 1))
    text = c.c_char_p()
    call("cuGetErrorName", 201, c.byref(text))
    equal(text.value, b"CUDA_ERROR_INVALID_CONTEXT")
    call("cuGetErrorString", 201, c.byref(text))
    assert text.value
    call("cuGetErrorName", 12345, c.byref(text), code=1)
    equal(text.value, None)
    equal(make(c.c_int, "cuDriverGetVersion").value, 12040)


def copies():
    call("cuMemAlloc_v2", None, Size(1), code=3)
    start()
    call("cuMemAlloc_v2", None, Size(1), code=1)
    # Its name, cut and whole.
    for room, expected in [(9, b"fake CUD"), (100, b"fake CUDA device (test double)")]:
        name = c.create_string_buffer(room)
        call("cuDeviceGetName", name, room, 0)
        equal(name.value, expected)
    first = make(Pointer, "cuMemAlloc_v2", Size(3 << 20))
    call("cuMemcpyHtoD_v2", first, b"0123456789", Size(10))
    second = make(Pointer, "cuMemAllocAsync", Size(10), None)
    call("cuMemcpyDtoD_v2", second, first, Size(10))
    call("cuMemsetD8_v2", Pointer(second.value + 2), c.c_ubyte(ord("x")), Size(3))
    equal(read(second, 10), b"01xxx56789")
    # The kind of copy that finds out what its pointers are.
    host = make(c.c_void_p, "cuMemAllocHost_v2", Size(10))
    for to, source in [(host, second), (first, host)]:
        call("cuMemcpyAsync", c.c_uint64(to.value), c.c_uint64(source.value), Size(10), None)
    equal(read(first, 10), b"01xxx56789")
    equal(c.string_at(host, 10), b"01xxx56789")
    call("cuMemcpyHtoD_v2", first, None, Size(1), code=1)
    call("cuMemcpyDtoH_v2", None, first, Size(1), code=1)
    free, total = Size(), Size()
    call("cuMemGetInfo_v2", c.byref(free), c.byref(total))
    equal(total.value - free.value, (4 << 20) + (2 << 20))
    call("cuMemFreeHost", host)
    call("cuMemFreeAsync", second, None)
    call("cuMemFree_v2", first)
    end()


HostFunction = c.CFUNCTYPE(None, c.c_void_p)


def streams():
    start()
    stream = make(c.c_void_p, "cuStreamCreateWithPriority", 1, -1)
    event = make(c.c_void_p, "cuEventCreate", 2)
    memory = make(Pointer, "cuMemAlloc_v2", Size(4))
    seen = []
    gate = threading.Event()

    @HostFunction
    def wait(_):
        gate.wait()

    @HostFunction
    def function(data):
        seen.append((data, threading.get_ident()))
        call("cuMemAlloc_v2", c.byref(Pointer()), Size(1), code=800)

    call("cuLaunchHostFunc", stream, wait, None)
    call("cuMemcpyHtoDAsync_v2", memory, b"abcd", Size(4), stream)
    call("cuLaunchHostFunc", stream, function, c.c_void_p(4321))
    call("cuEventRecord", event, stream)
    call("cuEventQuery", event, code=600)
    call("cuStreamQuery", stream, code=600)
    call("cuStreamWaitEvent", None, event, 0)
    gate.set()
    call("cuStreamSynchronize", None)
    equal(len(seen), 1)
    equal(seen[0][0], 4321)
    assert seen[0][1] != threading.get_ident()
    room = c.create_string_buffer(4)
    call("cuMemcpyDtoHAsync_v2", room, memory, Size(4), stream)
    equal(room.raw, b"abcd")
    call("cuEventSynchronize", event)
    call("cuLaunchHostFunc", stream, None, None, code=1)
    call("cuMemFree_v2", memory)
    call("cuEventDestroy_v2", event)
    call("cuStreamDestroy_v2", stream)
    end()


def export():
    start()
    memory = make(Pointer, "cuMemAlloc_v2", Size(2 << 20))
    call("cuMemcpyHtoD_v2", memory, b"frame", Size(5))
    event = make(c.c_void_p, "cuEventCreate", 6)
    handles = [make(Handle, "cuIpcGetMemHandle", memory), make(Handle, "cuIpcGetEventHandle", event)]
    call("cuEventRecord", event, None)
    print(*[bytes(handle.bytes).hex() for handle in handles], flush=True)
    sys.stdin.readline()
    call("cuEventDestroy_v2", event)
    call("cuMemFree_v2", memory)
    end()


def handle(text):
    return Handle.from_buffer_copy(bytes.fromhex(text))


def import_(memory, event):
    start()
    address = make(Pointer, "cuIpcOpenMemHandle_v2", handle(memory), 1)
    opened = make(c.c_void_p, "cuIpcOpenEventHandle", handle(event))
    call("cuStreamWaitEvent", None, opened, 0)
    equal(read(address, 5), b"frame")
    base, size = Pointer(), Size()
    call("cuMemGetAddressRange_v2", c.byref(base), c.byref(size), Pointer(address.value + 3))
    equal((base.value, size.value), (address.value, 2 << 20))
    call("cuEventDestroy_v2", opened)
    call("cuIpcCloseMemHandle", address)
    end()


def cannot_open(memory, code):
    start()
    call("cuIpcOpenMemHandle_v2", c.byref(Pointer()), handle(memory), 1, code=int(code))


def hold(memory, event):
    start()
    make(Pointer, "cuIpcOpenMemHandle_v2", handle(memory), 1)
    opened = make(c.c_void_p, "cuIpcOpenEventHandle", handle(event))
    call("cuStreamWaitEvent", None, opened, 0)
    print("held", flush=True)
    sys.stdin.readline()


def map_(memory, size, flags):
    base = make(Pointer, "cuMemAddressReserve", Size(size), Size(0), Pointer(0), c.c_uint64(0))
    call("cuMemMap", base, Size(size), Size(0), memory, c.c_uint64(0))
    access = Access(Location(1, 0), flags)
    call("cuMemSetAccess", base, Size(size), c.byref(access), Size(1))
    return base


def unmap(base, size):
    call("cuMemUnmap", base, Size(size))
    call("cuMemAddressFree", base, Size(size))


def virtual():
    start()
    prop = Prop(1, 1, Location(1, 0))
    equal(c.sizeof(prop), 32)
    size = make(Size, "cuMemGetAllocationGranularity", c.byref(prop), 0).value
    memory = make(c.c_uint64, "cuMemCreate", Size(size), c.byref(prop), c.c_uint64(0))
    base = map_(memory, size, 3)
    call("cuMemcpyHtoD_v2", base, b"shared", Size(6))
    fd = make(c.c_int, "cuMemExportToShareableHandle", memory, 1, c.c_uint64(0)).value
    subprocess.run([sys.executable, __file__, "virtual_child", str(fd)], pass_fds=[fd], check=True)
    equal(read(base, 6), b"SHARED")
    os.close(fd)
    unmap(base, size)
    call("cuMemRelease", memory)
    end()


def virtual_child(fd):
    start()
    memory = make(c.c_uint64, "cuMemImportFromShareableHandle", c.c_void_p(int(fd)), 1)
    os.fstat(int(fd))  # still ours
    prop = make(Prop, "cuMemGetAllocationPropertiesFromHandle", memory)
    equal((prop.type, prop.handle_types, prop.location.type, prop.location.id), (1, 1, 1, 0))
    base = map_(memory, 2 << 20, 3)
    flags = make(c.c_uint64, "cuMemGetAccess", c.byref(prop.location), base)
    equal(flags.value, 3)
    call("cuMemRelease", memory)
    call("cuMemcpyHtoD_v2", base, read(base, 6).upper(), Size(6))
    unmap(base, 2 << 20)
    call("cuMemImportFromShareableHandle", c.byref(c.c_uint64()), c.c_void_p(0), 1, code=1)
    end()


def pointers():
    start()
    memory = make(Pointer, "cuMemAlloc_v2", Size(10))
    equal(make(c.c_int, "cuPointerGetAttribute", 10, memory).value, 1)
    attributes = (c.c_uint * 3)(2, 12, 7)
    kind, size, identity = c.c_uint(), Size(), c.c_uint64()
    values = (c.c_void_p * 3)(*[c.addressof(value) for value in (kind, size, identity)])
    for address, expected in [(memory, (2, 10)), (Pointer(4096), (0, 0))]:
        call("cuPointerGetAttributes", 3, attributes, values, address)
        equal((kind.value, size.value), expected)
    call("cuPointerGetAttribute", c.byref(kind), 2, Pointer(4096), code=1)
    call("cuMemFree_v2", memory)
    end()


def environment():
    start()
    equal(make(c.c_int, "cuDeviceGetCount").value, 2)
    buses = []
    for device in range(2):
        bus = c.create_string_buffer(20)
        call("cuDeviceGetPCIBusId", bus, 20, device)
        buses.append(bus.value)
    equal(buses, [b"0000:03:00.0", b"0000:02:00.0"])
    uuids = [bytes(make(c.c_ubyte * 16, name, 0)) for name in ["cuDeviceGetUuid", "cuDeviceGetUuid_v2"]]
    equal(uuids[0], uuids[1])
    equal(make(c.c_int, "cuDeviceGetAttribute", 75, 0).value, 8)
    equal(make(Size, "cuDeviceTotalMem_v2", 0).value, 8 << 30)
    make(Pointer, "cuMemAlloc_v2", Size(1))
    call("cuMemAlloc_v2", c.byref(Pointer()), Size(1), code=46)


def misconfigured():
    call("cuInit", 0, code=802)


def fork():
    start()
    child = os.fork()
    if child == 0:
        call("cuInit", 0, code=3)
        call("cuCtxGetCurrent", c.byref(c.c_void_p()), code=3)
        sys.exit(0)
    equal(os.waitpid(child, 0)[1], 0)


globals()[{"import": "import_", "cannot-open": "cannot_open"}.get(sys.argv[1], sys.argv[1])](*sys.argv[2:])

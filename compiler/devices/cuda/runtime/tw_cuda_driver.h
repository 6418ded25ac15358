/* The driver of CUDA: its interface as far as it is used, what is said when a call fails, and how it is opened.
 *
 * INTERFACE_VERSION, which model.c defines, is the version of CUDA that every function of DRIVER_FUNCTIONS needs. The driver
 * is opened when the first instance is made, by the name that every driver installs; this library itself needs libc alone.
 */
#include "tw_host.h"

#include <dlfcn.h>
#include <pthread.h>

/* ---- The driver's interface: numbers, structures and functions of cuda.h, as far as they are used ------------------ */

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
    CUDA_ERROR_ILLEGAL_ADDRESS = 700,
    CUDA_ERROR_LAUNCH_TIMEOUT = 702,       /* a display's GPU does not wait for ever */
    CUDA_ERROR_HARDWARE_STACK_ERROR = 714, /* this and the following five are faults of kernels */
    CUDA_ERROR_LAUNCH_FAILED = 719,
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
    CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT = 9,
    CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4,
    CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC = 1,
    CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC = 1,
    CU_JIT_ERROR_LOG_BUFFER = 5,
    CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6,
    CU_STREAM_DEFAULT = 0 /* ordered with the legacy default stream, in which callers' libraries work by default */
};

typedef struct { /* CUDA_KERNEL_NODE_PARAMS_v2 */
    CUfunction func;
    unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    void **kernelParams;
    void **extra;
    void *kern;
    CUcontext ctx;
} KernelNodeParams;
_Static_assert(sizeof(KernelNodeParams) == 72 && offsetof(KernelNodeParams, kernelParams) == 40 && offsetof(KernelNodeParams, ctx) == 64,
               "CUDA_KERNEL_NODE_PARAMS_v2");

typedef struct { /* CUgraphEdgeData */
    unsigned char from_port, to_port, type, reserved[5];
} EdgeData;
_Static_assert(sizeof(EdgeData) == 8, "CUgraphEdgeData");

typedef union { /* CUlaunchAttributeValue */
    char pad[64];
    struct { unsigned x, y, z; } clusterDim;
} LaunchAttributeValue;
typedef struct { /* CUlaunchAttribute */
    int id;
    char pad[4];
    LaunchAttributeValue value;
} LaunchAttribute;
_Static_assert(sizeof(LaunchAttribute) == 72 && offsetof(LaunchAttribute, value) == 8, "CUlaunchAttribute");

typedef struct { /* CUlaunchConfig */
    unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    CUstream hStream;
    LaunchAttribute *attrs;
    unsigned numAttrs;
} LaunchConfig;
_Static_assert(sizeof(LaunchConfig) == 56 && offsetof(LaunchConfig, hStream) == 32 && offsetof(LaunchConfig, numAttrs) == 48, "CUlaunchConfig");

/* Name here, name in the library, parameters. */
#define DRIVER_FUNCTIONS(F)                                                                                                \
    F(Init, "cuInit", (unsigned flags))                                                                                    \
    F(DriverGetVersion, "cuDriverGetVersion", (int *version))                                                              \
    F(GetErrorName, "cuGetErrorName", (CUresult error, const char **text))                                                 \
    F(GetErrorString, "cuGetErrorString", (CUresult error, const char **text))                                             \
    F(DeviceGetCount, "cuDeviceGetCount", (int *count))                                                                    \
    F(DeviceGet, "cuDeviceGet", (CUdevice *device, int ordinal))                                                           \
    F(DeviceGetName, "cuDeviceGetName", (char *name, int bytes, CUdevice device))                                          \
    F(DeviceGetAttribute, "cuDeviceGetAttribute", (int *value, int attribute, CUdevice device))                            \
    F(DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (CUcontext *context, CUdevice device))                           \
    F(DevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (CUdevice device))                                          \
    F(CtxPushCurrent, "cuCtxPushCurrent_v2", (CUcontext context))                                                          \
    F(CtxPopCurrent, "cuCtxPopCurrent_v2", (CUcontext *context))                                                           \
    F(ModuleLoadDataEx, "cuModuleLoadDataEx", (CUmodule *module, const void *image, unsigned count, int *options, void **values)) \
    F(ModuleUnload, "cuModuleUnload", (CUmodule module))                                                                   \
    F(ModuleGetFunction, "cuModuleGetFunction", (CUfunction *function, CUmodule module, const char *name))                 \
    F(FuncSetAttribute, "cuFuncSetAttribute", (CUfunction function, int attribute, int value))                             \
    F(MemAlloc, "cuMemAlloc_v2", (CUdeviceptr *pointer, size_t bytes))                                                     \
    F(MemFree, "cuMemFree_v2", (CUdeviceptr pointer))                                                                      \
    F(MemGetInfo, "cuMemGetInfo_v2", (size_t *left, size_t *total))                                                        \
    F(MemAllocHost, "cuMemAllocHost_v2", (void **pointer, size_t bytes))                                                   \
    F(MemFreeHost, "cuMemFreeHost", (void *pointer))                                                                       \
    F(MemcpyHtoD, "cuMemcpyHtoD_v2", (CUdeviceptr to, const void *from, size_t bytes))                                     \
    F(MemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2", (CUdeviceptr to, const void *from, size_t bytes, CUstream stream))          \
    F(MemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2", (void *to, CUdeviceptr from, size_t bytes, CUstream stream))                \
    F(MemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2", (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))          \
    F(MemsetD8Async, "cuMemsetD8Async", (CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream))              \
    F(StreamCreate, "cuStreamCreate", (CUstream *stream, unsigned flags))                                                  \
    F(StreamSynchronize, "cuStreamSynchronize", (CUstream stream))                                                         \
    F(StreamDestroy, "cuStreamDestroy_v2", (CUstream stream))                                                              \
    F(EventCreate, "cuEventCreate", (CUevent *event, unsigned flags))                                                      \
    F(EventDestroy, "cuEventDestroy_v2", (CUevent event))                                                                  \
    F(EventRecord, "cuEventRecord", (CUevent event, CUstream stream))                                                      \
    F(EventElapsedTime, "cuEventElapsedTime", (float *milliseconds, CUevent from, CUevent to))                             \
    F(LaunchKernelEx, "cuLaunchKernelEx", (const LaunchConfig *config, CUfunction function, void **parameters, void **extra)) \
    F(GraphCreate, "cuGraphCreate", (CUgraph *graph, unsigned flags))                                                      \
    F(GraphAddKernelNode, "cuGraphAddKernelNode_v2",                                                                       \
      (CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count, const KernelNodeParams *parameters))      \
    F(GraphKernelNodeSetAttribute, "cuGraphKernelNodeSetAttribute", (CUgraphNode node, int attribute, const LaunchAttributeValue *value)) \
    F(GraphInstantiate, "cuGraphInstantiateWithFlags", (CUgraphExec *executable, CUgraph graph, unsigned long long flags)) \
    F(GraphExecKernelNodeSetParams, "cuGraphExecKernelNodeSetParams_v2",                                                   \
      (CUgraphExec executable, CUgraphNode node, const KernelNodeParams *parameters))                                      \
    F(GraphUpload, "cuGraphUpload", (CUgraphExec executable, CUstream stream))                                             \
    F(GraphLaunch, "cuGraphLaunch", (CUgraphExec executable, CUstream stream))                                             \
    F(GraphExecDestroy, "cuGraphExecDestroy", (CUgraphExec executable))                                                    \
    F(GraphDestroy, "cuGraphDestroy", (CUgraph graph))
/* Those without which a driver is served all the same: edges that let a kernel start early came with CUDA 12.3. */
#define NEWER_DRIVER_FUNCTIONS(F)                                                                                          \
    F(GraphAddDependencies, "cuGraphAddDependencies_v2",                                                                   \
      (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const EdgeData *edges, size_t count))

static struct {
#define DECLARE(function, name, parameters) CUresult(*function) parameters;
    DRIVER_FUNCTIONS(DECLARE) NEWER_DRIVER_FUNCTIONS(DECLARE)
#undef DECLARE
    void *library;
    int is_known; /* all functions were found */
} cu;
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

/* ---- Errors: what failed, what the driver says, what to do --------------------------------------------------------- */

static int is_fault_of_kernel(CUresult error) {
    return error == CUDA_ERROR_ILLEGAL_ADDRESS || error == CUDA_ERROR_LAUNCH_TIMEOUT || (error >= CUDA_ERROR_HARDWARE_STACK_ERROR && error <= CUDA_ERROR_LAUNCH_FAILED);
}

/* 0 for success; otherwise -1, with the reason in last_error. */
static int check(CUresult result, const char *doing) {
    const char *name = NULL, *text = NULL;
    if (result == CUDA_SUCCESS) return 0;
    if (cu.GetErrorName(result, &name) || !name) name = "an unknown error";
    if (cu.GetErrorString(result, &text) || !text) text = "the driver says no more";
    if (is_fault_of_kernel(result))
        return fail("a kernel failed on the GPU while %s: %s (%s). This process cannot use the GPU any more: start another, and report the model", doing, name, text);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) return fail("out of memory while %s: %s (%s): free memory of the GPU or of the host, or use another GPU", doing, name, text);
    return fail("%s failed: %s (%s)", doing, name, text);
}

static const char *version_text(int version, char *text, size_t bytes) {
    snprintf(text, bytes, "%d.%d", version / 1000, version % 1000 / 10);
    return text;
}

/* ---- The driver and the GPU ---------------------------------------------------------------------------------------- */

/* The CUDA version that the driver serves has to be this one or a later one. */
static int check_version(int needed) {
    int version = 0;
    char has[16], needs[16];
    if (check(cu.DriverGetVersion(&version), "asking for the driver's version")) return -1;
    if (version < needed)
        return fail("the NVIDIA driver is too old: it serves CUDA %s, and this model needs CUDA %s or later: update the driver",
                    version_text(version, has, sizeof has), version_text(needed, needs, sizeof needs));
    return 0;
}

static int find_functions(void) {
    char needs[16];
    version_text(INTERFACE_VERSION, needs, sizeof needs);
#define FIND(function, name, parameters)                                                                                   \
    if (!(*(void **)&cu.function = dlsym(cu.library, name)))                                                               \
        return fail("the NVIDIA driver is too old: it has no %s, and this model needs CUDA %s or later: update the driver", name, needs);
    DRIVER_FUNCTIONS(FIND)
#undef FIND
#define FIND(function, name, parameters) *(void **)&cu.function = dlsym(cu.library, name);
    NEWER_DRIVER_FUNCTIONS(FIND)
#undef FIND
    return check_version(INTERFACE_VERSION);
}

static int start_driver(void) {
    if (!cu.library) cu.library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL); /* never closed: the driver does not bear it */
    if (!cu.library) return fail("no NVIDIA driver on this machine (%s): install one, or compile the model for cpu", dlerror());
    if (!cu.is_known && find_functions()) return -1;
    cu.is_known = 1;
    CUresult result = cu.Init(0);
    if (result == CUDA_ERROR_NO_DEVICE)
        return fail("there is no GPU that CUDA can use (CUDA_VISIBLE_DEVICES is %s): check nvidia-smi, or compile the model for cpu",
                    getenv("CUDA_VISIBLE_DEVICES") ? getenv("CUDA_VISIBLE_DEVICES") : "not set");
    if (result == CUDA_ERROR_NOT_INITIALIZED)
        return fail("CUDA cannot start: this process was forked from one in which it had: load the model before, in a process that is spawned");
    if (result == CUDA_ERROR_SYSTEM_DRIVER_MISMATCH) return fail("the NVIDIA driver and its kernel module differ in version: restart the machine");
    return check(result, "starting the driver");
}

/* Opens the driver, once for all instances. */
static int open_driver(void) {
    pthread_mutex_lock(&opening);
    int failed = start_driver();
    pthread_mutex_unlock(&opening);
    return failed;
}

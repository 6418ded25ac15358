/* The part of model.c that is the same for every model on CUDA: an instance's memory and graph, the C interface.
 *
 * model.c defines, before including this file, the tables of the plan:
 *   PORTS_IN, PORTS_OUT, ports[]           inputs then outputs: dtype, shape, bytes
 *   images[], UNITS                        the compiled kernels: for each architecture, the driver it needs and one image of each source file
 *   KERNELS, kernels[]                     each distinct kernel's name, unit and launch
 *   NODES, nodes[]                         the launches in an order that respects every edge: each one's kernel, and which entries it has in
 *   OPERANDS, operands[]                     where what its kernel is given lies
 *   CALLS, calls[]                           the calls of the plan that it carries out
 *   edges[]                                  the earlier nodes that it waits for
 *   MOST_OPERANDS, MOST_EDGES              of one node
 *   ARENA_BYTES, WEIGHT_BYTES, SCRATCH_BYTES, COUNTER_BYTES, NVRTC_VERSION, INTERFACE_VERSION, ARCHITECTURES
 *
 * An inference is one launch of a CUDA graph that is made once. An instance works in its GPU's primary context, which it
 * shares with everything else in the process, and makes it current for the time of a call.
 */
#include "tw_cuda_driver.h"

/* ---- An instance and its GPU --------------------------------------------------------------------------------------- */

struct tw_instance {
    int ordinal;
    CUdevice device;
    char name[64];
    CUcontext context; /* NULL: not retained */
    int capability;    /* 10 * major + minor */
    const struct image *image;
    CUmodule modules[UNITS];
    CUfunction functions[KERNELS + 1];
    struct weights file;
    CUdeviceptr weights, arena, scratch, counters;
    CUdeviceptr own[PORTS + 1];   /* an instance's memory for each input and output */
    void *staging[PORTS + 1];     /* page-locked memory of the host, from and to which they are copied */
    CUdeviceptr given[PORTS + 1]; /* what the graph uses for each; 0: its nodes are not known to agree */
    CUdeviceptr bound[OPERANDS + 1];
    CUstream stream;
#ifdef DECISIONS
    CUgraph graph; /* the last of `graphs` to which nodes were added */
    CUgraph graphs[GRAPHS + 1];
    CUgraphNode nodes[NODES + 1];
    CUgraphExec executables[GRAPHS + 1];
    struct answers *answers; /* page-locked memory of the host, in which the GPU leaves what is decided by */
#else
    CUgraph graph;
    CUgraphNode nodes[NODES + 1];
    CUgraphExec executable;
#endif
    CUevent events[NODES + 1]; /* of a profile */
};

static int find_device(tw_instance *m, int ordinal) {
    int count = 0, major = 0, minor = 0;
    if (check(cu.DeviceGetCount(&count), "counting GPUs")) return -1;
    if (ordinal < 0 || ordinal >= count) return fail("there is no GPU %d: this process sees %d, numbered from 0", ordinal, count);
    m->ordinal = ordinal;
    if (check(cu.DeviceGet(&m->device, ordinal), "opening the GPU")) return -1;
    if (check(cu.DeviceGetName(m->name, sizeof m->name, m->device), "asking for the GPU's name")) return -1;
    if (check(cu.DeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, m->device), "asking for the GPU's architecture")) return -1;
    if (check(cu.DeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, m->device), "asking for the GPU's architecture")) return -1;
    m->capability = 10 * major + minor;
    return 0;
}

/* Machine code runs on GPUs of its major capability whose minor one is no lower, architecture-specific code on its own capability alone;
 * PTX is compiled by the driver for all later ones. */
static int runs_on(const struct image *image, int capability) {
    if (image->kind == IMAGE_PTX) return capability >= image->capability;
    if (image->kind == IMAGE_SPECIFIC) return capability == image->capability;
    return capability / 10 == image->capability / 10 && capability >= image->capability;
}

static int choose_image(tw_instance *m) {
    for (int at = 0; at < IMAGES && !m->image; at++)
        if (runs_on(&images[at], m->capability)) m->image = &images[at];
    if (!m->image)
        return fail("this model was compiled for %s, and GPU %d (%s) is sm_%d: compile it for cuda:sm_%d", ARCHITECTURES, m->ordinal, m->name, m->capability, m->capability);
    return m->image->kind == IMAGE_PTX ? 0 : check_version(m->image->driver); /* of PTX the driver says itself what is wrong */
}

/* ---- Making an instance -------------------------------------------------------------------------------------------- */

static int load_module(tw_instance *m, int unit) {
    char log[400] = "", has[16], needs[16];
    int options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES}, version = 0;
    void *values[] = {log, (void *)(uintptr_t)sizeof log}; /* the driver replaces the size by what it used */
    CUresult result = cu.ModuleLoadDataEx(&m->modules[unit], m->image->units[unit], 2, options, values);
    if (result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION && !cu.DriverGetVersion(&version))
        return fail("the NVIDIA driver serves CUDA %s, and the kernels for GPUs beyond %s need CUDA %s: update the driver, or compile the model for cuda:sm_%d",
                    version_text(version, has, sizeof has), ARCHITECTURES, version_text(NVRTC_VERSION, needs, sizeof needs), m->capability);
    if (!check(result, m->image->kind == IMAGE_PTX ? "compiling the kernels for this GPU" : "loading the kernels")) return 0;
    size_t said = strlen(last_error);
    if (log[0]) snprintf(last_error + said, sizeof last_error - said, ": %s", log);
    said = strlen(last_error);
    if (!cu.DriverGetVersion(&version) && version / 1000 < NVRTC_VERSION / 1000)
        snprintf(last_error + said, sizeof last_error - said,
                 ". The driver serves CUDA %s and NVRTC %s made them: update the driver, or compile the model with an NVRTC of version %d",
                 version_text(version, has, sizeof has), version_text(NVRTC_VERSION, needs, sizeof needs), version / 1000);
    return -1;
}

static int load_modules(tw_instance *m) {
    for (int unit = 0; unit < UNITS; unit++)
        if (load_module(m, unit)) return -1;
    return 0;
}

static int find_kernels(tw_instance *m) {
    int most = 0;
    if (check(cu.DeviceGetAttribute(&most, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, m->device), "asking for the GPU's shared memory")) return -1;
    for (int at = 0; at < KERNELS; at++) {
        const struct kernel *kernel = &kernels[at];
        if (kernel->shared_bytes > (unsigned)most)
            return fail("kernel %s needs %u bytes of shared memory, and GPU %d (%s) has %d for a block: compile the model for cuda:sm_%d",
                        kernel->name, kernel->shared_bytes, m->ordinal, m->name, most, m->capability);
        if (check(cu.ModuleGetFunction(&m->functions[at], m->modules[kernel->unit], kernel->name), "finding a kernel")) return -1;
        if (kernel->shared_bytes > 48 * 1024 &&
            check(cu.FuncSetAttribute(m->functions[at], CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)kernel->shared_bytes), "asking for shared memory"))
            return -1;
#ifdef SHARED_SPLIT
        if (check(cu.FuncSetAttribute(m->functions[at], CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, SHARED_SPLIT), "splitting L1 and shared memory"))
            return -1;
#endif
    }
    return 0;
}

/* Device memory; nothing where nothing is needed. */
static int allocate(tw_instance *m, CUdeviceptr *pointer, size_t bytes, const char *what) {
    size_t left = 0, total = 0;
    if (!bytes) return 0;
    CUresult result = cu.MemAlloc(pointer, bytes);
    if (result != CUDA_ERROR_OUT_OF_MEMORY) return check(result, "allocating memory of the GPU");
    cu.MemGetInfo(&left, &total);
    return fail("out of memory on GPU %d (%s): %zu bytes were wanted for %s, %zu of %zu are free, and the model needs %zu in all: free some, or use another GPU",
                m->ordinal, m->name, bytes, what, left, total, (size_t)NEEDED_BYTES);
}

static int allocate_all(tw_instance *m) {
    if (allocate(m, &m->weights, WEIGHT_BYTES, "weights") || allocate(m, &m->arena, ARENA_BYTES, "activations") ||
        allocate(m, &m->scratch, SCRATCH_BYTES, "partial results") || allocate(m, &m->counters, COUNTER_BYTES, "counters"))
        return -1;
    for (int at = 0; at < PORTS; at++) {
        if (allocate(m, &m->own[at], ports[at].bytes, "inputs and outputs")) return -1;
        if (ports[at].bytes && check(cu.MemAllocHost(&m->staging[at], ports[at].bytes), "allocating page-locked memory")) return -1;
    }
    return 0;
}

static int fill_memory(tw_instance *m, const tw_config *config) {
    if (map_weights(config, &m->file)) return -1;
    int failed = WEIGHT_BYTES && check(cu.MemcpyHtoD(m->weights, m->file.data, WEIGHT_BYTES), "copying the weights to the GPU");
    unmap_weights(&m->file);
    if (!failed && COUNTER_BYTES) failed = check(cu.MemsetD8Async(m->counters, 0, COUNTER_BYTES, m->stream), "clearing memory of the GPU");
    return failed ? -1 : 0;
}

/* Where an operand lies, with inputs and outputs where `port` says. */
static CUdeviceptr address(const tw_instance *m, const struct operand *operand, const CUdeviceptr *port) {
    const CUdeviceptr offset = (CUdeviceptr)operand->offset;
    switch (operand->space) {
    case SPACE_INPUT: return port[operand->port] + offset;
    case SPACE_OUTPUT: return port[PORTS_IN + operand->port] + offset;
    case SPACE_WEIGHTS: return m->weights + offset;
    case SPACE_SCRATCH: return m->scratch + offset;
    case SPACE_COUNTERS: return m->counters + offset;
    default: return m->arena + offset;
    }
}

/* How a node launches its kernel. `arguments` has room for pointers to all operands. */
static KernelNodeParams launch_of(tw_instance *m, int node, void **arguments) {
    const struct kernel *kernel = &kernels[nodes[node].kernel];
    for (int at = 0; at < nodes[node].operands; at++) arguments[at] = &m->bound[nodes[node].first_operand + at];
    return (KernelNodeParams){.func = m->functions[nodes[node].kernel],
                              .gridDimX = kernel->grid, .gridDimY = 1, .gridDimZ = 1,
                              .blockDimX = kernel->block, .blockDimY = 1, .blockDimZ = 1,
                              .sharedMemBytes = kernel->shared_bytes,
                              .kernelParams = arguments};
}

/* A kernel may start before the only one that it depends on has ended where its code waits by itself: code for sm_90 and later does. */
static int starts_early(const tw_instance *m, int node) {
    return nodes[node].edges == 1 && kernels[nodes[node].kernel].waits && m->image->capability >= 90 && cu.GraphAddDependencies;
}

static int add_node(tw_instance *m, int node) {
    void *arguments[MOST_OPERANDS + 1];
    CUgraphNode after[MOST_EDGES + 1];
    const struct kernel *kernel = &kernels[nodes[node].kernel];
    const KernelNodeParams launch = launch_of(m, node, arguments);
    const int early = starts_early(m, node), edges_now = early ? 0 : nodes[node].edges;
    for (int at = 0; at < nodes[node].edges; at++) after[at] = m->nodes[edges[nodes[node].first_edge + at]];
    if (check(cu.GraphAddKernelNode(&m->nodes[node], m->graph, after, (size_t)edges_now, &launch), "adding a kernel to the graph")) return -1;
    if (early) {
        const EdgeData edge = {CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC, 0, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC, {0}};
        if (check(cu.GraphAddDependencies(m->graph, after, &m->nodes[node], &edge, 1), "adding an edge to the graph")) return -1;
    }
    if (kernel->cluster > 1) {
        const LaunchAttributeValue value = {.clusterDim = {kernel->cluster, 1, 1}};
        if (check(cu.GraphKernelNodeSetAttribute(m->nodes[node], CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value), "asking for clusters")) return -1;
    }
    return 0;
}

static int make_graph(tw_instance *m) {
    for (int port = 0; port < PORTS; port++) m->given[port] = m->own[port];
    for (int at = 0; at < OPERANDS; at++) m->bound[at] = address(m, &operands[at], m->own);
#ifdef DECISIONS
    if (check(cu.MemAllocHost((void **)&m->answers, sizeof *m->answers), "allocating page-locked memory")) return -1;
    for (int at = 0; at < GRAPHS; at++) {
        if (check(cu.GraphCreate(&m->graphs[at], 0), "making a graph")) return -1;
        m->graph = m->graphs[at];
        for (int node = graphs[at].first_node; node < graphs[at].end; node++)
            if (add_node(m, node)) return -1;
        if (check(cu.GraphInstantiate(&m->executables[at], m->graph, 0), "instantiating a graph")) return -1;
        if (check(cu.GraphUpload(m->executables[at], m->stream), "uploading a graph")) return -1;
    }
    return 0;
#else
    if (check(cu.GraphCreate(&m->graph, 0), "making the graph")) return -1;
    for (int node = 0; node < NODES; node++)
        if (add_node(m, node)) return -1;
    if (check(cu.GraphInstantiate(&m->executable, m->graph, 0), "instantiating the graph")) return -1;
    return check(cu.GraphUpload(m->executable, m->stream), "uploading the graph");
#endif
}

static int prepare(tw_instance *m, const tw_config *config) {
    if (load_modules(m) || find_kernels(m) || allocate_all(m)) return -1;
    if (check(cu.StreamCreate(&m->stream, CU_STREAM_DEFAULT), "making a stream")) return -1;
    if (fill_memory(m, config) || make_graph(m)) return -1;
    return check(cu.StreamSynchronize(m->stream), "preparing the GPU");
}

/* Makes the instance's context current until `leave`. */
static int enter(tw_instance *m) { return check(cu.CtxPushCurrent(m->context), "entering the GPU's context"); }
static void leave(void) {
    CUcontext context;
    cu.CtxPopCurrent(&context);
}

/* ---- Running ------------------------------------------------------------------------------------------------------- */

enum { PORT_ALIGNMENT = 256 }; /* bytes; kernels were made for storages that begin so */

static const tw_tensor *tensor_of(const tw_tensor *in, const tw_tensor *out, int port) { return port < PORTS_IN ? &in[port] : &out[port - PORTS_IN]; }

static int check_tensor(const tw_instance *m, const tw_tensor *t, const struct port *port, const char *kind, int at) {
    if (check_form(t, port, kind, at)) return -1;
    if (t->device_type == TW_CPU) return !t->data && port->bytes ? fail("%s %d has no data", kind, at) : 0;
    if (t->device_type != TW_CUDA) return fail("%s %d is neither in host memory nor on a CUDA GPU (device type %d): copy it to either", kind, at, t->device_type);
    if (t->device_id != m->ordinal) return fail("%s %d is on GPU %d, and the model on GPU %d: copy it there", kind, at, t->device_id, m->ordinal);
    if (!is_row_major(t)) return fail("%s %d is on the GPU and not row-major: make it contiguous", kind, at);
    return 0;
}

static int check_tensors(const tw_instance *m, const tw_tensor *in, const tw_tensor *out) {
    for (int port = 0; port < PORTS; port++)
        if (check_tensor(m, tensor_of(in, out, port), &ports[port], port < PORTS_IN ? "input" : "output", port < PORTS_IN ? port : port - PORTS_IN)) return -1;
    return 0;
}

/* The memory that kernels are to use for a port: the caller's own if that is on the GPU and aligned. */
static CUdeviceptr memory_of(const tw_instance *m, const tw_tensor *t, int port) {
    CUdeviceptr given = (CUdeviceptr)(uintptr_t)t->data;
    return t->device_type == TW_CUDA && given && given % PORT_ALIGNMENT == 0 ? given : m->own[port];
}

static int uses_changed_port(const struct node *node, const char *changed) {
    for (int at = node->first_operand; at < node->first_operand + node->operands; at++) {
        if (operands[at].space == SPACE_INPUT && changed[operands[at].port]) return 1;
        if (operands[at].space == SPACE_OUTPUT && changed[PORTS_IN + operands[at].port]) return 1;
    }
    return 0;
}

#ifdef DECISIONS
static int graph_of(int node) {
    int at = 0;
    while (node >= graphs[at].end) at++;
    return at;
}

/* Aims the kernels at the ports' memory of this run; only nodes that use one that has changed are told. */
#else
/* Aims the kernels at the ports' memory of this run; only nodes that use one that has changed are told. */
#endif
static int aim(tw_instance *m, const tw_tensor *in, const tw_tensor *out) {
    CUdeviceptr wanted[PORTS + 1];
    char changed[PORTS + 1];
    int any = 0;
    for (int port = 0; port < PORTS; port++) {
        wanted[port] = memory_of(m, tensor_of(in, out, port), port);
        any |= changed[port] = wanted[port] != m->given[port];
        if (changed[port]) m->given[port] = 0;
    }
    if (!any) return 0;
    for (int node = 0; node < NODES; node++) {
        void *arguments[MOST_OPERANDS + 1];
        const int first = nodes[node].first_operand;
        if (!uses_changed_port(&nodes[node], changed)) continue;
        for (int at = first; at < first + nodes[node].operands; at++) m->bound[at] = address(m, &operands[at], wanted);
        const KernelNodeParams launch = launch_of(m, node, arguments);
#ifdef DECISIONS
        if (check(cu.GraphExecKernelNodeSetParams(m->executables[graph_of(node)], m->nodes[node], &launch), "aiming a kernel at a tensor")) return -1;
#else
        if (check(cu.GraphExecKernelNodeSetParams(m->executable, m->nodes[node], &launch), "aiming a kernel at a tensor")) return -1;
#endif
    }
    memcpy(m->given, wanted, sizeof wanted);
    return 0;
}

static int send_inputs(tw_instance *m, const tw_tensor *in) {
    for (int port = 0; port < PORTS_IN; port++) {
        const size_t bytes = ports[port].bytes;
        const CUdeviceptr given = (CUdeviceptr)(uintptr_t)in[port].data;
        if (!bytes || !given || given == m->given[port]) continue;
        if (in[port].device_type == TW_CUDA) {
            if (check(cu.MemcpyDtoDAsync(m->own[port], given, bytes, m->stream), "copying an input")) return -1;
            continue;
        }
        if (is_row_major(&in[port])) memcpy(m->staging[port], in[port].data, bytes);
        else copy_strided(&in[port], m->staging[port], 1);
        if (check(cu.MemcpyHtoDAsync(m->own[port], m->staging[port], bytes, m->stream), "copying an input to the GPU")) return -1;
    }
    return 0;
}

static int fetch_outputs(tw_instance *m, const tw_tensor *out) {
    for (int at = 0; at < PORTS_OUT; at++) {
        const int port = PORTS_IN + at;
        const size_t bytes = ports[port].bytes;
        const CUdeviceptr given = (CUdeviceptr)(uintptr_t)out[at].data;
        if (!bytes || !given || given == m->given[port]) continue;
        if (check(out[at].device_type == TW_CUDA ? cu.MemcpyDtoDAsync(given, m->own[port], bytes, m->stream)
                                                 : cu.MemcpyDtoHAsync(m->staging[port], m->own[port], bytes, m->stream), "copying an output"))
            return -1;
    }
    return 0;
}

static void unstage(tw_instance *m, tw_tensor *out) {
    for (int at = 0; at < PORTS_OUT; at++) {
        if (out[at].device_type != TW_CPU || !ports[PORTS_IN + at].bytes) continue;
        if (is_row_major(&out[at])) memcpy(out[at].data, m->staging[PORTS_IN + at], ports[PORTS_IN + at].bytes);
        else copy_strided(&out[at], m->staging[PORTS_IN + at], 0);
    }
}

#ifdef PERSISTENT
/* One inference of resident blocks, which time the calls: each from its first task to its last, whatever runs beside it. */
static int launch_timed(tw_instance *m) {
    if (check(cu.MemsetD8Async(m->counters + TIMED_AT, 1, 1, m->stream), "asking for times")) return -1;
    int failed = check(cu.GraphLaunch(m->executable, m->stream), "launching the graph");
    return check(cu.MemsetD8Async(m->counters + TIMED_AT, 0, 1, m->stream), "asking for no more times") || failed ? -1 : 0;
}

static int read_times(tw_instance *m, double *seconds) {
    uint64_t times[2 * CALLS + 1];
    const int timed = nodes[0].calls;
    if (timed && check(cu.MemcpyDtoHAsync(times, m->counters + TIMES_AT, 2 * sizeof *times * (size_t)timed, m->stream), "reading times")) return -1;
    if (check(cu.StreamSynchronize(m->stream), "reading times")) return -1;
    for (int call = 0; call < CALLS; call++) seconds[call] = 0;
    for (int at = 0; at < timed; at++) seconds[calls[nodes[0].first_call + at]] = 1e-9 * (double)(times[2 * at + 1] - times[2 * at]);
    return 0;
}
#else /* PERSISTENT */
#ifdef DECISIONS
/* A graph's nodes, from `first` to before `end`, one after another in the stream, with an event between any two. */
static int launch_apart(tw_instance *m, int first, int end) {
    if (check(cu.EventRecord(m->events[first], m->stream), "recording an event")) return -1;
    for (int node = first; node < end; node++) {
#else
/* All nodes one after another in the stream, with an event between any two. */
static int launch_apart(tw_instance *m) {
    if (check(cu.EventRecord(m->events[0], m->stream), "recording an event")) return -1;
    for (int node = 0; node < NODES; node++) {
#endif
        void *arguments[MOST_OPERANDS + 1];
        const KernelNodeParams launch = launch_of(m, node, arguments);
        LaunchAttribute cluster = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = {kernels[nodes[node].kernel].cluster, 1, 1}};
        const LaunchConfig config = {launch.gridDimX, 1, 1, launch.blockDimX, 1, 1, launch.sharedMemBytes, m->stream, &cluster, cluster.value.clusterDim.x > 1};
        if (check(cu.LaunchKernelEx(&config, launch.func, arguments, NULL), "launching a kernel")) return -1;
        if (check(cu.EventRecord(m->events[node + 1], m->stream), "recording an event")) return -1;
    }
    return 0;
}

static int make_events(tw_instance *m) {
    for (int at = 0; at <= NODES; at++)
        if (!m->events[at] && check(cu.EventCreate(&m->events[at], 0), "making an event")) return -1;
    return 0;
}

#ifdef DECISIONS
/* Calls that share a launch are given equal parts of its time, each beside what it had. */
static int read_events(tw_instance *m, int first, int end, double *seconds) {
    for (int node = first; node < end; node++) {
#else
/* Calls that share a launch are given equal parts of its time. */
static int read_events(tw_instance *m, double *seconds) {
    for (int call = 0; call < CALLS; call++) seconds[call] = 0;
    for (int node = 0; node < NODES; node++) {
#endif
        float milliseconds = 0;
        if (check(cu.EventElapsedTime(&milliseconds, m->events[node], m->events[node + 1]), "reading an event")) return -1;
        for (int at = 0; at < nodes[node].calls; at++) seconds[calls[nodes[node].first_call + at]] += 1e-3 * (double)milliseconds / nodes[node].calls;
    }
    return 0;
}
#endif /* PERSISTENT */

#ifdef DECISIONS
#include "tw_cuda_decisions.h"

/* One inference: as graphs, or, where `seconds` are asked for, kernel by kernel. */
#else
/* One inference: as one graph, or, where `seconds` are asked for, kernel by kernel. */
#endif
static int run_in_context(tw_instance *m, const tw_tensor *in, tw_tensor *out, double *seconds) {
#ifdef PERSISTENT
    int failed = aim(m, in, out) || send_inputs(m, in) ||
                 (seconds ? launch_timed(m) : check(cu.GraphLaunch(m->executable, m->stream), "launching the graph")) || fetch_outputs(m, out);
    CUresult ended = cu.StreamSynchronize(m->stream); /* also after a failure: nothing may use the caller's memory later */
    if (!failed) failed = check(ended, "running the model") || (seconds && read_times(m, seconds));
#else /* PERSISTENT */
    int failed = (seconds && make_events(m)) || aim(m, in, out) || send_inputs(m, in) ||
#ifdef DECISIONS
                 run_model(m, seconds) || fetch_outputs(m, out);
#else
                 (seconds ? launch_apart(m) : check(cu.GraphLaunch(m->executable, m->stream), "launching the graph")) || fetch_outputs(m, out);
#endif
    CUresult ended = cu.StreamSynchronize(m->stream); /* also after a failure: nothing may use the caller's memory later */
#ifdef DECISIONS
    if (!failed) failed = check(ended, "running the model");
#else
    if (!failed) failed = check(ended, "running the model") || (seconds && read_events(m, seconds));
#endif
#endif /* PERSISTENT */
    if (failed) memset(m->given, 0, sizeof m->given);
    return failed ? -1 : 0;
}

static int run(tw_instance *m, const tw_tensor *in, tw_tensor *out, double *seconds) {
    if (check_tensors(m, in, out) || enter(m)) return -1;
    int failed = run_in_context(m, in, out, seconds);
    leave();
    if (!failed) unstage(m, out);
    return failed;
}

/* ---- The C interface ----------------------------------------------------------------------------------------------- */

TW_EXPORT int tw_abi_version(void) { return TW_ABI_VERSION; }
TW_EXPORT const char *tw_describe(void) { return description; }
TW_EXPORT const char *tw_last_error(void) { return last_error; }
TW_EXPORT int tw_run(tw_instance *m, const tw_tensor *in, tw_tensor *out) { return run(m, in, out, NULL); }
TW_EXPORT int tw_profile(tw_instance *m, const tw_tensor *in, tw_tensor *out, double *seconds) { return run(m, in, out, seconds); }

TW_EXPORT int tw_trace(tw_instance *m, const tw_tensor *in, tw_tensor *out, double *begins, double *ends) {
    (void)m, (void)in, (void)out, (void)begins, (void)ends;
    return fail("a GPU does not say when its kernels run side by side: use tw_profile, which runs them one at a time");
}

TW_EXPORT int tw_plan(const tw_instance *m, double *handover_s) {
    (void)m;
    *handover_s = 0;
    return 1;
}

static void give_back(tw_instance *m) {
    for (int at = 0; at <= NODES; at++)
        if (m->events[at]) cu.EventDestroy(m->events[at]);
#ifdef DECISIONS
    for (int at = 0; at < GRAPHS; at++) {
        if (m->executables[at]) cu.GraphExecDestroy(m->executables[at]);
        if (m->graphs[at]) cu.GraphDestroy(m->graphs[at]);
    }
    if (m->answers) cu.MemFreeHost(m->answers);
#else
    if (m->executable) cu.GraphExecDestroy(m->executable);
    if (m->graph) cu.GraphDestroy(m->graph);
#endif
    if (m->stream) cu.StreamDestroy(m->stream);
    for (int port = 0; port < PORTS; port++) {
        if (m->staging[port]) cu.MemFreeHost(m->staging[port]);
        if (m->own[port]) cu.MemFree(m->own[port]);
    }
    const CUdeviceptr blocks[] = {m->weights, m->arena, m->scratch, m->counters};
    for (int at = 0; at < 4; at++)
        if (blocks[at]) cu.MemFree(blocks[at]);
    for (int unit = 0; unit < UNITS; unit++)
        if (m->modules[unit]) cu.ModuleUnload(m->modules[unit]);
}

TW_EXPORT void tw_destroy(tw_instance *m) {
    if (!m) return;
    if (m->context) {
        if (!cu.CtxPushCurrent(m->context)) {
            give_back(m);
            leave();
        }
        cu.DevicePrimaryCtxRelease(m->device);
    }
    free(m);
}

static int create(tw_instance *m, const tw_config *config) {
    if (find_device(m, config->device) || choose_image(m)) return -1;
    if (check(cu.DevicePrimaryCtxRetain(&m->context, m->device), "opening the GPU's context")) {
        m->context = NULL;
        return -1;
    }
    if (enter(m)) return -1;
    int failed = prepare(m, config);
    leave();
    return failed;
}

TW_EXPORT int tw_create(const tw_config *config, tw_instance **instance) {
    *instance = NULL;
    if (open_driver()) return -1;
    tw_instance *m = calloc(1, sizeof *m);
    if (!m) return fail("out of memory");
    if (create(m, config)) {
        tw_destroy(m);
        return -1;
    }
    *instance = m;
    return 0;
}

/* libcuda.so.1 as far as a generated host and these tests use it: the driver's rules are checked, calls are recorded, failures
 * come on request, and kernels are the functions of a shared object registered for a module's bytes. */
#include "driver.h"

#include <algorithm>
#include <cstdlib>
#include <dlfcn.h>

using namespace twd;
using namespace twd::driver;

static const std::map<int, std::pair<const char *, const char *>> ERRORS = {
    {0, {"CUDA_SUCCESS", "no error"}},
    {1, {"CUDA_ERROR_INVALID_VALUE", "invalid argument"}},
    {2, {"CUDA_ERROR_OUT_OF_MEMORY", "out of memory"}},
    {3, {"CUDA_ERROR_NOT_INITIALIZED", "initialization error"}},
    {100, {"CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"}},
    {101, {"CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"}},
    {200, {"CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"}},
    {201, {"CUDA_ERROR_INVALID_CONTEXT", "invalid device context"}},
    {209, {"CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"}},
    {222, {"CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain."}},
    {400, {"CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"}},
    {500, {"CUDA_ERROR_NOT_FOUND", "named symbol not found"}},
    {600, {"CUDA_ERROR_NOT_READY", "device not ready"}},
    {719, {"CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"}},
    {801, {"CUDA_ERROR_NOT_SUPPORTED", "operation not supported"}},
    {999, {"CUDA_ERROR_UNKNOWN", "unknown error"}},
};

#pragma GCC visibility push(default)
extern "C" {

/* ---- For the tests ---------------------------------------------------------------------------------------------------- */

int twd_configure(const char *text) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    return configure(text);
}
const char *twd_report() { return report.c_str(); }
const char *twd_state() {
    static std::string text;
    return (text = state()).c_str();
}
const char *twd_calls() {
    static std::string text;
    text.clear();
    for (auto &call : calls) text += call + "\n";
    return text.c_str();
}
/* A new device: nothing is allocated, loaded or current. */
void twd_reset() {
    std::lock_guard<std::recursive_mutex> guard(lock);
    engine.abandon();
    for (auto &[p, size] : std::map<uint64_t, size_t>(sizes)) free_counted(p);
    forget_freed();
    for (auto &[p, size] : pinned) free((void *)p);
    for (Stream *s : streams) delete s;
    for (Event *e : events) delete e;
    for (Graph *g : graphs) delete g;
    for (Executable *e : executables) delete e;
    functions.clear();
    for (Module *m : modules) dlclose(m->library), delete m;
    pinned.clear(), streams.clear(), events.clear(), graphs.clear(), executables.clear(), modules.clear(), images.clear();
    default_stream.queue.clear();
    calls.clear(), call_counts.clear(), injected.clear(), contexts.clear(), report.clear();
    initialised = false, retained = 0, sticky = 0;
    settings = Settings(), modes = Modes();
}

/* ---- Device and context ----------------------------------------------------------------------------------------------- */

int cuInit(unsigned flags) {
    return api("cuInit", false, [&] {
        demand(flags == 0, INVALID_VALUE);
        demand(settings.devices > 0, NO_DEVICE);
        initialised = true;
    });
}
int cuDriverGetVersion(int *version) {
    return api("cuDriverGetVersion", false, [&] { *version = settings.driver; });
}
int cuDeviceGetCount(int *count) {
    return api("cuDeviceGetCount", false, [&] { *count = settings.devices; });
}
int cuDeviceGet(int *device, int ordinal) {
    return api("cuDeviceGet", false, [&] {
        demand(ordinal >= 0 && ordinal < settings.devices, INVALID_DEVICE);
        *device = ordinal;
    });
}
int cuDeviceGetName(char *name, int length, int) {
    return api("cuDeviceGetName", false, [&] { snprintf(name, (size_t)length, "CUDA double sm_%d", settings.capability); });
}
int cuDeviceTotalMem_v2(size_t *bytes, int) {
    return api("cuDeviceTotalMem_v2", false, [&] { *bytes = settings.memory; });
}
int cuDeviceGetAttribute(int *value, int attribute, int) {
    return api("cuDeviceGetAttribute", false, [&] {
        const std::map<int, int> values = {
            {1, 1024}, {2, 1024}, {3, 1024}, {4, 64}, {5, 0x7fffffff}, {6, 65535}, {7, 65535}, {8, 48 << 10}, {10, 32}, {12, 65536}, {13, 1830000},
            {16, settings.multiprocessors}, {38, 50 << 20}, {39, 2048}, {75, settings.capability / 10}, {76, settings.capability % 10}, {81, 228 << 10},
            {82, 65536}, {97, (int)MOST_SHARED}, {106, 32}, {120, settings.capability >= 90}};
        auto found = values.find(attribute);
        demand(found != values.end(), INVALID_VALUE);
        *value = found->second;
    });
}
int cuGetErrorName(int result, const char **text) {
    auto found = ERRORS.find(result);
    *text = found == ERRORS.end() ? nullptr : found->second.first;
    return found == ERRORS.end() ? INVALID_VALUE : SUCCESS;
}
int cuGetErrorString(int result, const char **text) {
    auto found = ERRORS.find(result);
    *text = found == ERRORS.end() ? nullptr : found->second.second;
    return found == ERRORS.end() ? INVALID_VALUE : SUCCESS;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
    return api("cuDevicePrimaryCtxRetain", false, [&] {
        demand(device >= 0 && device < settings.devices, INVALID_DEVICE);
        retained++;
        *context = &primary_context;
    });
}
int cuDevicePrimaryCtxRelease_v2(int) {
    return api("cuDevicePrimaryCtxRelease_v2", false, [&] {
        demand(retained > 0, INVALID_CONTEXT);
        retained--;
    });
}
int cuCtxPushCurrent_v2(void *context) {
    return api("cuCtxPushCurrent_v2", false, [&] {
        demand(context == &primary_context && retained, INVALID_CONTEXT);
        contexts.push_back(context);
    });
}
int cuCtxPopCurrent_v2(void **context) {
    return api("cuCtxPopCurrent_v2", false, [&] {
        demand(!contexts.empty(), INVALID_CONTEXT);
        if (context) *context = contexts.back();
        contexts.pop_back();
    });
}
int cuCtxGetCurrent(void **context) {
    return api("cuCtxGetCurrent", false, [&] { *context = contexts.empty() ? nullptr : contexts.back(); });
}
int cuCtxSetCurrent(void *context) {
    return api("cuCtxSetCurrent", false, [&] {
        demand(!context || (context == &primary_context && retained), INVALID_CONTEXT);
        if (!contexts.empty()) contexts.pop_back();
        if (context) contexts.push_back(context);
    });
}
int cuCtxSynchronize() {
    return api("cuCtxSynchronize", true, run_everything);
}

/* ---- Modules ---------------------------------------------------------------------------------------------------------- */

int cuModuleLoadData(void **module, const void *image) {
    return api("cuModuleLoadData", true, [&] { *module = load(image); });
}
int cuModuleLoadDataEx(void **module, const void *image, unsigned count, const int *options, void **values) {
    return api("cuModuleLoadDataEx", true, [&] {
        char *log = nullptr;
        void **room = nullptr;
        for (unsigned i = 0; i < count; i++) {
            demand(options[i] >= 3 && options[i] <= 6, NOT_SUPPORTED); /* logs and their sizes */
            if (options[i] == 5) log = static_cast<char *>(values[i]);
            if (options[i] == 6) room = &values[i];
        }
        try {
            *module = load(image);
            if (room) *room = nullptr; /* as the driver does: how much of the log is used takes the place of its size */
        } catch (const Refused &refused) {
            if (log && room && *room) snprintf(log, (size_t)*room, "the double cannot load this image (%d)", refused.result);
            throw;
        }
    });
}
int cuModuleUnload(void *handle) {
    return api("cuModuleUnload", true, [&] {
        Module *m = known(modules, handle);
        for (auto i = functions.begin(); i != functions.end();) i = i->first.first == m ? functions.erase(i) : std::next(i);
        dlclose(m->library);
        modules.erase(m);
        delete m;
    });
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
    return api("cuModuleGetFunction", true, [&] { *function = function_of(known(modules, module), name); });
}
int cuFuncGetAttribute(int *value, int attribute, void *function) {
    return api("cuFuncGetAttribute", true, [&] {
        const Function &f = *known_function(function);
        const std::map<int, int> values = {{0, (int)f.kernel.max_threads}, {1, (int)static_shared(f)}, {2, 0}, {3, 0}, {4, 64}, {8, (int)f.most_dynamic}};
        auto found = values.find(attribute);
        demand(found != values.end(), INVALID_VALUE);
        *value = found->second;
    });
}
int cuFuncSetAttribute(void *function, int attribute, int value) {
    return api("cuFuncSetAttribute", true, [&] {
        Function &f = *known_function(function);
        demand(attribute == 8 || attribute == 9 || attribute == 14, INVALID_VALUE);
        if (attribute != 8) return; /* the carve-out is a hint; clusters of more than 8 blocks are refused anyway */
        demand(value >= 0 && (size_t)value + static_shared(f) <= MOST_SHARED, INVALID_VALUE);
        f.most_dynamic = (size_t)value;
    });
}

/* ---- Memory ----------------------------------------------------------------------------------------------------------- */

int cuMemAlloc_v2(uint64_t *p, size_t bytes) {
    return api("cuMemAlloc_v2", true, [&] { *p = allocate_counted(bytes); });
}
int cuMemFree_v2(uint64_t p) {
    return api("cuMemFree_v2", true, [&] {
        run_everything(); /* it waits for what uses the memory */
        free_counted(p);
    });
}
int cuMemGetInfo_v2(size_t *left, size_t *total) {
    return api("cuMemGetInfo_v2", true, [&] { *left = settings.memory - memory_used, *total = settings.memory; });
}
int cuMemAllocHost_v2(void **p, size_t bytes) {
    return api("cuMemAllocHost_v2", true, [&] {
        *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
        demand(*p, OUT_OF_MEMORY);
        memset(*p, 0xff, bytes);
        pinned[static_cast<char *>(*p)] = bytes;
    });
}
int cuMemFreeHost(void *p) {
    return api("cuMemFreeHost", true, [&] {
        run_everything();
        demand(pinned.erase(static_cast<char *>(p)), INVALID_VALUE);
        free(p);
    });
}
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) {
    return api("cuMemcpyHtoD_v2", true, [&] {
        check_device(to, bytes);
        run_until(&default_stream, nullptr);
        new_operation();
        copy_between(to, true, (uint64_t)from, false, bytes, 0);
    });
}
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) {
    return api("cuMemcpyDtoH_v2", true, [&] {
        check_device(from, bytes);
        run_until(&default_stream, nullptr);
        new_operation();
        copy_between((uint64_t)to, false, from, true, bytes, 0);
    });
}
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream) {
    return api("cuMemcpyHtoDAsync_v2", true, [&] {
        check_device(to, bytes);
        if (is_pinned(from)) return enqueue(stream_of(stream), [=] { copy_between(to, true, (uint64_t)from, false, bytes, 0); });
        auto staged = std::make_shared<std::vector<char>>((const char *)from, (const char *)from + bytes); /* pageable memory may be reused */
        enqueue(stream_of(stream), [=] { copy_between(to, true, (uint64_t)staged->data(), false, bytes, 0); });
    });
}
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream) {
    return api("cuMemcpyDtoHAsync_v2", true, [&] {
        check_device(from, bytes);
        if (is_pinned(to)) memset(to, 0xff, bytes); /* whatever is read before the stream is waited for */
        enqueue(stream_of(stream), [=] { copy_between((uint64_t)to, false, from, true, bytes, 0); });
        if (!is_pinned(to)) run_until(stream_of(stream), nullptr); /* a copy to pageable memory waits */
    });
}
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *stream) {
    return api("cuMemcpyDtoDAsync_v2", true, [&] {
        check_device(to, bytes), check_device(from, bytes);
        enqueue(stream_of(stream), [=] { copy_between(to, true, from, true, bytes, 0); });
    });
}
int cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, void *stream) {
    return api("cuMemsetD8Async", true, [&] {
        check_device(to, bytes);
        enqueue(stream_of(stream), [=] { check_node(to, bytes, Access::Write, 0), memset((void *)to, value, bytes); });
    });
}

/* ---- Streams and events ----------------------------------------------------------------------------------------------- */

int cuStreamCreate(void **stream, unsigned flags) {
    return api("cuStreamCreate", true, [&] {
        demand(flags <= 1, INVALID_VALUE);
        auto *s = new Stream;
        streams.insert(s);
        *stream = s;
    });
}
int cuStreamDestroy_v2(void *stream) {
    return api("cuStreamDestroy_v2", true, [&] {
        Stream *s = known(streams, stream);
        run_until(s, nullptr);
        streams.erase(s);
        delete s;
    });
}
int cuStreamSynchronize(void *stream) {
    return api("cuStreamSynchronize", true, [&] { run_until(stream_of(stream), nullptr); });
}
int cuStreamQuery(void *stream) {
    return api("cuStreamQuery", true, [&] {
        Stream *s = stream_of(stream);
        if (!s->queue.empty()) run_one(s);
        demand(s->queue.empty(), NOT_READY);
    });
}
int cuStreamWaitEvent(void *stream, void *event, unsigned) {
    return api("cuStreamWaitEvent", true, [&] {
        Event *e = known(events, event);
        if (e->recorded) enqueue(stream_of(stream), [] {}, e);
    });
}
int cuEventCreate(void **event, unsigned) {
    return api("cuEventCreate", true, [&] {
        auto *e = new Event;
        events.insert(e);
        *event = e;
    });
}
int cuEventDestroy_v2(void *event) {
    return api("cuEventDestroy_v2", true, [&] {
        Event *e = known(events, event);
        run_everything();
        events.erase(e);
        delete e;
    });
}
int cuEventRecord(void *event, void *stream) {
    return api("cuEventRecord", true, [&] {
        Event *e = known(events, event);
        e->recorded = true, e->done = false;
        enqueue(stream_of(stream), [=] { e->done = true, e->time_ms = device_clock_ms; });
    });
}
int cuEventSynchronize(void *event) {
    return api("cuEventSynchronize", true, [&] {
        Event *e = known(events, event);
        run_until(&default_stream, e);
        for (Stream *s : std::set<Stream *>(streams)) run_until(s, e);
    });
}
int cuEventQuery(void *event) {
    return api("cuEventQuery", true, [&] { demand(known(events, event)->done, NOT_READY); });
}
static int elapsed(float *ms, void *from, void *to) {
    return api("cuEventElapsedTime", true, [&] {
        Event *a = known(events, from), *b = known(events, to);
        demand(a->recorded && b->recorded, INVALID_HANDLE);
        demand(a->done && b->done, NOT_READY);
        *ms = (float)(b->time_ms - a->time_ms);
    });
}
int cuEventElapsedTime(float *ms, void *from, void *to) { return elapsed(ms, from, to); }
int cuEventElapsedTime_v2(float *ms, void *from, void *to) { return elapsed(ms, from, to); }

/* ---- Launches --------------------------------------------------------------------------------------------------------- */

int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream,
                   void **parameters, void **extra) {
    return api("cuLaunchKernel", true, [&] {
        demand(!extra, NOT_SUPPORTED);
        Function *f = known_function(function);
        auto l = std::make_shared<Launch>(launch_of(f, {gx, gy, gz}, {bx, by, bz}, {1, 1, 1}, shared, parameters));
        remark("%s", f->name.c_str());
        enqueue(stream_of(stream), [=] { run_alone(*l); });
    });
}
struct LaunchConfig { unsigned gx, gy, gz, bx, by, bz, shared; void *stream; const void *attributes; unsigned count; }; /* CUlaunchConfig */
int cuLaunchKernelEx(const LaunchConfig *c, void *function, void **parameters, void **extra) {
    return api("cuLaunchKernelEx", true, [&] {
        demand(!extra, NOT_SUPPORTED);
        Function *f = known_function(function);
        uint3 cluster{1, 1, 1};
        for (unsigned i = 0; i < c->count; i++) { /* CUlaunchAttribute: id, padding to 8, 64 bytes of value */
            const char *a = static_cast<const char *>(c->attributes) + i * 72;
            if (attribute_value<int>(a) == 4) cluster = attribute_value<uint3>(a + 8);
        } /* programmatic serialisation (6) is taken note of in graphs alone: in a stream no kernel starts early */
        auto l = std::make_shared<Launch>(launch_of(f, {c->gx, c->gy, c->gz}, {c->bx, c->by, c->bz}, cluster, c->shared, parameters));
        remark("%s", f->name.c_str());
        enqueue(stream_of(c->stream), [=] { run_alone(*l); });
    });
}

/* ---- Graphs ----------------------------------------------------------------------------------------------------------- */

int cuGraphCreate(void **graph, unsigned) {
    return api("cuGraphCreate", true, [&] {
        auto *g = new Graph;
        graphs.insert(g);
        *graph = g;
    });
}
int cuGraphDestroy(void *graph) {
    return api("cuGraphDestroy", true, [&] {
        Graph *g = known(graphs, graph);
        graphs.erase(g);
        delete g;
    });
}
struct KernelNodeParameters { void *function; unsigned gx, gy, gz, bx, by, bz, shared; void **parameters, **extra; void *kernel, *context; }; /* _v2 */
int cuGraphAddKernelNode_v2(void **node, void *graph, void *const *after, size_t count, const KernelNodeParameters *p) {
    return api("cuGraphAddKernelNode_v2", true, [&] {
        Graph *g = known(graphs, graph);
        demand(!p->extra, NOT_SUPPORTED);
        Function *f = known_function(p->function);
        Launch l = launch_of(f, {p->gx, p->gy, p->gz}, {p->bx, p->by, p->bz}, {1, 1, 1}, p->shared, p->parameters);
        Node *n = add_node(g, after, count);
        n->kind = Node::LAUNCH, n->function = f, n->launch = std::move(l);
        remark("%s after %zu", f->name.c_str(), count);
        *node = n;
    });
}
int cuGraphKernelNodeSetAttribute(void *node, int attribute, const void *value) {
    return api("cuGraphKernelNodeSetAttribute", true, [&] {
        auto *n = static_cast<Node *>(node);
        demand(n && n->kind == Node::LAUNCH && (attribute == 4 || attribute == 8), INVALID_VALUE); /* cluster dimension, priority */
        if (attribute != 4) return;
        const uint3 c = attribute_value<uint3>(value), grid = n->launch.grid;
        demand(settings.capability >= 90, NOT_SUPPORTED);
        demand(c.x && c.y && c.z && c.x * c.y * c.z <= 8 && grid.x % c.x == 0 && grid.y % c.y == 0 && grid.z % c.z == 0, INVALID_VALUE);
        n->launch.cluster = c;
    });
}
int cuGraphAddMemcpyNode(void **node, void *graph, void *const *after, size_t count, const Copy3D *copy, void *) {
    return api("cuGraphAddMemcpyNode", true, [&] {
        Graph *g = known(graphs, graph);
        const Copy3D c = *copy;
        demand((c.from.type == 1 || c.from.type == 2) && (c.to.type == 1 || c.to.type == 2), NOT_SUPPORTED); /* host, device */
        demand(c.height == 1 && c.depth == 1, NOT_SUPPORTED);
        const bool from_device = c.from.type == 2, to_device = c.to.type == 2;
        const uint64_t from = (from_device ? c.from.device : (uint64_t)c.from.host) + c.from.x, to = (to_device ? c.to.device : (uint64_t)c.to.host) + c.to.x;
        if (from_device) check_device(from, c.width);
        if (to_device) check_device(to, c.width);
        Node *n = add_node(g, after, count);
        n->kind = Node::COPY;
        n->act = [=](uint32_t index) { copy_between(to, to_device, from, from_device, c.width, index); };
        *node = n;
    });
}
struct MemsetNodeParameters { uint64_t to; size_t pitch; unsigned value, element_bytes; size_t width, height; };
int cuGraphAddMemsetNode(void **node, void *graph, void *const *after, size_t count, const MemsetNodeParameters *p, void *) {
    return api("cuGraphAddMemsetNode", true, [&] {
        Graph *g = known(graphs, graph);
        const MemsetNodeParameters m = *p;
        demand(m.height == 1 && (m.element_bytes == 1 || m.element_bytes == 2 || m.element_bytes == 4), INVALID_VALUE);
        const size_t bytes = m.width * m.element_bytes;
        check_device(m.to, bytes);
        Node *n = add_node(g, after, count);
        n->kind = Node::FILL;
        n->act = [=](uint32_t index) {
            check_node(m.to, bytes, Access::Write, index);
            for (size_t i = 0; i < bytes; i += m.element_bytes) memcpy((char *)m.to + i, &m.value, m.element_bytes);
        };
        *node = n;
    });
}
int cuGraphAddEmptyNode(void **node, void *graph, void *const *after, size_t count) {
    return api("cuGraphAddEmptyNode", true, [&] { *node = add_node(known(graphs, graph), after, count); });
}
struct EdgeData { unsigned char from_port, to_port, type, reserved[5]; };
int cuGraphAddDependencies_v2(void *graph, void *const *from, void *const *to, const EdgeData *edges, size_t count) {
    return api("cuGraphAddDependencies_v2", true, [&] {
        known(graphs, graph);
        for (size_t i = 0; i < count; i++) {
            auto *a = static_cast<Node *>(from[i]), *b = static_cast<Node *>(to[i]);
            const bool programmatic = edges && edges[i].type == 1;
            if (programmatic) {
                demand(settings.capability >= 90, NOT_SUPPORTED);
                demand(a->kind == Node::LAUNCH && b->kind == Node::LAUNCH && edges[i].from_port == 1, INVALID_VALUE);
            }
            demand(std::none_of(b->after.begin(), b->after.end(), [=](auto &edge) { return edge.first == a; }), INVALID_VALUE);
            b->after.push_back({a, programmatic});
        }
    });
}
int cuGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long) {
    return api("cuGraphInstantiateWithFlags", true, [&] {
        Graph *g = known(graphs, graph);
        /* a copy, in an order that the edges allow: the graph itself may be destroyed */
        std::vector<Node *> order;
        std::set<Node *> placed;
        while (order.size() < g->nodes.size()) {
            size_t before = order.size();
            for (auto &n : g->nodes)
                if (!placed.count(n.get()) && std::all_of(n->after.begin(), n->after.end(), [&](auto &edge) { return placed.count(edge.first) > 0; }))
                    order.push_back(n.get()), placed.insert(n.get());
            demand(order.size() > before, INVALID_VALUE); /* a cycle */
        }
        auto e = std::make_unique<Executable>();
        auto &copies = e->copies;
        for (Node *n : order) {
            auto copy = std::make_unique<Node>();
            copy->kind = n->kind, copy->function = n->function, copy->launch = copy_of(n->launch), copy->act = n->act;
            copy->index = (unsigned)e->nodes.size();
            for (auto &[earlier, programmatic] : n->after) copy->after.push_back({copies[earlier], programmatic});
            copies[n] = copy.get();
            e->nodes.push_back(std::move(copy));
        }
        *executable = *executables.insert(e.release()).first;
    });
}
int cuGraphExecKernelNodeSetParams_v2(void *executable, void *node, const KernelNodeParameters *p) {
    return api("cuGraphExecKernelNodeSetParams_v2", true, [&] {
        Executable *e = known(executables, executable);
        auto found = e->copies.find(node);
        demand(found != e->copies.end() && found->second->kind == Node::LAUNCH && !p->extra, INVALID_VALUE);
        Node *n = found->second;
        demand(known_function(p->function) == n->function, INVALID_VALUE); /* the function may change on a GPU, under rules that nobody here needs */
        const uint3 cluster = n->launch.cluster;
        run_everything(); /* a launch under way keeps the values that it was launched with */
        n->launch = launch_of(n->function, {p->gx, p->gy, p->gz}, {p->bx, p->by, p->bz}, cluster, p->shared, p->parameters);
        remark("%s", n->function->name.c_str());
    });
}
int cuGraphExecDestroy(void *executable) {
    return api("cuGraphExecDestroy", true, [&] {
        Executable *e = known(executables, executable);
        run_everything();
        executables.erase(e);
        delete e;
    });
}
int cuGraphUpload(void *executable, void *stream) {
    return api("cuGraphUpload", true, [&] { known(executables, executable), stream_of(stream); });
}
int cuGraphLaunch(void *executable, void *stream) {
    return api("cuGraphLaunch", true, [&] {
        Executable *e = known(executables, executable);
        remark("%zu nodes", e->nodes.size());
        enqueue(stream_of(stream), [=] { run_graph(*e); });
    });
}

/* ---- Tensor maps ------------------------------------------------------------------------------------------------------ */

int cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *address, const uint64_t *size, const uint64_t *stride, const unsigned *box,
                           const unsigned *element_stride, int interleave, int swizzle, int, int fill) {
    return api("cuTensorMapEncodeTiled", false, [&] {
        static const uint32_t bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4}; /* CUtensorMapDataType: u8 u16 u32 s32 u64 s64 f16 f32 f64 bf16 f32ftz tf32 tf32ftz */
        demand(settings.capability >= 90, NOT_SUPPORTED);
        demand(type >= 0 && type < 13 && rank >= 1 && rank <= 5 && interleave == 0 && swizzle >= 0 && swizzle <= 3 && fill == 0, INVALID_VALUE);
        demand((uintptr_t)map % 64 == 0 && (uintptr_t)address % 16 == 0, INVALID_VALUE);
        TensorMap m{};
        m.magic = TensorMap::MAGIC, m.rank = rank, m.element_bytes = bytes[type], m.swizzle = (uint32_t)swizzle, m.address = (uint64_t)address;
        for (unsigned i = 0; i < rank; i++) {
            demand(size[i] && size[i] <= 1ull << 32 && box[i] && box[i] <= 256 && element_stride[i] == 1, INVALID_VALUE);
            m.size[i] = (uint32_t)size[i], m.box[i] = box[i];
            if (i == 0) continue;
            demand(stride[i - 1] % 16 == 0 && stride[i - 1] < 1ull << 40, INVALID_VALUE);
            m.stride[i - 1] = stride[i - 1];
        }
        const uint32_t row = box[0] * m.element_bytes;
        demand(row % 16 == 0 && (!swizzle || row <= 16u << swizzle), INVALID_VALUE);
        memset(map, 0, 128);
        memcpy(map, &m, sizeof m);
    });
}

int cuGetProcAddress_v2(const char *name, void **function, int, uint64_t, int *status) {
    Dl_info own;
    dladdr((void *)cuInit, &own);
    void *library = dlopen(own.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    *function = dlsym(library, (std::string(name) + "_v2").c_str());
    if (!*function) *function = dlsym(library, name);
    dlclose(library);
    if (status) *status = *function ? 0 : 1;
    return *function ? SUCCESS : NOT_FOUND;
}

/* NVRTC asks a loaded driver for tables of its own, and does not ask whether there is such a function. */
int cuGetExportTable(const void **table, const void *) {
    *table = nullptr;
    return NOT_SUPPORTED;
}

} /* extern "C" */
#pragma GCC visibility pop

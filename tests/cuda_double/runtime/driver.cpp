/* libcuda.so.1 as far as a generated host and these tests use it: the driver's rules are checked, calls are recorded, failures
 * come on request, and kernels are the functions of a shared object registered for a module's bytes.
 *
 * Streams keep their work in a queue until something waits for it, except where copies land early; the nodes of a launched graph
 * run in the order of the mode, any that the edges allow. Numbers and structures as in cuda.h of CUDA 13. */
#include "engine.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fstream>
#include <link.h>
#include <mutex>
#include <set>
#include <sstream>

namespace twd {
namespace {

enum Result {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201, NO_BINARY_FOR_GPU = 209, UNSUPPORTED_PTX_VERSION = 222, INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600,
    LAUNCH_FAILED = 719, NOT_SUPPORTED = 801
};
const std::map<int, std::pair<const char *, const char *>> ERRORS = {
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

struct Settings {
    int capability = 90, multiprocessors = 4, driver = 13000, devices = 1;
    size_t memory = (size_t)8 << 30;
} settings;

struct Image {
    std::vector<unsigned char> bytes;
    std::string library, architecture; /* "sm_90a" for a cubin, "compute_80" for PTX */
};
struct Function {
    Module *module;
    Kernel kernel;
    std::string name;
    size_t most_dynamic = 48 << 10;
};
struct Event;
struct Operation { /* in a stream */
    std::function<void()> run;
    Event *waits_for = nullptr;
};
struct Stream {
    std::deque<Operation> queue;
};
struct Event {
    bool recorded = false, done = true;
    double time_ms = 0;
};
struct Node {
    enum Kind { LAUNCH, COPY, FILL, NOTHING } kind = NOTHING;
    Function *function = nullptr;
    Launch launch;
    std::function<void(uint32_t node)> act;
    std::vector<std::pair<Node *, bool>> after; /* and whether the edge is programmatic */
    unsigned index = 0;
};
struct Graph {
    std::vector<std::unique_ptr<Node>> nodes;
};
struct Executable {
    std::vector<std::unique_ptr<Node>> nodes;
    std::map<void *, Node *> copies; /* by the node of the graph that was instantiated */
};

std::recursive_mutex lock;
std::vector<std::string> calls;
std::map<std::string, int> call_counts;
struct Injected { std::string function; int nth, result; };
std::vector<Injected> injected;
std::vector<Image> images;
bool initialised;
int retained;
int sticky; /* the context is lost after a kernel failed */
std::string report;
size_t memory_used;
double device_clock_ms;
std::map<uint64_t, size_t> sizes;
std::map<const char *, size_t> pinned;
std::set<Module *> modules;
std::set<Stream *> streams;
std::set<Event *> events;
std::set<Graph *> graphs;
std::set<Executable *> executables;
Stream default_stream;
thread_local std::vector<void *> contexts;
int primary_context; /* its address is the handle */

/* ---- Every call: recorded, made to fail on request, refused without a context --------------------------------------- */

struct Refused { int result; };

template <class F> int api(const char *name, bool needs_context, F body) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    calls.push_back(name);
    int nth = ++call_counts[name];
    for (const Injected &i : injected)
        if (i.function == name && i.nth == nth) return i.result;
    if (!initialised && strcmp(name, "cuInit") && strcmp(name, "cuDriverGetVersion")) return NOT_INITIALIZED;
    if (needs_context && (contexts.empty() || !retained)) return INVALID_CONTEXT;
    if (needs_context && sticky && !strstr(name, "Free") && !strstr(name, "Destroy") && !strstr(name, "Unload")) return sticky;
    try {
        body();
        return SUCCESS;
    } catch (const Refused &refused) {
        return refused.result;
    } catch (const Fault &f) {
        report = f.kind + ": " + f.text;
        return sticky = LAUNCH_FAILED;
    }
}

void demand(bool holds, int result) {
    if (!holds) throw Refused{result};
}
template <class T> T *known(std::set<T *> &all, void *handle) {
    demand(all.count(static_cast<T *>(handle)), INVALID_HANDLE);
    return static_cast<T *>(handle);
}

void remark(const char *format, ...) __attribute__((format(printf, 1, 2)));
void remark(const char *format, ...) {
    char text[500];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    calls.back() += std::string(" ") + text;
}

/* ---- Streams ---------------------------------------------------------------------------------------------------------- */

Stream *stream_of(void *handle) { return handle ? known(streams, handle) : &default_stream; }

void run_until(Stream *, const Event *until);

void run_one(Stream *s) {
    Operation operation = std::move(s->queue.front());
    s->queue.pop_front();
    if (operation.waits_for && !operation.waits_for->done)
        for (Stream *other : streams)
            if (other != s) run_until(other, operation.waits_for);
    new_operation();
    operation.run();
    device_clock_ms += 0.001;
}

void run_until(Stream *s, const Event *until) {
    while (!s->queue.empty() && !(until && until->done)) run_one(s);
}

void enqueue(Stream *s, std::function<void()> run, Event *waits_for = nullptr) {
    s->queue.push_back({std::move(run), waits_for});
    if (modes.landing == Landing::Early) run_until(s, nullptr);
}

/* All streams, taking turns as the mode says. */
void run_everything() {
    std::vector<Stream *> all{&default_stream};
    all.insert(all.end(), streams.begin(), streams.end());
    for (;;) {
        std::vector<Stream *> busy;
        for (Stream *s : all)
            if (!s->queue.empty()) busy.push_back(s);
        if (busy.empty()) return;
        run_one(modes.order == Order::Forward ? busy.front() : modes.order == Order::Backward ? busy.back() : busy[random_below((unsigned)busy.size())]);
    }
}

bool is_pinned(const void *p) {
    auto found = pinned.upper_bound(static_cast<const char *>(p));
    return found != pinned.begin() && p < std::prev(found)->first + std::prev(found)->second;
}

/* ---- Launches and graphs ---------------------------------------------------------------------------------------------- */

size_t static_shared(const Function &f) { return (size_t)(f.module->info.shared_end - f.module->info.shared_begin); }

Launch launch_of(Function *f, uint3 grid, uint3 block, uint3 cluster, size_t shared, void **parameters) {
    const size_t threads = (size_t)block.x * block.y * block.z, blocks = (size_t)cluster.x * cluster.y * cluster.z;
    demand(f, INVALID_HANDLE);
    demand(grid.x && grid.y && grid.z && grid.x < 1u << 31 && grid.y < 65536 && grid.z < 65536, INVALID_VALUE);
    demand(block.x && block.y && block.z && block.x <= 1024 && block.y <= 1024 && block.z <= 64 && threads <= 1024, INVALID_VALUE);
    demand(threads <= f->kernel.max_threads, INVALID_VALUE);
    demand(shared <= f->most_dynamic && shared + static_shared(*f) <= MOST_SHARED, INVALID_VALUE);
    demand(blocks == 1 || settings.capability >= 90, NOT_SUPPORTED);
    demand(blocks && blocks <= 8 && grid.x % cluster.x == 0 && grid.y % cluster.y == 0 && grid.z % cluster.z == 0, INVALID_VALUE);
    demand(parameters || !f->kernel.parameters, INVALID_VALUE);
    Launch l;
    l.module = f->module, l.kernel = &f->kernel, l.name = f->name;
    l.grid = grid, l.block = block, l.cluster = cluster, l.shared = shared;
    for (int i = 0; i < f->kernel.parameters; i++) { /* as the driver does, the values are copied now */
        l.parameters.emplace_back(f->kernel.size[i] / sizeof(Line) + 1);
        memcpy(l.parameters.back().data(), parameters[i], f->kernel.size[i]);
    }
    return l;
}

Launch copy_of(const Launch &from) {
    Launch l;
    l.kernel = from.kernel, l.module = from.module, l.name = from.name, l.grid = from.grid, l.block = from.block, l.cluster = from.cluster;
    l.shared = from.shared, l.parameters = from.parameters;
    return l;
}

/* After a fault nothing of a launch goes on, and nobody remembers it. */
template <class F> void run_or_abandon(F f) {
    SignalsAreFaults signals;
    try {
        f();
    } catch (const Fault &) {
        engine.abandon();
        throw;
    }
}

void run_alone(const Launch &what) {
    Launch l = copy_of(what);
    run_or_abandon([&] {
        engine.start(l);
        engine.finish(l);
    });
}

/* The nodes in an order that the edges allow. A node with programmatic edges is started, as far as it gets, before those it
 * depends on in that way; it goes on when they have ended. */
void play(Executable &e, std::vector<Launch> &launches) {
    const size_t count = e.nodes.size();
    std::vector<std::vector<bool>> before(count, std::vector<bool>(count));
    std::vector<bool> done(count), early(count);
    for (auto &n : e.nodes) /* nodes were added after those they depend on, or ordered so at instantiation */
        for (auto &[earlier, programmatic] : n->after) {
            before[n->index][earlier->index] = true;
            for (size_t i = 0; i < count; i++) before[n->index][i] = before[n->index][i] || before[earlier->index][i];
        }
    set_ancestors(before);
    auto ready = [&](Node &n, bool count_programmatic) {
        return std::all_of(n.after.begin(), n.after.end(), [&](auto &edge) { return done[edge.first->index] || (!count_programmatic && edge.second); });
    };
    auto begin = [&](Node &n, bool ahead) {
        Launch &l = launches[n.index] = copy_of(n.launch);
        l.node = n.index;
        l.early = l.waits_for_dependency = early[n.index] = ahead;
        engine.start(l);
    };
    for (size_t finished = 0; finished < count; finished++) {
        std::vector<Node *> choice;
        for (auto &n : e.nodes)
            if (!done[n->index] && ready(*n, true)) choice.push_back(n.get());
        Node &n = *(modes.order == Order::Forward ? choice.front() : modes.order == Order::Backward ? choice.back() : choice[random_below((unsigned)choice.size())]);
        if (n.kind == Node::LAUNCH) {
            for (auto &next : e.nodes) { /* those that may start beside this one */
                bool follows = std::any_of(next->after.begin(), next->after.end(), [&](auto &edge) { return edge.first == &n && edge.second; });
                if (!follows || early[next->index] || done[next->index] || modes.landing == Landing::Early) continue;
                done[n.index] = true; /* as far as the others' programmatic edges go */
                bool now = ready(*next, false);
                done[n.index] = false;
                if (now) begin(*next, true), engine.settle();
            }
            if (early[n.index])
                engine.dependency_met(launches[n.index]);
            else
                begin(n, false);
            engine.finish(launches[n.index]);
        } else if (n.act) {
            n.act(n.index);
        }
        done[n.index] = true;
    }
}

void run_graph(Executable &e) {
    std::vector<Launch> launches(e.nodes.size()); /* they outlive a fault until they are abandoned */
    run_or_abandon([&] { play(e, launches); });
}

template <class T> T attribute_value(const void *value) {
    T result;
    memcpy(&result, value, sizeof result);
    return result;
}

Node *add_node(Graph *g, void *const *after, size_t count) {
    auto n = std::make_unique<Node>();
    for (size_t i = 0; i < count; i++) {
        auto *earlier = static_cast<Node *>(after[i]);
        demand(std::any_of(g->nodes.begin(), g->nodes.end(), [=](auto &known) { return known.get() == earlier; }), INVALID_VALUE);
        n->after.push_back({earlier, false});
    }
    n->index = (unsigned)g->nodes.size();
    g->nodes.push_back(std::move(n));
    return g->nodes.back().get();
}

/* ---- Memory ----------------------------------------------------------------------------------------------------------- */

uint64_t allocate_counted(size_t bytes) {
    demand(bytes > 0, INVALID_VALUE);
    demand(memory_used + bytes <= settings.memory, OUT_OF_MEMORY);
    uint64_t p = allocate(bytes);
    demand(p, OUT_OF_MEMORY);
    memory_used += bytes;
    sizes[p] = bytes;
    remark("%zu", bytes);
    return p;
}

void free_counted(uint64_t p) {
    bool was;
    if (!p) return;
    demand(deallocate(p, was), INVALID_VALUE);
    memory_used -= sizes[p];
    sizes.erase(p);
}

void copy_between(uint64_t to, bool to_device, uint64_t from, bool from_device, size_t bytes, uint32_t node) {
    if (to_device && !allocated(to, bytes)) throw Fault{"use-after-free", "a copy to device memory that is not allocated any more"};
    if (from_device && !allocated(from, bytes)) throw Fault{"use-after-free", "a copy from device memory that is not allocated any more"};
    if (from_device) check_node(from, bytes, Access::Read, node);
    if (to_device) check_node(to, bytes, Access::Write, node);
    memmove((void *)to, (const void *)from, bytes);
}

void check_device(uint64_t p, size_t bytes) { demand(allocated(p, bytes), INVALID_VALUE); }

struct Copy3D { /* CUDA_MEMCPY3D */
    struct Side { size_t x, y, z, lod; unsigned type; const void *host; uint64_t device; void *array, *reserved; size_t pitch, height; } from, to;
    size_t width, height, depth;
};

/* ---- Modules ---------------------------------------------------------------------------------------------------------- */

int find_range(struct dl_phdr_info *info, size_t, void *data) {
    auto *m = static_cast<Module *>(data);
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const auto &header = info->dlpi_phdr[i];
        if (header.p_type != PT_LOAD) continue;
        const char *begin = (const char *)info->dlpi_addr + header.p_vaddr;
        if ((const char *)m->call >= begin && (const char *)m->call < begin + header.p_memsz) {
            m->begin = (const char *)info->dlpi_addr;
            for (int j = 0; j < info->dlpi_phnum; j++)
                if (info->dlpi_phdr[j].p_type == PT_LOAD)
                    m->end = std::max(m->end, (const char *)info->dlpi_addr + info->dlpi_phdr[j].p_vaddr + info->dlpi_phdr[j].p_memsz);
            return 1;
        }
    }
    return 0;
}

bool starts_with(const unsigned char *p, const std::vector<unsigned char> &bytes) {
    for (size_t i = 0; i < bytes.size(); i++)
        if (p[i] != bytes[i]) return false;
    return true;
}

Module *load(const void *bytes) {
    const Image *image = nullptr;
    for (const Image &i : images)
        if (starts_with(static_cast<const unsigned char *>(bytes), i.bytes)) image = &i;
    demand(image, INVALID_IMAGE);
    const std::string &a = image->architecture;
    const bool cubin = a.rfind("sm_", 0) == 0;
    int capability = atoi(a.c_str() + (cubin ? 3 : 8));
    if (cubin && a.back() == 'a') demand(capability == settings.capability, NO_BINARY_FOR_GPU);
    if (cubin) demand(capability / 10 == settings.capability / 10 && capability <= settings.capability, NO_BINARY_FOR_GPU);
    if (!cubin) demand(capability <= settings.capability, NO_BINARY_FOR_GPU);
    if (!cubin) demand(settings.driver >= 13000, UNSUPPORTED_PTX_VERSION);
    auto m = std::make_unique<Module>();
    m->library = dlopen(image->library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!m->library) throw Fault{"harness", dlerror()};
    m->call = dlsym(m->library, "twd_module");
    if (!m->call) throw Fault{"harness", image->library + " was not built by the harness"};
    m->info = ((ModuleInfo(*)())m->call)();
    dl_iterate_phdr(find_range, m.get());
    return *modules.insert(m.release()).first;
}

std::map<std::pair<Module *, std::string>, std::unique_ptr<Function>> functions;

Function *function_of(Module *m, const char *name) {
    auto &f = functions[{m, name}];
    if (!f) {
        void *describe = dlsym(m->library, ("twd_kernel_" + std::string(name)).c_str());
        if (!describe) functions.erase({m, name});
        demand(describe, NOT_FOUND);
        f = std::make_unique<Function>();
        f->module = m, f->name = name, f->kernel = ((Kernel(*)())describe)();
    }
    return f.get();
}

Function *known_function(void *handle) {
    for (auto &[key, f] : functions)
        if (f.get() == handle) return f.get();
    throw Refused{INVALID_HANDLE};
}

/* ---- Settings of the test --------------------------------------------------------------------------------------------- */

bool configure(const std::string &text) {
    std::istringstream words(text);
    std::string word;
    while (words >> word) {
        size_t equals = word.find('=');
        if (equals == std::string::npos) return false;
        std::string name = word.substr(0, equals), value = word.substr(equals + 1);
        if (name == "order" && (value == "forward" || value == "backward" || value == "random"))
            modes.order = value == "forward" ? Order::Forward : value == "backward" ? Order::Backward : Order::Random;
        else if (name == "landing" && (value == "early" || value == "late" || value == "random"))
            modes.landing = value == "early" ? Landing::Early : value == "late" ? Landing::Late : Landing::Random;
        else if (name == "seed")
            modes.seed = (unsigned)atoi(value.c_str());
        else if (name == "resident")
            modes.resident = (unsigned)std::max(1, atoi(value.c_str()));
        else if (name == "sm")
            settings.capability = atoi(value.c_str());
        else if (name == "multiprocessors")
            settings.multiprocessors = atoi(value.c_str());
        else if (name == "driver")
            settings.driver = atoi(value.c_str());
        else if (name == "devices")
            settings.devices = atoi(value.c_str());
        else if (name == "memory")
            settings.memory = strtoull(value.c_str(), nullptr, 10);
        else if (name == "fail") { /* function:nth call:result */
            size_t first = value.find(':'), second = value.rfind(':');
            if (first == std::string::npos || second == first) return false;
            injected.push_back({value.substr(0, first), atoi(value.c_str() + first + 1), atoi(value.c_str() + second + 1)});
        } else if (name == "module") { /* image:architecture:library */
            size_t first = value.find(':'), second = value.find(':', first + 1);
            if (first == std::string::npos || second == std::string::npos) return false;
            std::ifstream file(value.substr(0, first), std::ios::binary);
            std::vector<unsigned char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
            if (bytes.empty()) return false;
            images.push_back({bytes, value.substr(second + 1), value.substr(first + 1, second - first - 1)});
        } else
            return false;
    }
    return true;
}

std::string state() {
    std::ostringstream text;
    text << "{\"context_depth\": " << contexts.size() << ", \"retained\": " << retained << ", \"modules\": " << modules.size() << ", \"streams\": " << streams.size()
         << ", \"events\": " << events.size() << ", \"graphs\": " << graphs.size() << ", \"executables\": " << executables.size()
         << ", \"allocations\": " << live_allocations() << ", \"pinned\": " << pinned.size() << "}";
    return text.str();
}

/* A process of its own is configured by TW_DOUBLE, and leaves its calls, state and fault in the file that TW_DOUBLE_REPORT names. */
struct Process {
    Process() {
        const char *text = getenv("TW_DOUBLE");
        if (text && !configure(text)) fprintf(stderr, "TW_DOUBLE: cannot read %s\n", text), abort();
    }
    ~Process() {
        const char *path = getenv("TW_DOUBLE_REPORT");
        if (!path) return;
        std::ofstream file(path);
        file << state() << "\n" << report << "\n";
        for (auto &call : calls) file << call << "\n";
    }
} process;

} // namespace
} // namespace twd

using namespace twd;

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

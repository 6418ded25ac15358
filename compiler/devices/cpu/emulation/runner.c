/* Opens a library (its path is the argument) and does what standard input says, answering on standard output.
 *
 * Numbers are int64 in this machine's byte order; a text is its length and its bytes. An order begins with its number:
 *
 *   1 kernel   name, M memories, of each bytes and its place within a page, N operands, of each memory and offset, first
 *              and past tile, then the memories' bytes. The last operand is the scratch. Answer: 0, the memories' bytes.
 *   2 create   path of the weights, their offset, lanes, plan. Answer: 0, plan, hand-over (a double).
 *   3 run      I inputs, O outputs, of each code, bits, rank, shape, bytes; the inputs' bytes. Answer: 0, the outputs'.
 *   4 describe Answer: 0, ABI version, text.
 *
 * What fails is answered by 1 and a text, and the program goes on. It ends with its input.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "model.h"
#include "tw_system.h"
#ifdef _WIN32
#include <fcntl.h>
#include <io.h>
#else
#include <dlfcn.h>
#include <sys/syscall.h>
#endif

enum { KERNEL = 1, CREATE = 2, RUN = 3, DESCRIBE = 4 };
#define PAGE 4096

static void *library;
static tw_instance *instance;

#ifdef _WIN32
static const char *dlerror(void) {
    static char said[64];
    snprintf(said, sizeof said, "the library cannot be opened, or lacks a function: error %lu", GetLastError());
    return said;
}

static void *dlopen(const char *path) { return LoadLibraryA(path); }
static void *dlsym(void *of, const char *name) { return (void *)GetProcAddress(of, name); }
#else
#define dlopen(path) dlopen(path, RTLD_NOW | RTLD_LOCAL)

/* What the library calls to map its weights. The emulator makes shared pages without a file on the way to a shared mapping, which a
 * sandbox may refuse; a private one of what nobody writes is the same. */
__attribute__((visibility("default"))) void *mmap(void *place, size_t bytes, int access, int flags, int file, off_t offset) {
    if (access == PROT_READ && flags == MAP_SHARED) flags = MAP_PRIVATE;
    return (void *)syscall(SYS_mmap, place, bytes, access, flags, file, offset);
}
#endif

static void die(const char *why) {
    fprintf(stderr, "runner: %s\n", why);
    exit(70);
}

static void take(void *to, size_t bytes) {
    if (bytes && fread(to, 1, bytes, stdin) != bytes) die("the input ends in the middle of an order");
}

static long number(void) {
    int64_t value;
    take(&value, sizeof value);
    return (long)value;
}

static void *memory(size_t bytes) {
    void *found = malloc(bytes ? bytes : 1);
    if (!found) die("out of memory");
    return found;
}

static char *text(void) {
    long length = number();
    char *found = memory((size_t)length + 1);
    take(found, (size_t)length);
    found[length] = 0;
    return found;
}

static void give(const void *from, size_t bytes) {
    if (bytes && fwrite(from, 1, bytes, stdout) != bytes) exit(0); /* nobody listens any more */
}

static void give_number(long value) {
    int64_t wide = value;
    give(&wide, sizeof wide);
}

static void give_text(const char *said) {
    give_number((long)strlen(said));
    give(said, strlen(said));
}

static void refuse(const char *why) {
    give_number(1);
    give_text(why);
}

static void *symbol(const char *name) {
    void *found = dlsym(library, name);
    if (!found) die(dlerror());
    return found;
}

static const char *last_error(void) { return ((const char *(*)(void))symbol("tw_last_error"))(); }

static void run_kernel(void) {
    char *name = text();
    long memories = number();
    char **bases = memory((size_t)memories * sizeof *bases), **begins = memory((size_t)memories * sizeof *begins);
    size_t *bytes = memory((size_t)memories * sizeof *bytes);
    for (long at = 0; at < memories; at++) {
        bytes[at] = (size_t)number();
        begins[at] = aligned_alloc(PAGE, (bytes[at] / PAGE + 2) * PAGE);
        if (!begins[at]) die("out of memory");
        bases[at] = begins[at] + number();
    }
    long operands = number();
    void **pointers = memory((size_t)operands * sizeof *pointers);
    for (long at = 0; at < operands; at++) {
        long of = number();
        pointers[at] = bases[of] + number();
    }
    long first = number(), past = number();
    for (long at = 0; at < memories; at++) take(bases[at], bytes[at]);
    void (*kernel)(void *const *, char *, long, long) = (void (*)(void *const *, char *, long, long))dlsym(library, name);
    if (!kernel) {
        refuse(dlerror());
    } else {
        kernel(pointers, pointers[operands - 1], first, past);
        give_number(0);
        for (long at = 0; at < memories; at++) give(bases[at], bytes[at]);
    }
    for (long at = 0; at < memories; at++) free(begins[at]);
    free(pointers), free(bytes), free(begins), free(bases), free(name);
}

static void create(void) {
    char *path = text();
    tw_config config = {.weights_path = path, .weights_offset = number(), .spin_us = -1};
    config.lanes = (int32_t)number();
    config.plan = (int32_t)number();
    if (instance) ((void (*)(tw_instance *))symbol("tw_destroy"))(instance);
    instance = NULL;
    if (((int (*)(const tw_config *, tw_instance **))symbol("tw_create"))(&config, &instance)) {
        refuse(last_error());
    } else {
        double handover;
        int plan = ((int (*)(const tw_instance *, double *))symbol("tw_plan"))(instance, &handover);
        give_number(0);
        give_number(plan);
        give(&handover, sizeof handover);
    }
    free(path);
}

static void run(void) {
    long inputs = number(), outputs = number(), count = inputs + outputs;
    tw_tensor *tensors = memory((size_t)count * sizeof *tensors);
    size_t *bytes = memory((size_t)count * sizeof *bytes);
    memset(tensors, 0, (size_t)count * sizeof *tensors);
    for (long at = 0; at < count; at++) {
        tensors[at].device_type = TW_CPU;
        tensors[at].code = (int32_t)number();
        tensors[at].bits = (int32_t)number();
        tensors[at].ndim = (int32_t)number();
        int64_t *shape = memory((size_t)tensors[at].ndim * sizeof *shape);
        take(shape, (size_t)tensors[at].ndim * sizeof *shape);
        tensors[at].shape = shape;
        bytes[at] = (size_t)number();
        tensors[at].data = memory(bytes[at]);
    }
    for (long at = 0; at < inputs; at++) take(tensors[at].data, bytes[at]);
    for (long at = inputs; at < count; at++) memset(tensors[at].data, 255, bytes[at]); /* what no kernel wrote is NaN */
    int (*poison)(tw_instance *, int) = (int (*)(tw_instance *, int))dlsym(library, "tw_poison");
    if (instance && poison) poison(instance, 255);
    if (!instance) {
        refuse("nothing was created");
    } else if (((int (*)(tw_instance *, const tw_tensor *, tw_tensor *))symbol("tw_run"))(instance, tensors, tensors + inputs)) {
        refuse(last_error());
    } else {
        give_number(0);
        for (long at = inputs; at < count; at++) give(tensors[at].data, bytes[at]);
    }
    for (long at = 0; at < count; at++) free((void *)tensors[at].shape), free(tensors[at].data);
    free(bytes), free(tensors);
}

static int serve(int count, char **arguments) {
    if (count != 2) die("give the path of a library");
#ifdef _WIN32
    _setmode(0, _O_BINARY), _setmode(1, _O_BINARY);
#endif
    library = dlopen(arguments[1]);
    if (!library) die(dlerror());
    int64_t order;
    while (fread(&order, sizeof order, 1, stdin) == 1) {
        if (order == KERNEL) run_kernel();
        else if (order == CREATE) create();
        else if (order == RUN) run();
        else if (order == DESCRIBE) {
            give_number(0);
            give_number(((int (*)(void))symbol("tw_abi_version"))());
            give_text(((const char *(*)(void))symbol("tw_describe"))());
        } else die("an unknown order");
        if (fflush(stdout)) return 0;
    }
    if (instance) ((void (*)(tw_instance *))symbol("tw_destroy"))(instance);
    return 0;
}

#ifdef TW_ALONE
int _configure_narrow_argv(int how);
void mainCRTStartup(void) {
    _configure_narrow_argv(1); /* without wildcards */
    exit(serve(__argc, __argv));
}
#else
int main(int count, char **arguments) { return serve(count, arguments); }
#endif

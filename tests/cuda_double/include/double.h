/* What kernels compiled by g++ and the double's runtime agree on. */
#pragma once
#include <cstddef>
#include <cstdint>

struct uint3 { unsigned x, y, z; };

namespace twd {

/* What CUDA's built-in variables say in one thread. */
struct Builtins { uint3 thread, block, block_dim, grid_dim; };
extern const Builtins *current;

/* Where in the kernel's source something was called. */
struct Site {
    const char *file;
    int line;
    static constexpr Site here(const char *file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
};
#define TW_AT twd::Site at = twd::Site::here()

/* Stops the launch with a report: `kind` is one word, such as "race". Does not return. */
[[noreturn]] void fault(const char *kind, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Barriers of a block: `threads` 0 means all that have not ended. */
void barrier(int id, int threads, bool waits, Site at);
int barrier_count(int id, int threads, int operation, int predicate, Site at); /* how many say so, whether all, whether any: 0, 1, 2 */
void fence();
void sleep();

/* Collectives of a warp. */
enum class Vote { Any, All, Ballot, MatchAny, MatchAll, Add, AddSigned, Min, MinSigned, Max, MaxSigned, And, Or, Xor };
void warp_barrier(unsigned mask, Site at);
uint64_t exchange(unsigned mask, uint64_t value, int source, Site at);
uint64_t vote(unsigned mask, Vote kind, uint64_t value, Site at);
unsigned active_mask();
int lane();

/* Atomics, on 4 or 8 bytes: `update` gets the old value and returns the new one. */
uint64_t atomic(void *address, int bytes, uint64_t (*update)(uint64_t before, uint64_t operand, uint64_t compare), uint64_t operand,
                uint64_t compare, Site at);
unsigned load_relaxed(const unsigned *global, Site at);
unsigned load_acquire(const unsigned *global, Site at);
void store_release(unsigned *global, unsigned value, Site at);
unsigned add_release(unsigned *global, unsigned value, Site at);
void count_release(unsigned *global, Site at);
unsigned long long global_timer(); /* one more than whoever asked before */

/* Memory and asynchronous copies. */
unsigned char *dynamic_shared();
unsigned shared_address(const void *shared);
void copy_async(void *shared, const void *global, unsigned size, unsigned bytes, Site at);
void check_unwritten(const void *global, unsigned bytes, Site at); /* before a non-coherent read */
void prefetch(const void *global, unsigned bytes, unsigned thread, unsigned threads, Site at);
void copy_commit();
void copy_wait(unsigned pending);
void mbarrier_init(uint64_t *shared, unsigned count, Site at);
void mbarrier_fence_init();
void mbarrier_arrive(uint64_t *shared, unsigned bytes, Site at);
void mbarrier_arrive_cluster(uint64_t *shared, unsigned rank, Site at);
void mbarrier_arrive_copies(uint64_t *shared, Site at);
void mbarrier_wait(uint64_t *shared, unsigned parity, Site at);
void proxy_fence();
unsigned cluster_rank();
unsigned cluster_size();
void cluster_arrive(Site at);
void cluster_wait(Site at);
void *cluster_map(void *shared, unsigned rank);
void bulk_load(void *shared, const void *global, unsigned bytes, uint64_t *barrier, Site at);
void tensor_load(void *shared, const void *map, uint64_t *barrier, int rank, const int *at_element, unsigned blocks, Site at);
void tensor_store(const void *map, const void *shared, int rank, const int *at_element, Site at);
void bulk_commit();
void bulk_wait(unsigned pending, bool read);
void dependency_wait(Site at);
void launch_dependents();

/* Matrices. */
void ldmatrix(unsigned *r, int matrices, bool transposed, const void *shared, Site at);
enum class Type { F16, BF16, TF32, S8, U8, U8_S8, S8_U8 };
void mma(Type type, void *d, const unsigned *a, const unsigned *b, Site at);
void mma_sp(Type type, void *d, const unsigned *a, const unsigned *b, unsigned metadata, unsigned selector, Site at);
void wgmma(Type type, void *d, int n, uint64_t a, uint64_t b, bool accumulate, bool transpose_a, bool transpose_b, Site at);
void wgmma_sp(Type type, void *d, int n, uint64_t a, uint64_t b, unsigned metadata, unsigned selector, bool accumulate, Site at);
void wgmma_fence();
void wgmma_commit();
void wgmma_wait(unsigned pending, Site at);
uint64_t wgmma_descriptor(const void *shared, unsigned leading, unsigned stride, unsigned swizzle);

float f16_to_float(uint16_t bits);
uint16_t float_to_f16(float x);
uint16_t float_to_bf16(float x);

/* How the runtime calls a kernel of a module. */
constexpr int MOST_PARAMETERS = 64;
struct Kernel {
    void (*call)(void **parameters);
    int parameters;
    uint32_t size[MOST_PARAMETERS];
    unsigned max_threads; /* __launch_bounds__, or 1024 */
};
struct ModuleInfo {
    unsigned char *shared_begin, *shared_end; /* its static shared variables */
    bool checked;                             /* every access to memory is reported to the runtime */
};

} // namespace twd

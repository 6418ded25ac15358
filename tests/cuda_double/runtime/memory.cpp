/* Who may touch which bytes: the pool of shared memory, device allocations, and the happens-before check of every access that
 * a module compiled with -fsanitize=thread reports. GCC inserts the calls; their definitions are ours, not libtsan's.
 *
 * The check follows FastTrack (Flanagan and Freund, PLDI 2009): an access conflicts with an earlier one of which it does not
 * know. Clocks are exchanged where the programming model orders memory: barriers, __syncwarp, mbarriers, fences with atomics,
 * releases and acquires. Shuffles, votes and mma order nothing. */
#include "engine.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <sys/mman.h>

extern "C" {
void __asan_poison_memory_region(void const volatile *address, size_t size) __attribute__((weak));
void __asan_unpoison_memory_region(void const volatile *address, size_t size) __attribute__((weak));
}

namespace twd {
namespace {

constexpr size_t MOST_SLOTS = 512, WORD = 4, MOST_ENTRIES = 40;
constexpr size_t GUARD = 512; /* bytes before and after each allocation that belong to nobody */

/* One access to one word that later ones may conflict with. */
struct Entry {
    uint32_t node, serial, actor, clock;
    uint8_t bytes; /* which of the word */
    Access access;
    bool bulk; /* by the asynchronous proxy */
    const void *program_counter;
};
struct Word {
    uint32_t operation = 0;
    std::vector<Entry> entries;
};

struct Allocation {
    uint64_t begin;
    size_t size;
    void *block;
    bool freed = false;
    unsigned number;
    std::vector<Word> words;
};

unsigned char *pool;
std::vector<unsigned> free_slots;
unsigned slots;
std::vector<Word> slot_words[MOST_SLOTS];
std::map<uint64_t, Allocation> &allocations = *new std::map<uint64_t, Allocation>; /* a process tells of it when it ends, after its other parts are gone */
unsigned allocation_count;
uint32_t operation = 1;
Ancestors at_start, after_waiting; /* of the graph's nodes */

Allocation *allocation_of(uint64_t address) {
    auto found = allocations.upper_bound(address);
    if (found == allocations.begin()) return nullptr;
    Allocation &a = std::prev(found)->second;
    return address < a.begin + std::max<size_t>(a.size, 1) ? &a : nullptr;
}

const char *verb(const Entry &e) {
    if (e.bulk) return e.access == Access::Read ? "an asynchronous read" : "an asynchronous write";
    return e.access == Access::Read ? "a read" : e.access == Access::Write ? "a write" : "an atomic access";
}

std::string position(const void *counter) {
    Dl_info info;
    if (!counter || !dladdr(counter, &info) || !info.dli_fbase) return "";
    char text[400];
    snprintf(text, sizeof text, " [%s+0x%zx]", info.dli_fname, (size_t)((const char *)counter - (const char *)info.dli_fbase));
    return text;
}

/* Whether the thread knows that what its kernel depends on is over: it has waited for that, or met one that has. */
bool has_waited(const Thread &t) {
    if (t.dependency_waited) return true;
    for (auto &[actor, clock] : t.block->cluster->dependency_waited)
        if (t.seen && (*t.seen)[actor] >= clock) return true;
    return false;
}

/* Whether `e` is over, as far as the thread (or, where null, the node) knows. */
bool ordered(const Entry &e, const Entry &mine, const Thread *t) {
    if (e.node != mine.node) {
        const Ancestors &known = !t || has_waited(*t) ? after_waiting : at_start;
        return mine.node < known.size() && e.node < known[mine.node].size() && known[mine.node][e.node];
    }
    if (!t) return true;
    if (e.clock == UNDER_WAY) return false;
    if (e.serial != t->block->cluster->serial) {
        if (!t->others) return false;
        auto known = t->others->find(e.serial);
        return known != t->others->end() && e.actor < known->second->size() && e.clock <= (*known->second)[e.actor];
    }
    return e.actor == t->actor || (t->seen && e.clock <= (*t->seen)[e.actor]);
}

bool conflict(const Entry &e, const Entry &mine) {
    return e.bytes & mine.bytes && !(e.access == mine.access && e.access != Access::Write);
}

void record(Word &w, const Entry &mine, const Thread *t, const void *address) {
    if (w.operation != operation) w.operation = operation, w.entries.clear();
    auto &all = w.entries;
    for (size_t i = 0; i < all.size();) {
        const Entry &e = all[i];
        /* atomics on one word have an order, and whoever is ordered after the last is ordered after all */
        bool known = ordered(e, mine, t) || (e.access == Access::Atomic && mine.access == Access::Atomic);
        if (conflict(e, mine) && !known) {
            const char *why = e.clock == UNDER_WAY ? "which is still under way" : e.node != mine.node ? "of a kernel or copy that no edge orders before this" : "that no barrier orders before this";
            char who[100];
            if (e.node != mine.node)
                snprintf(who, sizeof who, "graph node %u", e.node);
            else
                snprintf(who, sizeof who, t && e.serial != t->block->cluster->serial ? "another block, thread %u" : "thread %u", e.actor);
            fault("race", "%s of %s%s conflicts with %s by %s%s, %s", verb(mine), describe(address).c_str(), position(mine.program_counter).c_str(),
                  verb(e), who, position(e.program_counter).c_str(), why);
        }
        if (conflict(e, mine) && mine.bulk && mine.access == Access::Read && !e.bulk && t && e.node == mine.node && e.serial == mine.serial) {
            const Thread &writer = t->block->cluster->blocks[e.actor / t->block->threads.size()]->threads[e.actor % t->block->threads.size()];
            if (writer.proxy_fenced < e.clock)
                fault("race", "%s of %s: thread %u wrote it%s without fence.proxy.async since", verb(mine), describe(address).c_str(), writer.linear,
                      position(e.program_counter).c_str());
        }
        /* what comes after mine comes after all that mine comes after */
        bool covered = known && !(e.bytes & ~mine.bytes) && (mine.access == Access::Write || e.access == mine.access) && e.clock != UNDER_WAY;
        if (covered)
            all[i] = all.back(), all.pop_back();
        else
            i++;
    }
    if (all.size() >= MOST_ENTRIES) /* many blocks read what none writes: one of them is forgotten */
        for (Entry &e : all)
            if (e.access == Access::Read && e.clock != UNDER_WAY) {
                e = mine;
                return;
            }
    all.push_back(mine);
}

template <class F> void for_words(size_t offset, size_t bytes, std::vector<Word> &words, F f) {
    for (size_t at = offset; at < offset + bytes;) {
        size_t word = at / WORD, end = std::min((word + 1) * WORD, offset + bytes);
        uint8_t mask = (uint8_t)(((1u << (end - at)) - 1) << at % WORD);
        if (word >= words.size()) words.resize(word + 1);
        f(words[word], mask, at - offset);
        at = end;
    }
}

/* The words of a range of shared or device memory, and where in them it begins; null for a thread's own stack and constants. */
std::vector<Word> *words_of(const void *address, size_t bytes, size_t &offset) {
    if (Block *b = shared_owner(address, bytes, offset)) {
        if (!b->live && b->cluster->live) fault("out-of-bounds", "%s belongs to a block of the cluster that has ended", describe(address).c_str());
        return &slot_words[b->slot];
    }
    Allocation *a = allocation_of((uint64_t)address);
    if (!a) return nullptr;
    if (a->freed) fault("use-after-free", "%zu bytes at %s", bytes, describe(address).c_str());
    offset = (uint64_t)address - a->begin;
    if (offset + bytes > a->size) fault("out-of-bounds", "%zu bytes at %s", bytes, describe(address).c_str());
    if (a->words.empty()) a->words.resize((a->size + WORD - 1) / WORD);
    return &a->words;
}

bool in_module(const void *address) {
    const Module &m = *self().block->launch->module;
    return address >= m.begin && address < m.end;
}

void check_as(const void *address, size_t bytes, Access access, unsigned actor, uint32_t clock, bool bulk, const void *counter) {
    Thread &t = self();
    size_t offset;
    std::vector<Word> *words = words_of(address, bytes, offset);
    if (!words) {
        if (!in_module(address)) fault("out-of-bounds", "%zu bytes at %s, which are in no live allocation%s", bytes, describe(address).c_str(), position(counter).c_str());
        if (access != Access::Read) fault("out-of-bounds", "write to a constant of the module%s", position(counter).c_str());
        return;
    }
    const Entry mine{t.block->launch->node, t.block->cluster->serial, actor, clock, 0, access, bulk, counter};
    for_words(offset, bytes, *words, [&](Word &w, uint8_t mask, size_t at) {
        Entry e = mine;
        e.bytes = mask;
        record(w, e, &t, (const char *)address + at);
    });
}

/* An access that the compiler reported. */
void reported(const void *address, size_t bytes, Access access, bool aligned, const void *counter) {
    if (!engine.running || on_a_stack(address)) return;
    const Builtins *own = &self().builtins; /* threadIdx and its like are registers */
    if (address == &current || (address >= own && address < own + 1)) return;
    if (aligned && (uintptr_t)address % bytes) fault("misaligned", "%zu bytes at %s%s", bytes, describe(address).c_str(), position(counter).c_str());
    check_as(address, bytes, access, self().actor, self().clock, false, counter);
}

} // namespace

/* ---- Shared memory ------------------------------------------------------------------------------------------------- */

unsigned char *take_shared(size_t bytes, unsigned &slot) {
    if (!pool) {
        pool = (unsigned char *)mmap(nullptr, (MOST_SLOTS + 1) * SLOT_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        pool += SLOT_BYTES - (uintptr_t)pool % SLOT_BYTES;
    }
    if (free_slots.empty()) {
        if (slots == MOST_SLOTS) fault("limit", "more than %zu blocks at once", MOST_SLOTS);
        free_slots.push_back(slots++);
    }
    slot = free_slots.back();
    free_slots.pop_back();
    unsigned char *shared = pool + slot * SLOT_BYTES;
    if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(shared, SLOT_BYTES);
    memset(shared, modes.fill, bytes);
    if (__asan_poison_memory_region) __asan_poison_memory_region(shared + bytes, SLOT_BYTES - bytes);
    for (Word &w : slot_words[slot]) w.operation = 0;
    return shared;
}

void give_shared(unsigned slot) { free_slots.push_back(slot); }

Block *shared_owner(const void *address, size_t bytes, size_t &offset) {
    const auto *p = static_cast<const unsigned char *>(address);
    Block *running = engine.running ? engine.running->block : nullptr;
    if (pool && p >= pool && p < pool + MOST_SLOTS * SLOT_BYTES) {
        unsigned slot = (unsigned)((size_t)(p - pool) / SLOT_BYTES);
        for (Block *b : engine.blocks) {
            if (b->slot != slot) continue;
            offset = (size_t)(p - b->shared);
            if (offset + bytes > b->launch->shared)
                fault("out-of-bounds", "%zu bytes at byte %zu of %zu bytes of dynamic shared memory", bytes, offset, b->launch->shared);
            if (running && b->cluster != running->cluster) fault("out-of-bounds", "shared memory of another cluster's block");
            return b;
        }
        fault("out-of-bounds", "%zu bytes of shared memory that no block holds", bytes);
    }
    if (running) {
        const ModuleInfo &info = running->launch->module->info;
        if (p >= info.shared_begin && p < info.shared_end) {
            offset = SLOT_BYTES + (size_t)(p - info.shared_begin);
            return running;
        }
    }
    return nullptr;
}

Block &own_shared(const void *address, size_t bytes, unsigned alignment, const char *what) {
    size_t offset;
    Block *b = shared_owner(address, bytes, offset);
    if (!b) fault("out-of-bounds", "%s: %s is not in shared memory", what, describe(address).c_str());
    if ((uintptr_t)address % alignment) fault("misaligned", "%s: %s is not aligned to %u bytes", what, describe(address).c_str(), alignment);
    return *b;
}

unsigned char *dynamic_shared() { return self().block->shared; }

unsigned shared_address(const void *shared) {
    Block *b = self().block;
    size_t offset;
    if (shared_owner(shared, 0, offset) != b) fault("out-of-bounds", "%s is not in the block's shared memory", describe(shared).c_str());
    return (unsigned)offset;
}

void *cluster_map(void *shared, unsigned rank) {
    Block *b = self().block;
    if (rank >= b->cluster->blocks.size()) fault("limit", "rank %u in a cluster of %zu blocks", rank, b->cluster->blocks.size());
    size_t offset;
    if (shared_owner(shared, 0, offset) != b) fault("out-of-bounds", "%s is not in the block's shared memory", describe(shared).c_str());
    if (offset >= SLOT_BYTES) fault("limit", "the double maps dynamic shared memory to other blocks, not static variables");
    return b->cluster->blocks[rank]->shared + offset;
}

/* ---- Device memory ------------------------------------------------------------------------------------------------- */

uint64_t allocate(size_t bytes) {
    void *block = nullptr;
    if (posix_memalign(&block, 512, bytes + 2 * GUARD)) return 0;
    memset(block, modes.fill, bytes + 2 * GUARD);
    uint64_t begin = (uint64_t)block + GUARD;
    if (__asan_poison_memory_region) {
        __asan_poison_memory_region(block, GUARD);
        __asan_poison_memory_region((char *)begin + bytes, GUARD);
    }
    Allocation &a = allocations[begin];
    a.begin = begin, a.size = bytes, a.block = block, a.number = ++allocation_count;
    return begin;
}

bool deallocate(uint64_t address, bool &known) {
    auto found = allocations.find(address);
    known = found != allocations.end();
    if (!known || found->second.freed) return false;
    found->second.freed = true; /* kept, so that whoever still uses it is found */
    memset((void *)address, 0xff, found->second.size);
    if (__asan_poison_memory_region) __asan_poison_memory_region((void *)address, found->second.size);
    return true;
}

bool allocated(uint64_t address, size_t bytes) {
    Allocation *a = allocation_of(address);
    return a && !a->freed && address + bytes <= a->begin + a->size;
}

size_t live_allocations() {
    return (size_t)std::count_if(allocations.begin(), allocations.end(), [](auto &a) { return !a.second.freed; });
}

void forget_freed() {
    for (auto i = allocations.begin(); i != allocations.end();) {
        if (!i->second.freed) {
            ++i;
            continue;
        }
        if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(i->second.block, i->second.size + 2 * GUARD);
        free(i->second.block);
        i = allocations.erase(i);
    }
    if (allocations.empty()) allocation_count = 0;
}

void global_range(const void *address, size_t bytes, unsigned alignment, const char *what) {
    if ((uintptr_t)address % alignment) fault("misaligned", "%s: %s is not aligned to %u bytes", what, describe(address).c_str(), alignment);
    Allocation *a = allocation_of((uint64_t)address);
    if (a && a->freed) fault("use-after-free", "%s: %zu bytes at %s", what, bytes, describe(address).c_str());
    if (!a || (uint64_t)address + bytes > a->begin + a->size) fault("out-of-bounds", "%s: %zu bytes at %s", what, bytes, describe(address).c_str());
}

std::string describe(const void *address) {
    char text[200];
    const auto *p = static_cast<const unsigned char *>(address);
    if (pool && p >= pool && p < pool + MOST_SLOTS * SLOT_BYTES) {
        snprintf(text, sizeof text, "dynamic shared byte %zu", (size_t)(p - pool) % SLOT_BYTES);
        return text;
    }
    if (engine.running) {
        const ModuleInfo &info = engine.running->block->launch->module->info;
        if (p >= info.shared_begin && p < info.shared_end) {
            snprintf(text, sizeof text, "static shared byte %zu", (size_t)(p - info.shared_begin));
            return text;
        }
    }
    Allocation *a = allocation_of((uint64_t)address);
    if (!a && !(a = allocation_of((uint64_t)address - GUARD / 2))) a = allocation_of((uint64_t)address + GUARD / 2); /* just beyond one */
    if (a) {
        snprintf(text, sizeof text, "byte %ld of %zu of allocation %u%s", (long)((uint64_t)address - a->begin), a->size, a->number, a->freed ? ", which was freed" : "");
        return text;
    }
    snprintf(text, sizeof text, "address %p", address);
    return text;
}

/* ---- Happens-before ------------------------------------------------------------------------------------------------ */

void new_operation() {
    operation++;
    at_start.clear(), after_waiting.clear();
    new_counters();
}

void set_ancestors(Ancestors start, Ancestors waited) { at_start = std::move(start), after_waiting = std::move(waited); }

void set_waited(uint32_t node, std::vector<bool> ancestors) { after_waiting[node] = std::move(ancestors); }

unsigned actors_of(const Cluster &c) { return (unsigned)(c.blocks.size() * c.blocks[0]->threads.size()) + AGENTS; }

void merge(std::vector<uint32_t> &into, const std::vector<uint32_t> &from) {
    if (into.size() < from.size()) into.resize(from.size(), 0);
    for (size_t i = 0; i < from.size(); i++) into[i] = std::max(into[i], from[i]);
}

std::vector<uint32_t> knowledge(const Thread &t) {
    std::vector<uint32_t> all = t.seen ? *t.seen : std::vector<uint32_t>(actors_of(*t.block->cluster), 0);
    all[t.actor] = t.clock;
    return all;
}

Clocks join(const std::vector<Thread *> &threads) {
    std::vector<uint32_t> all(actors_of(*threads[0]->block->cluster), 0);
    std::vector<const void *> merged;
    for (Thread *t : threads) {
        if (t->seen && std::find(merged.begin(), merged.end(), t->seen.get()) == merged.end()) {
            merge(all, *t->seen);
            merged.push_back(t->seen.get());
        }
    }
    for (Thread *t : threads) all[t->actor] = std::max(all[t->actor], t->clock);
    return std::make_shared<const std::vector<uint32_t>>(std::move(all));
}

void acquire(Thread &t, const Clocks &knows) {
    if (!knows) return;
    auto all = knowledge(t);
    merge(all, *knows);
    t.seen = std::make_shared<const std::vector<uint32_t>>(std::move(all));
}

/* All that either knows; one of the two where it knows all of it. */
Clocks merged(const Clocks &one, const Clocks &two) {
    if (!two || one == two) return one;
    if (!one) return two;
    auto all = *one;
    merge(all, *two);
    return all == *one ? one : all == *two ? two : std::make_shared<const std::vector<uint32_t>>(std::move(all));
}

namespace {

Others merged_others(const Others &one, const Others &two) {
    if (!two || one == two) return one;
    if (!one) return two;
    auto all = *one;
    for (auto &[serial, clocks] : *two) all[serial] = merged(all[serial], clocks);
    return std::make_shared<const std::map<uint32_t, Clocks>>(std::move(all));
}

} // namespace

Others join_others(const std::vector<Thread *> &threads) {
    Others all;
    std::vector<const void *> joined;
    for (Thread *t : threads)
        if (t->others && std::find(joined.begin(), joined.end(), t->others.get()) == joined.end()) {
            all = merged_others(all, t->others);
            joined.push_back(t->others.get());
        }
    return all;
}

void acquire_others(Thread &t, const Others &others) { t.others = merged_others(t.others, others); }

void tick(Thread &t) { t.clock++; }

void check(const void *address, size_t bytes, Access access, const void *counter) {
    if (engine.checked) check_as(address, bytes, access, self().actor, self().clock, false, counter);
}

void check_unwritten(const void *address, unsigned bytes, Site site) {
    size_t offset;
    std::vector<Word> *words = engine.checked ? words_of(address, bytes, offset) : nullptr;
    if (!words) return;
    const uint32_t node = self().block->launch->node;
    for_words(offset, bytes, *words, [&](Word &w, uint8_t mask, size_t at) {
        if (w.operation != operation) return;
        for (const Entry &e : w.entries) {
            bool over = e.node != node && node < at_start.size() && e.node < at_start[node].size() && at_start[node][e.node];
            if (e.bytes & mask && e.access != Access::Read && !over)
                fault("stale", "%s:%d: a non-coherent read of %s may see what was there before %s%s, during which its kernel ran", site.file, site.line,
                      describe((const char *)address + at).c_str(), verb(e), position(e.program_counter).c_str());
        }
    });
}

void check_async(const void *address, size_t bytes, Access access, unsigned actor, bool bulk) {
    if (engine.checked) check_as(address, bytes, access, actor, UNDER_WAY, bulk, nullptr);
}

void complete(Block &b, const void *address, size_t bytes, Access access, unsigned actor, uint32_t clock) {
    if (!engine.checked) return;
    std::vector<Word> *words;
    size_t offset;
    const auto *p = static_cast<const unsigned char *>(address);
    const ModuleInfo &info = b.launch->module->info;
    if (p >= pool && p < pool + MOST_SLOTS * SLOT_BYTES) { /* whoever runs when the copy lands need not know this block */
        words = &slot_words[(size_t)(p - pool) / SLOT_BYTES];
        offset = (size_t)(p - pool) % SLOT_BYTES;
    } else if (p >= info.shared_begin && p < info.shared_end) {
        words = &slot_words[b.slot];
        offset = SLOT_BYTES + (size_t)(p - info.shared_begin);
    } else if (!(words = words_of(address, bytes, offset))) {
        return;
    }
    for_words(offset, bytes, *words, [&](Word &w, uint8_t, size_t) {
        for (Entry &e : w.entries)
            if (e.actor == actor && e.clock == UNDER_WAY && e.access == access && e.serial == b.cluster->serial) e.clock = clock;
    });
}

void check_end(const Block &b) {
    if (!engine.checked || b.cluster->blocks.size() == 1) return;
    std::vector<Thread *> own;
    for (const Thread &t : b.threads) own.push_back(const_cast<Thread *>(&t));
    const Clocks known = join(own);
    const size_t threads = b.threads.size(), all = threads * b.cluster->blocks.size();
    const std::vector<Word> &words = slot_words[b.slot];
    for (size_t at = 0; at < words.size(); at++) {
        if (words[at].operation != operation) continue;
        for (const Entry &e : words[at].entries)
            if (e.serial == b.cluster->serial && e.actor < all && e.actor / threads != b.rank && e.clock > (*known)[e.actor])
                fault("race", "the block ends, and no barrier orders %s of %s by thread %zu of block %zu of the cluster%s before its end", verb(e),
                      describe(b.shared + at * WORD).c_str(), e.actor % threads, e.actor / threads, position(e.program_counter).c_str());
    }
}

void check_node(uint64_t address, size_t bytes, Access access, uint32_t node) {
    Allocation *a = allocation_of(address);
    if (!a) return;
    if (a->words.empty()) a->words.resize((a->size + WORD - 1) / WORD);
    for_words(address - a->begin, bytes, a->words, [&](Word &w, uint8_t mask, size_t at) {
        record(w, {node, 0, 0, 0, mask, access, false, nullptr}, nullptr, (const char *)address + at);
    });
}

} // namespace twd

/* ---- What GCC calls in a module compiled with -fsanitize=thread ---------------------------------------------------- */

using twd::Access;
#define TWD_REPORTED(bytes)                                                                                                               \
    void __tsan_read##bytes(void *p) { twd::reported(p, bytes, Access::Read, true, __builtin_return_address(0)); }                        \
    void __tsan_write##bytes(void *p) { twd::reported(p, bytes, Access::Write, true, __builtin_return_address(0)); }                      \
    void __tsan_unaligned_read##bytes(void *p) { twd::reported(p, bytes, Access::Read, false, __builtin_return_address(0)); }             \
    void __tsan_unaligned_write##bytes(void *p) { twd::reported(p, bytes, Access::Write, false, __builtin_return_address(0)); }
extern "C" {
#pragma GCC visibility push(default)
TWD_REPORTED(1)
TWD_REPORTED(2)
TWD_REPORTED(4)
TWD_REPORTED(8)
TWD_REPORTED(16)
void __tsan_read_range(void *p, size_t bytes) { twd::reported(p, bytes, Access::Read, false, __builtin_return_address(0)); }
void __tsan_write_range(void *p, size_t bytes) { twd::reported(p, bytes, Access::Write, false, __builtin_return_address(0)); }
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
void __tsan_init() {}
#pragma GCC visibility pop
}

/* Cooperative threads: one per CUDA thread, with a context switch of a few instructions. */
#pragma once
#include <cstddef>

namespace twd {

constexpr size_t STACK_BYTES = 256 << 10;

/* One stack and where it goes on. Stacks are pooled for the life of the process, in one region of address space. */
struct Fiber {
    void *stack_pointer = nullptr; /* or the ucontext */
    char *stack = nullptr;         /* lowest address; null for the thread that the process came with */

    void prepare(void (*entry)()); /* takes a stack; `entry` must never return */
    void release();                /* gives the stack back; the fiber must not be running */
};

/* Leaves `from`, goes on with `to`. */
void switch_fiber(Fiber &from, Fiber &to);
bool on_a_stack(const void *address);

} // namespace twd

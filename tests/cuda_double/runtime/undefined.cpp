/* What GCC calls in a module compiled with -fsanitize=alignment,bounds,...: undefined behaviour is a fault of the launch. The
 * definitions are ours, not libubsan's; each call's data begin with a place in the source. */
#include "engine.h"

namespace {

struct SourceLocation {
    const char *file;
    uint32_t line, column;
};

} // namespace

#define TWD_UNDEFINED(name, what, ...) \
    void __ubsan_handle_##name(const SourceLocation *at, ##__VA_ARGS__) { twd::fault("undefined", "%s:%u: " what, at->file, at->line); }

extern "C" {
#pragma GCC visibility push(default)
void __ubsan_handle_type_mismatch_v1(const SourceLocation *at, void *address) {
    twd::fault("misaligned", "%s:%u: access to %s", at->file, at->line, twd::describe(address).c_str());
}
TWD_UNDEFINED(out_of_bounds, "index out of the bounds of an array", void *)
TWD_UNDEFINED(shift_out_of_bounds, "shift by more than the width, or of a negative number", void *, void *)
TWD_UNDEFINED(divrem_overflow, "division by zero, or overflow of a division", void *, void *)
TWD_UNDEFINED(add_overflow, "overflow of a signed sum", void *, void *)
TWD_UNDEFINED(sub_overflow, "overflow of a signed difference", void *, void *)
TWD_UNDEFINED(mul_overflow, "overflow of a signed product", void *, void *)
TWD_UNDEFINED(negate_overflow, "overflow of a negation", void *)
TWD_UNDEFINED(load_invalid_value, "value that its type does not have", void *)
TWD_UNDEFINED(builtin_unreachable, "place that was declared unreachable")
TWD_UNDEFINED(missing_return, "end of a function without a value")
#pragma GCC visibility pop
}

/* What the double's cuTensorMapEncodeTiled writes into the 128 opaque bytes. */
#pragma once
#include <cstdint>

namespace twd {

struct TensorMap {
    static constexpr uint32_t MAGIC = 0x70616d74;
    uint32_t magic, rank, element_bytes, swizzle; /* swizzle as in the driver: 0 none, 1 32, 2 64, 3 128 bytes */
    uint64_t address;
    uint32_t size[5], box[5];
    uint64_t stride[4]; /* bytes, of dimensions 1 and further */
};
static_assert(sizeof(TensorMap) <= 128, "a tensor map has 128 bytes");

/* "Swizzling Modes": bits 4.. of an address are combined with bits 7.. . */
inline uint64_t swizzled(uint64_t address, uint32_t bits) { return address ^ (address >> 3 & (((1u << bits) - 1) << 4)); }

} // namespace twd

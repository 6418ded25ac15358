/* The double of compiler/devices/cuda/runtime/tw_wgmma_sp.h. */
#pragma once
#if TW_SM90A
#define TW_WGMMA_SP(TYPE, NAME) \
    template <int selector, int registers> \
    TW_DEVICE void tw_wgmma_sp_k32_##TYPE(float (&d)[registers], unsigned long long a, unsigned long long b, unsigned metadata, int accumulate, TW_AT) { \
        twd::wgmma_sp(twd::Type::NAME, d, 2 * registers, a, b, metadata, selector, accumulate, at); \
    }
TW_WGMMA_SP(f16, F16)
TW_WGMMA_SP(bf16, BF16)
#undef TW_WGMMA_SP
#endif

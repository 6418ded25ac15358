/* The double of compiler/devices/cuda/runtime/tw_wgmma_bytes.h. */
#pragma once
#if TW_SM90A
#define TW_WGMMA(TYPE, NAME) \
    template <int registers> \
    TW_DEVICE void tw_wgmma_k32_##TYPE(int (&d)[registers], unsigned long long a, unsigned long long b, int accumulate, TW_AT) { \
        twd::wgmma(twd::Type::NAME, d, 2 * registers, a, b, accumulate, false, false, at); \
    }
TW_WGMMA(s8, S8)
TW_WGMMA(u8_s8, U8_S8)
#undef TW_WGMMA
#define TW_WGMMA_SP(TYPE, NAME) \
    template <int registers> \
    TW_DEVICE void tw_wgmma_sp_k64_##TYPE(int (&d)[registers], unsigned long long a, unsigned long long b, unsigned metadata, int accumulate, TW_AT) { \
        twd::wgmma_sp(twd::Type::NAME, d, 2 * registers, a, b, metadata, 0, accumulate, at); \
    }
TW_WGMMA_SP(s8, S8)
TW_WGMMA_SP(s8_u8, S8_U8)
#undef TW_WGMMA_SP
#endif

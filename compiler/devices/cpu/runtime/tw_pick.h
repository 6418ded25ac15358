/* Elements picked for each lane out of a window of neighbours: `near` ones out of 16 bytes that every part of a vector holds,
 * byte by byte; others out of the 64 bytes of a whole vector. `which` names them. */
#pragma once

#if defined(__AVX512BW__) && TW_LANES == 16
TW_INLINE vi tw_pick_near_window(const void *p) { return (vi)_mm512_broadcast_i32x4(_mm_loadu_si128(p)); }
TW_INLINE vi tw_pick_near(vi x, vi which) { return (vi)_mm512_shuffle_epi8((__m512i)x, (__m512i)which); }
TW_INLINE vi tw_pick_halves(vi x, vi which) { return (vi)_mm512_permutexvar_epi16((__m512i)which, (__m512i)x); }
#if defined(__AVX512VBMI__)
TW_INLINE vi tw_pick_bytes(vi x, vi which) { return (vi)_mm512_permutexvar_epi8((__m512i)which, (__m512i)x); }
#endif
#elif defined(__AVX2__) && TW_LANES == 8
TW_INLINE vi tw_pick_near_window(const void *p) { return (vi)_mm256_broadcastsi128_si256(_mm_loadu_si128(p)); }
TW_INLINE vi tw_pick_near(vi x, vi which) { return (vi)_mm256_shuffle_epi8((__m256i)x, (__m256i)which); }
#elif defined(__aarch64__) && TW_LANES == 4
TW_INLINE vi tw_pick_near_window(const void *p) { return tw_groups(p); }
TW_INLINE vi tw_pick_near(vi x, vi which) { return (vi)vqtbl1q_u8((uint8x16_t)x, (uint8x16_t)which); }
#endif

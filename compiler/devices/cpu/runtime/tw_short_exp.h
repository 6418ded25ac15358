/* Exponentials that are rounded to bf16, in half of the operations of tw_exp_normal. */
#pragma once

/* exp of what is not above 0, off by 8e-5 of it at most, and 0 below exp(-87). exp(x) = 2^n 2^f, |f| <= 1/2, the second factor by a
 * polynomial of degree 3 (least squares reweighted towards the largest error). */
TW_INLINE vf tw_exp_bf16(vf x) {
    const vf least = tw_splat(-87.0f);
    vf n = tw_round(x * 1.44269504f), f = x * 1.44269504f - n;
    vf p = tw_splat(5.51716536e-2f);
    p = p * f + 2.42611140e-1f;
    p = p * f + 6.93260968e-1f;
    p = p * f + 9.99928057e-1f;
#if defined(__AVX512F__) && TW_LANES == 16
    __mmask16 normal = _mm512_cmp_ps_mask((__m512)x, (__m512)least, _CMP_NLT_UQ);
    return (vf)_mm512_maskz_scalef_ps(normal, (__m512)p, (__m512)n);
#else
    return tw_below(x, least, tw_splat(0), tw_scale2(p, tw_max_of(tw_splat(-126.0f), n)));
#endif
}
